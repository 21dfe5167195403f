"""Validate data sets before training: damaged, missing, duplicate, misread or leaking samples, with path and reason."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densevit.cli.options import dataset
from densevit.cli.options.checkpoint import add_plugin_option
from densevit.cli.options.types import positive_int

if TYPE_CHECKING:
    from densevit.data.validation import SplitToValidate


def add_arguments(parser: argparse.ArgumentParser) -> None:
    dataset.add_split_options(parser)
    add_plugin_option(parser)
    add = parser.add_argument
    add("--classes", type=int, metavar="N", help="how many classes the labels may have")
    add("--checksums", type=Path, metavar="FILE", help="compare with the sha256 sums in it; made if not there")
    add("--ignore", action="append", default=[], metavar="KIND", help="leave out; kinds as in the JSON")
    add("--output", type=Path, metavar="DIR", help="write report.txt, report.json and report.html there")
    add("--threads", type=positive_int, metavar="N", help="default: one a core")
    add("--no-cache", action="store_true", help="read every sample again, and store nothing")


def run(args: argparse.Namespace) -> int:
    from densevit.data import validation
    from densevit.errors import ConfigError
    from densevit.registry import did_you_mean
    from densevit.utils.atomic_io import check_can_create

    for kind in args.ignore:
        if kind not in validation.KINDS:
            raise ConfigError(f"--ignore: no kind '{kind}'.{did_you_mean(kind, validation.KINDS)}")
    if args.output is not None:
        check_can_create(args.output)
    examination = validation.examine(
        splits_to_validate(args), threads=args.threads, sums=args.checksums, ignore=args.ignore, progress=_progress
    )
    print(validation.text(examination))
    if args.output is not None:
        write(args.output, examination)
    return 0 if examination.healthy else 2


def splits_to_validate(args: argparse.Namespace) -> "Iterator[SplitToValidate]":
    """The splits of a config, or of a data set.

    Raises:
        ConfigError: neither or both are named, or an option is wrong.
    """
    from densevit.data.validation import SplitToValidate
    from densevit.data.validation.cache import place

    for split, data, optional in dataset.find_splits(args):
        memory = None if args.no_cache else place(data.spec())
        yield SplitToValidate(split, data.build, memory, args.classes, optional)


def write(folder: Path, examination: Any) -> None:
    """Writes the report in its three forms, and says where."""
    from densevit.data import validation
    from densevit.reporting.html_page import STYLE
    from densevit.utils.atomic_io import make_folder, write_text

    make_folder(folder)
    write_text(folder / "report.txt", validation.text(examination) + "\n")
    validation.write_json(folder / "report.json", examination)
    validation.write_html(folder / "report.html", examination, style=STYLE)
    print(f"written: {folder / 'report.txt'}, report.json, report.html")


def _progress(seen: Iterable[Any], total: int, split: str) -> Iterable[Any]:
    from tqdm import tqdm

    return tqdm(seen, total=total, desc=split, delay=2, disable=None, unit="samples")
