"""Print the JSON Schema of a config: what an editor needs to complete its keys and to mark what is wrong."""

import argparse

from densevit.cli.options.checkpoint import add_plugin_option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plugin_option(parser)


def run(args: argparse.Namespace) -> int:
    import json

    from densevit.config.json_schema import to_json_schema
    from densevit.registries import REGISTRIES

    print(json.dumps(to_json_schema(REGISTRIES), indent=1))
    return 0
