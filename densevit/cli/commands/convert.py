"""Write a checkpoint in another layout: densevit, huggingface, depth-anything-v2, ... Nothing is overwritten.

Of a model with low-rank updates (model.encoder.lora) `adapter` has these and all but the encoder's own weights; every
other layout has them merged into the weights. `encoder` has the encoder alone, for `model.encoder.weights` and timm.

Every tensor that runs is equal bit by bit; what is written is read back before the command says so.
"""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="IN", help="a checkpoint, ours or published; or hf:owner/name")
    parser.add_argument("target", metavar="OUT", type=Path, help="a file, or a folder for layouts that are one")
    parser.add_argument("--to", required=True, metavar="LAYOUT", help="densevit, adapter, encoder, huggingface, ...")
    checkpoint.add_checkpoint_options(parser)


def run(args: argparse.Namespace) -> int:
    from densevit.builder.convert import convert

    family, options = checkpoint.format_options(args)
    notes = convert(args.source, args.target, args.to, family, **options)
    print(f"written: {args.target}")
    for note in notes:
        print(f"note: {note}")
    return 0
