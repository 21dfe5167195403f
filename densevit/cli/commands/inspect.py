"""Describe a checkpoint: outputs, components, source, licence, scores; of a third-party file the matching families."""

import argparse
import json
from pathlib import Path

from densevit.cli.options.checkpoint import add_plugin_option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="PATH", help="a run, a step folder, a file, a folder, or hf:owner/name")
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    add_plugin_option(parser)


def run(args: argparse.Namespace) -> int:
    from densevit.builder.checkpoint import describe
    from densevit.weights.describe import as_text

    if args.checkpoint.lower().endswith(".onnx"):
        from densevit.inference.onnx.metadata import as_text as of_onnx
        from densevit.inference.onnx.metadata import read_metadata

        about = read_metadata(Path(args.checkpoint))
        print(json.dumps(about, indent=2) if args.json else of_onnx(about))
        return 0
    found = describe(args.checkpoint)
    print(json.dumps(found, indent=2) if args.json else as_text(found))
    return 0
