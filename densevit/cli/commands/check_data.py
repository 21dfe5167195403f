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
    add("--ignore", action="append", default=[], metavar="TYPE", help="leave out; types of issues as in the JSON")
    add("--output", type=Path, metavar="DIR", help="write report.txt, report.json and report.html there")
    add("--threads", type=positive_int, metavar="N", help="default: one a core")
    add("--no-cache", action="store_true", help="read every sample again, and store nothing")


def run(args: argparse.Namespace) -> int:
    from densevit.data import validation
    from densevit.errors import ConfigError
    from densevit.registry import did_you_mean
    from densevit.utils.atomic_io import check_can_create

    for name in args.ignore:
        if name not in validation.ISSUE_TYPES:
            raise ConfigError(f"--ignore: no type of issue '{name}'.{did_you_mean(name, validation.ISSUE_TYPES)}")
    if args.output is not None:
        check_can_create(args.output)
    report = validation.validate(
        splits_to_validate(args),
        threads=args.threads,
        checksums=args.checksums,
        ignore=args.ignore,
        progress=_progress,
    )
    print(validation.format_text(report))
    if args.output is not None:
        write(args.output, report)
    return 0 if report.ok else 2


def splits_to_validate(args: argparse.Namespace) -> "Iterator[SplitToValidate]":
    """The splits of a config, or of a data set.

    Raises:
        ConfigError: neither or both are named, or an option is wrong.
    """
    from densevit.data.datasets.mix import Mix, split_sources
    from densevit.data.validation import SplitToValidate
    from densevit.data.validation.cache import cache_path

    found = (
        (split, data, optional)
        for given, whole, optional in dataset.find_splits(args)
        for split, data in (split_sources(given, whole.options) if whole.component is Mix else [(given, whole)])
    )
    for split, data, optional in found:
        cache = None if args.no_cache else cache_path(data.spec())
        yield SplitToValidate(split, data.build, cache, args.classes, optional)


def write(folder: Path, report: Any) -> None:
    """Writes the report in its three forms, and says where."""
    from densevit.data import validation
    from densevit.utils.atomic_io import make_folder, write_text

    make_folder(folder)
    write_text(folder / "report.txt", validation.format_text(report) + "\n")
    validation.write_json(folder / "report.json", report)
    validation.write_html(folder / "report.html", report)
    print(f"written: {folder / 'report.txt'}, report.json, report.html")


def _progress(samples: Iterable[Any], total: int, split: str) -> Iterable[Any]:
    from densevit.utils.progress import tqdm

    return tqdm(samples, total=total, desc=split, delay=2, disable=None, unit="samples")
