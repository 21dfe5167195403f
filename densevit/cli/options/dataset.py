"""Options that name data: a config's, a data set by name or folder, or the data that a run was validated on."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from densevit.data.datasets.base import Dataset
    from densevit.evaluators.base import Evaluation
    from densevit.registry import ComponentConfig, ComponentSpec


class Split(NamedTuple):
    """One split of a data set, by its checked options."""

    name: str
    data: "ComponentSpec[Dataset]"
    optional: bool = False  # need not be there


def add_split_options(parser: argparse.ArgumentParser, splits: str = "all of train, val and test") -> None:
    """
    Args:
        splits: what is taken where the user names none, for the help.
    """
    add = parser.add_argument
    add("target", nargs="?", help="a config (its training and validation data), a data set's name, or a folder")
    add("overrides", nargs="*", metavar="key=value", help="of the config, data.train.root=DIR for example")
    _add_data_options(parser, "a data set instead of a config: nyu, kitti, folder, ...")
    add("--split", action="append", default=[], help=f"repeatable; default: {splits}")


def add_dataset_options(parser: argparse._ActionsContainer, examples: str) -> None:
    """
    Args:
        examples: names of data sets that have what is scored, for the help.
    """
    _add_data_options(
        parser, f"{examples}, ..., or a folder's path; default: the data that the checkpoint's training validated on"
    )
    parser.add_argument("--split", help="default: test, where the data set has one")


def _add_data_options(parser: argparse._ActionsContainer, data_help: str) -> None:
    add = parser.add_argument
    add("--data", metavar="NAME", help=data_help)
    add("--root", type=Path, metavar="DIR", help="the data set's folder; default: its own below $DENSEVIT_DATASETS")
    add("--data-option", action="append", default=[], metavar="key=value", help="of the data set; repeatable")


def find_splits(args: argparse.Namespace) -> Iterator[Split]:
    """The splits that the arguments name.

    Raises:
        ConfigError: neither or both of config and data set are named, or an option is wrong.
    """
    from densevit.config.recipes import SUFFIXES, recipes
    from densevit.errors import ConfigError

    name, target = args.data, args.target
    if (name is None) == (target is None):
        raise ConfigError("give a config, a data set's name, a folder, or --data NAME.")
    if target is not None and (Path(target).suffix in SUFFIXES or target in recipes()):
        return _splits_of_config(args)
    return _splits_of_dataset(args, name or target)


def _splits_of_config(args: argparse.Namespace) -> Iterator[Split]:
    from densevit.config import parser, plugins

    run, _ = parser.read(args.target, args.overrides)
    plugins.load(run.plugins, Path(args.target).parent)
    yield _checked("train", run.data.train)
    if run.data.val is not None:
        yield _checked("val", run.data.val)


def _splits_of_dataset(args: argparse.Namespace, name: str) -> Iterator[Split]:
    from densevit.data.datasets.base import DATASETS
    from densevit.data.datasets.named import SPLITS, named_spec, split_folders
    from densevit.registry import choices, default

    tree = named_spec(name, args.root, [*args.data_option, *args.overrides])
    part = DATASETS.components.get(tree["type"])
    known = choices(part, "split") if part is not None else ()
    usual = default(part, "split") if part is not None else None
    named = args.split or ([tree["split"]] if "split" in tree else [])
    found = split_folders(tree) or [split for split in SPLITS if split in known and usual != "all"]
    for split in named or found or [None]:
        spec = tree if split is None else {**tree, "split": split}
        yield _checked(split or usual or "all", spec, optional=not named and split not in (None, usual))


def _checked(split: str, spec: "ComponentConfig", *, optional: bool = False) -> Split:
    from densevit.data.datasets.base import DATASETS

    return Split(split, DATASETS.check(spec, f"data.{split}"), optional)


def dataset_spec(args: argparse.Namespace) -> "ComponentConfig":
    """The data set to score, as a config would name it.

    Raises:
        ConfigError: no data set is named, and the checkpoint records none.
    """
    from densevit.data.datasets.named import named_spec, spec_to_score
    from densevit.errors import ConfigError
    from densevit.weights.recorded_run import validation_spec

    if args.data is not None:
        return spec_to_score(named_spec(args.data, args.root, args.data_option), args.split)
    if args.checkpoint is None:
        raise ConfigError("--data: name the data set that --predictions are for.")
    return validation_spec(args.checkpoint, args.root, args.split, args.data_option)


def open_data(args: argparse.Namespace) -> "tuple[ComponentConfig, Dataset]":
    """The data set to score, and how a config would name it; looks first whether `--output` can be written.

    Raises:
        ConfigError, DataError, StorageError: there is no such data, or no such place.
    """
    from densevit.data.datasets.base import open_dataset

    spec = dataset_spec(args)
    data = open_dataset(spec)
    check_output(args)
    return spec, data


def check_output(args: argparse.Namespace) -> None:
    """
    Raises:
        StorageError: --output cannot be made.
    """
    from densevit.utils.atomic_io import check_can_create

    if args.output is not None:
        check_can_create(args.output)


NOT_RECORDED = ("output", "workers", "gt_cache")
"""Options on which no score depends."""


def evaluation_source(args: argparse.Namespace, spec: "ComponentConfig") -> dict[str, str]:
    """What the files of an evaluation say of its origin: checkpoint, data and every option that a score depends on."""
    given = {**vars(args), "data": spec["type"]}
    given |= {key: spec[key] for key in ("root", "split") if given.get(key) is None and spec.get(key)}
    kept = {key: value for key, value in given.items() if key not in NOT_RECORDED}
    return {key: str(value) for key, value in kept.items() if value not in (None, False, [], ())}


def report(found: "Evaluation", args: argparse.Namespace, spec: "ComponentConfig") -> None:
    """Prints an evaluation, and writes its files where `--output` asks for them."""
    print(found.summary())
    if found.seconds:
        print(f"{1000 * sum(found.seconds) / len(found.seconds):.1f} ms per image for the prediction.")
    if args.output is not None:
        title = f"{Path(args.checkpoint or args.predictions).name} on {spec['type']}"
        written = replace(found, title=title, source=evaluation_source(args, spec)).report(args.output)
        print("written: " + ", ".join(map(str, written)))
