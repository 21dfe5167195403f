"""Write the classes of pixels for images: files, folders (structure kept), globs, or a .txt or .csv list.

Beside them lie `classes.json` and `legend.png`. From a model with several heads, formats for depth may be asked for as
well: each format takes the head that it is for, and one pass through the model serves all.
"""

import argparse

from densevit.cli.commands import export_depth


def add_arguments(parser: argparse.ArgumentParser) -> None:
    export_depth.add_arguments(parser, usual="labels,overlay")


def run(args: argparse.Namespace) -> int:
    return export_depth.run(args)
