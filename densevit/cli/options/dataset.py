"""Which data a command is about: that of a config, or a data set by its name or folder, each split by itself."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from densevit.data.datasets.base import Dataset
    from densevit.registry import ComponentConfig, ComponentSpec


class Target(NamedTuple):
    """One split, by its checked options."""

    split: str
    data: "ComponentSpec[Dataset]"
    optional: bool = False  # a split that need not be there


def add_split_options(parser: argparse.ArgumentParser, splits: str = "all of train, val and test") -> None:
    """
    Args:
        splits: what is taken where the user names none, for the help.
    """
    add = parser.add_argument
    add("target", nargs="?", help="a config (its training and validation data), a data set's name, or a folder")
    add("overrides", nargs="*", metavar="key=value", help="of the config, data.train.root=DIR say")
    add("--data", metavar="NAME", help="a data set instead of a config: nyu, kitti, folder, ...")
    add("--root", type=Path, help="the data set's folder; default: its own below $DENSEVIT_DATASETS")
    add("--split", action="append", default=[], help=f"repeatable; default: {splits}")
    add("--data-option", action="append", default=[], metavar="key=value", help="of the data set; repeatable")
    add("--plugin", type=Path, action="append", default=[], help="a file that registers your parts")


def targets(args: argparse.Namespace) -> Iterator[Target]:
    """The splits that the arguments name.

    Raises:
        ConfigError: neither or both of config and data set are named, or an option is wrong.
    """
    from densevit.config import plugins
    from densevit.errors import ConfigError

    plugins.load(args.plugin)
    name, target = args.data, args.target
    if (name is None) == (target is None):
        raise ConfigError("give a config, a data set's name, a folder, or --data NAME.")
    if target is not None and Path(target).suffix in (".yaml", ".yml"):
        return _of_config(args)
    if target is not None and Path(target).is_dir():
        return _of_data(args, "folder", Path(target))
    return _of_data(args, name or target, args.root)


def _of_config(args: argparse.Namespace) -> Iterator[Target]:
    from densevit.config import parser as config
    from densevit.config import plugins

    run, _ = config.read(args.target, args.overrides)
    plugins.load(run.plugins, Path(args.target).parent)
    yield Target("train", _checked("train", run.data.train))
    if run.data.val is not None:
        yield Target("val", _checked("val", run.data.val))


def _of_data(args: argparse.Namespace, name: str, root: Path | None) -> Iterator[Target]:
    from densevit.config.yaml_document import YamlDocument
    from densevit.data.datasets.base import DATASETS
    from densevit.registry import choices, default

    document = YamlDocument({"type": name})
    for item in [*args.data_option, *args.overrides]:
        document.override(item)
    if root is not None:
        document.tree["root"] = str(root.absolute())
    part = DATASETS.parts.get(name)
    known = choices(part, "split") if part is not None else ()
    usual = default(part, "split") if part is not None else None
    named = args.split or ([document.tree["split"]] if "split" in document.tree else [])
    splits = named or [split for split in ("train", "val", "test") if split in known and usual != "all"] or [None]
    for split in splits:
        spec = document.tree if split is None else {**document.tree, "split": split}
        optional = not named and split not in (None, usual)
        yield Target(split or usual or "all", _checked(split or usual or "all", spec), optional)


def _checked(split: str, spec: "ComponentConfig") -> "ComponentSpec[Dataset]":
    from densevit.data.datasets.base import DATASETS

    return DATASETS.check(spec, f"data.{split}")


NO_NUMBERS = ("output", "workers", "gt_cache")
"""Options that say where to and how fast."""


def add_dataset_options(parser: argparse.ArgumentParser, examples: str) -> None:
    """
    Args:
        examples: names of data sets that have what is scored, for the help.
    """
    add = parser.add_argument
    add("--data", required=True, metavar="NAME", help=f"{examples}, ...")
    add("--root", type=Path, help="the data set's folder; default: its own below $DENSEVIT_DATASETS")
    add("--split", help="default: test, where the data set has one")
    add("--data-option", action="append", default=[], metavar="key=value", help="of the data set; repeatable")


def spec(args: argparse.Namespace) -> dict[str, Any]:
    """The data set as a config would name it."""
    from densevit.config.yaml_document import YamlDocument
    from densevit.data.datasets.base import DATASETS
    from densevit.registry import choices, default

    document = YamlDocument({"type": args.data})
    for item in args.data_option:
        document.override(item)
    if args.root is not None:
        document.tree["root"] = str(args.root.absolute())
    part = DATASETS.parts.get(args.data)
    if args.split is not None:
        document.tree["split"] = args.split
    elif part is not None and default(part, "split") == "train" and "test" in choices(part, "split"):
        document.tree.setdefault("split", "test")
    return document.tree


def asked(args: argparse.Namespace) -> dict[str, str]:
    """What the user asked for, as the files of an evaluation tell it: all that a number may depend on."""
    told = {key: value for key, value in vars(args).items() if key not in NO_NUMBERS}
    return {key: str(value) for key, value in told.items() if value not in (None, False, [], ())}
