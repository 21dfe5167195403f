"""Say what a checkpoint is: what it predicts, its parts, source, licence, scores; of a stranger's, whose it may be."""

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="PATH", help="a run, a step folder, a file, a folder, or hf:owner/name")
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def run(args: argparse.Namespace) -> int:
    from densevit.builder.checkpoint import describe
    from densevit.config import plugins
    from densevit.weights.describe import as_text

    plugins.load(args.plugin)
    if args.checkpoint.lower().endswith(".onnx"):
        from densevit.inference.onnx.metadata import as_text as of_onnx
        from densevit.inference.onnx.metadata import read_about

        about = read_about(Path(args.checkpoint))
        print(json.dumps(about, indent=2) if args.json else of_onnx(about))
        return 0
    found = describe(args.checkpoint)
    print(json.dumps(found, indent=2) if args.json else as_text(found))
    return 0
