"""Show where a model looks: per layer and head, their mean, and rollout, as PNGs and one HTML page."""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", help="a run's folder, a step folder or a model.safetensors")
    parser.add_argument("image", type=Path, help="a picture file")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where the pictures and the page go")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N")
    checkpoint.add_format_options(parser)
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def run(args: argparse.Namespace) -> int:
    from densevit import api
    from densevit.config import plugins
    from densevit.inference.attention.html_page import write_sheet
    from densevit.inference.attention.maps import compute_attention

    plugins.load(args.plugin)
    predictor = api.load(args.checkpoint, device=args.device, precision="fp32", **checkpoint.format_kwargs(args))
    attention = compute_attention(predictor, args.image)
    page, *pictures = write_sheet(args.output, attention, title=f"Attention: {args.checkpoint}, {args.image.name}")
    print(f"written: {page} and {len(pictures)} pictures")
    return 0
