"""Write a static web page that predicts in the visitor's browser: no server computes, and no image leaves the browser.

The folder holds the page, the model as ONNX (compared with torch) and ONNX Runtime Web, which npm fetches while the
site is made. Any static server serves it: python -m http.server --directory SITE
"""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint
from densevit.cli.options.model_file import add_heads_option
from densevit.cli.options.types import size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    checkpoint.add_checkpoint_argument(parser)
    parser.add_argument("--output", type=Path, required=True, metavar="SITE", help="the folder to make")
    parser.add_argument(
        "--image-size",
        type=size,
        metavar="H,W",
        help="height and width at which the network sees every image (that of its training); smaller is faster",
    )
    add_heads_option(parser)
    parser.add_argument("--title", default="", help="of the page (the checkpoint's name)")
    parser.add_argument(
        "--runtime",
        type=Path,
        metavar="PACKAGE",
        help="the npm package onnxruntime-web as a .tgz or a folder, where npm cannot fetch it",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a site that is there")
    checkpoint.add_checkpoint_options(parser.add_argument_group("model"))


def run(args: argparse.Namespace) -> int:
    from densevit.api.export_model import export_web

    family, family_options = checkpoint.format_options(args)
    site = export_web(
        args.checkpoint,
        args.output,
        args.image_size,
        overwrite=args.overwrite,
        heads=args.head,
        title=args.title,
        runtime=args.runtime,
        family=family,
        family_options=family_options,
    )
    print(
        f"{site.folder}: {site.bytes / 1e6:.1f} MB, of which a browser without WebGPU fetches "
        f"{site.download / 1e6:.1f} MB; images at {site.size[0]}x{site.size[1]}; ONNX Runtime Web {site.runtime}"
    )
    for name, error in site.errors.items():
        print(f"  {name}: off torch by {error:.1e} of the largest value")
    print(f"see it: python -m http.server --directory {site.folder}, then http://localhost:8000")
    return 0
