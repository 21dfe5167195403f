"""Options that name data: a config's, a data set by name or folder, or the data that a run was validated on."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from densevit.data.datasets.base import Dataset
    from densevit.evaluators.depth import DepthEvaluation
    from densevit.evaluators.normals import NormalsEvaluation
    from densevit.evaluators.segmentation import SegmentationEvaluation
    from densevit.registry import ComponentConfig, ComponentSpec

SPLITS = ("train", "val", "test")


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


def add_dataset_options(parser: argparse.ArgumentParser, examples: str) -> None:
    """
    Args:
        examples: names of data sets that have what is scored, for the help.
    """
    _add_data_options(
        parser, f"{examples}, ..., or a folder's path; default: the data that the checkpoint's training validated on"
    )
    parser.add_argument("--split", help="default: test, where the data set has one")


def _add_data_options(parser: argparse.ArgumentParser, data_help: str) -> None:
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
    from densevit.registry import choices, default

    tree = _spec(name, args.root, [*args.data_option, *args.overrides])
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


def _spec(name: str, root: Path | None, options: Sequence[str]) -> "ComponentConfig":
    """The data set as a config would name it; a path to a folder is data set `folder` in it."""
    from densevit.config.yaml_document import YamlDocument
    from densevit.data.datasets.base import DATASETS

    if root is None and name not in DATASETS.components and Path(name).is_dir():
        name, root = "folder", Path(name)
    document = YamlDocument({"type": name})
    for item in options:
        document.override(item)
    if root is not None:
        document.tree["root"] = str(root.absolute())
    return document.tree


def split_folders(spec: "ComponentConfig") -> list[str]:
    """The folders train, val and test of data set `folder`, where its images lie in those and not beside them."""
    from densevit.data.datasets.base import resolve_root

    if spec["type"] != "folder" or spec.get("manifest") or "root" not in spec:
        return []
    root = resolve_root(Path(spec["root"]), "folder")
    images = spec.get("images", "images")
    if (root / images).exists():
        return []
    return [split for split in SPLITS if (root / split / images).exists()]


def dataset_spec(args: argparse.Namespace) -> "ComponentConfig":
    """The data set to score, as a config would name it.

    Raises:
        ConfigError: no data set is named, and the checkpoint records none.
    """
    from densevit.data.datasets.base import DATASETS
    from densevit.registry import choices, default

    if args.data is None:
        return _validation_data(args)
    tree = _spec(args.data, args.root, args.data_option)
    part = DATASETS.components.get(tree["type"])
    if args.split is not None:
        tree["split"] = args.split
    elif part is not None and default(part, "split") == "train" and "test" in choices(part, "split"):
        tree.setdefault("split", "test")
    elif "split" not in tree and (found := split_folders(tree)):
        tree["split"] = found[-1]  # test before val before train
        print(f"data: {tree['root']}, split {found[-1]} of {', '.join(found)}", file=sys.stderr)
    return tree


def recorded_run(args: argparse.Namespace) -> Mapping[str, Any]:
    """The config that trained the checkpoint; empty where it records none."""
    from densevit.errors import CheckpointError
    from densevit.weights.checkpoint import locate, read_card

    try:
        locate(args.checkpoint)
        return read_card(args.checkpoint).config
    except CheckpointError:
        if Path(args.checkpoint).exists():
            return {}  # of others
        raise


def _validation_data(args: argparse.Namespace) -> "ComponentConfig":
    """What the checkpoint's training validated on, with the root, split and options that are given here."""
    from densevit.config.yaml_document import YamlDocument
    from densevit.errors import ConfigError

    if args.checkpoint is None:
        raise ConfigError("--data: name the data set that --predictions are for.")
    recorded = (recorded_run(args).get("data") or {}).get("val")
    if not recorded:
        raise ConfigError(f"--data: {args.checkpoint} records no validation data; name a data set.")
    document = YamlDocument(dict(recorded))
    for item in args.data_option:
        document.override(item)
    if args.root is not None:
        document.tree["root"] = str(args.root.absolute())
    if args.split is not None:
        document.tree["split"] = args.split
    tree = document.tree
    where = "".join(f", {key} {tree[key]}" for key in ("root", "split") if tree.get(key))
    print(f"data: the run's own validation data, {tree['type']}{where}", file=sys.stderr)
    return tree


NOT_RECORDED = ("output", "workers", "gt_cache")
"""Options on which no score depends."""


def evaluation_source(args: argparse.Namespace, spec: "ComponentConfig") -> dict[str, str]:
    """What the files of an evaluation say of its origin: checkpoint, data and every option that a score depends on."""
    given = {**vars(args), "data": spec["type"]}
    given |= {key: spec[key] for key in ("root", "split") if given.get(key) is None and spec.get(key)}
    kept = {key: value for key, value in given.items() if key not in NOT_RECORDED}
    return {key: str(value) for key, value in kept.items() if value not in (None, False, [], ())}


def report(
    found: "DepthEvaluation | NormalsEvaluation | SegmentationEvaluation",
    args: argparse.Namespace,
    spec: "ComponentConfig",
) -> None:
    """Prints an evaluation, and writes its files where `--output` asks for them."""
    print(found.summary())
    if found.seconds:
        print(f"{1000 * sum(found.seconds) / len(found.seconds):.1f} ms per image for the prediction.")
    if args.output is not None:
        title = f"{Path(args.checkpoint or args.predictions).name} on {spec['type']}"
        written = found.write_report(args.output, title=title, source=evaluation_source(args, spec))
        print("written: " + ", ".join(map(str, written)))
