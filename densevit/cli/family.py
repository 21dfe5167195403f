"""Whose published checkpoint it is: options that all commands with a checkpoint share."""

import argparse
from typing import Any


def add_arguments(parser: Any) -> None:
    parser.add_argument("--family", metavar="NAME", help="whose published checkpoint it is, where its keys cannot tell")
    parser.add_argument(
        "--family-option",
        action="append",
        default=[],
        metavar="key=value",
        help="what a published file cannot say, as max_depth=20; repeatable",
    )


def chosen(args: argparse.Namespace) -> dict[str, Any]:
    """`family` and `family_options` for `densevit.load`.

    Raises:
        ConfigError: an option without a value.
    """
    from densevit.document import Document

    document = Document({})
    for item in args.family_option:
        document.override(item)
    return {"family": args.family, "family_options": document.tree}
