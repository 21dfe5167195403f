"""Label images by a teacher, for the training of a student: maps with confidence, in folders or tar shards.

The teacher is any checkpoint that densevit loads, or a file of export-onnx; heads for depth and for classes of pixels
are written. Its name and licence go into the manifest, and from there into the student's card. The data set
`pseudo_labels` reads the result. Under torchrun, several processes share the images, or the shards.
"""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options import checkpoint, inference
from densevit.cli.options.types import positive_int, words
from densevit.utils.output import print_once

if TYPE_CHECKING:
    from densevit.inference.predict.output_plan import Existing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    checkpoint.add_checkpoint_argument(parser, metavar="TEACHER")
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="image, folder, .tar, glob, .txt or .csv list")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write to")
    parser.add_argument(
        "--shard-size",
        type=positive_int,
        metavar="N",
        help="pack so many images with their maps into each tar archive; without, images stay where they are",
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--overwrite", action="store_true", help="make all files anew")
    again.add_argument("--resume", action="store_true", help="make only what is missing")
    model = parser.add_argument_group("teacher")
    checkpoint.add_compute_options(model, precision="auto")
    inference.add_inference_options(model)
    model.add_argument("--no-flip", action="store_true", help="do not average with the mirrored image's prediction")
    model.add_argument("--batch-size", type=positive_int, default=1, metavar="N", help="neighbours of one size (1)")
    model.add_argument("--head", metavar="NAMES", type=words, default=(), help="which, where several fit")
    checkpoint.add_checkpoint_options(model)
    work = parser.add_argument_group("work")
    work.add_argument("--workers", type=positive_int, default=min(8, os.cpu_count() or 1), metavar="N", help="threads")
    work.add_argument("--max-pixels", type=positive_int, metavar="N", help="refuse larger images")


def run(args: argparse.Namespace) -> int:
    from densevit.api.export import PATIENCE, device_for
    from densevit.engine import distributed
    from densevit.inference.predict.inputs import find_items
    from densevit.inference.predict.pseudo_labels import WRITERS, LabelPlan, write_pseudo_labels
    from densevit.utils.signals import interruptible

    args.flip = not args.no_flip
    existing: Existing = "resume" if args.resume else "overwrite" if args.overwrite else "refuse"
    items = find_items(args.inputs, [writer.suffix for writer in WRITERS.values()], args.output).items
    plan = LabelPlan(items, WRITERS, args.output.absolute(), shard_size=args.shard_size)
    plan.check(existing)
    with interruptible() as stop, distributed.process_group(device_for(vars(args)), patience=PATIENCE) as world:
        predictor = inference.load(args, device=str(world.device), batch_size=args.batch_size)
        work = {"workers": args.workers, "max_pixels": args.max_pixels, "progress": True}
        name = Path(args.checkpoint).name
        print_once(write_pseudo_labels(predictor, plan, name, args.head, existing, stop=stop, processes=world, **work))
    return 0
