"""Show the attention of a model in one image: per layer and head, mean and rollout, as PNGs and one HTML page."""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint
from densevit.cli.options.types import numbers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    checkpoint.add_checkpoint_argument(parser)
    parser.add_argument("image", type=Path, help="an image file")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="for the images and the page")
    parser.add_argument(
        "--at", type=numbers(2), metavar="X,Y", help="the attention of the patch at this pixel, not of the class token"
    )
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda, cuda:N, mps")
    checkpoint.add_checkpoint_options(parser)


def run(args: argparse.Namespace) -> int:
    from densevit import api
    from densevit.inference.attention.html_page import write_attention_page
    from densevit.inference.attention.maps import compute_attention

    family, options = checkpoint.format_options(args)
    predictor = api.load(args.checkpoint, family, family_options=options, device=args.device, precision="fp32")
    attention = compute_attention(predictor, args.image, args.at)
    page, *images = write_attention_page(
        args.output, attention, title=f"Attention: {args.checkpoint}, {args.image.name}"
    )
    print(f"written: {page} and {len(images)} images")
    return 0
