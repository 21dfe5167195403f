"""Print the JSON Schema of a config: what an editor needs to complete its keys and to mark what is wrong."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def run(args: argparse.Namespace) -> int:
    import json

    from densevit.config import json_schema, plugins
    from densevit.registries import PARTS

    plugins.load(args.plugin)
    print(json.dumps(json_schema.to_json_schema(PARTS), indent=1))
    return 0
