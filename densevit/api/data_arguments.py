"""The data set that arguments name: to score, or split by split; and what a checkpoint records of its training data."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from densevit.config import parser, plugins
from densevit.config.parser import OBJECT, SUFFIXES, describe_object, find_recipe
from densevit.data.datasets.base import DATASETS, Dataset, open_dataset
from densevit.data.datasets.named import SPLITS, named_spec, spec_to_score, split_folders
from densevit.data.datasets.pairs import as_dataset
from densevit.errors import CheckpointError, ConfigError, DensevitError
from densevit.registry import ComponentConfig, ComponentSpec, choices, default
from densevit.utils.network import is_address
from densevit.weights.checkpoint import locate, read_card

Options = Mapping[str, Any] | None


class Split(NamedTuple):
    """One split of a data set, by its checked options."""

    name: str
    data: ComponentSpec[Dataset]
    optional: bool = False  # need not be there


def scored_spec(
    checkpoint: Any, data: str | None, root: str | Path | None, split: str | None, options: Options
) -> ComponentConfig:
    """Return the data set to score, as a config would name it. `checkpoint`: whose training's validation data is taken
    where no data is named. Raises ConfigError if no data set is named, and the checkpoint records none."""
    folder = None if root is None else Path(root)
    if data is not None:
        return spec_to_score(named_spec(data, folder, options), split)
    if not isinstance(checkpoint, str | Path):
        raise ConfigError("--data: name the data set; only a checkpoint's path tells what it was validated on.")
    return validation_spec(checkpoint, folder, split, options)


def open_data(
    checkpoint: Any, data: Any, root: str | Path | None, split: str | None, options: Options
) -> tuple[Dataset, ComponentConfig]:
    """Open the data set to score; it may be a name, a folder, a config, a `Dataset` or pairs."""
    if isinstance(data, Mapping):
        given = {**data, **(options or {}), **({} if root is None else {"root": root})}
        plain = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
        spec = spec_to_score(plain, split)
    elif data is None or isinstance(data, str | Path):
        spec = scored_spec(checkpoint, None if data is None else str(data), root, split, options)
    elif root is not None or split is not None or options:
        raise ConfigError("--root, --split, --data-options: of a data set by its name or config; this is an object.")
    else:
        return as_dataset(data), {"type": describe_object(data)}
    return open_dataset(spec), spec


def training_warning(checkpoint: str | Path, data: Dataset, spec: ComponentConfig) -> str:
    """Say how many of the images to score trained the checkpoint, and which split to score instead; "" for none."""
    recorded = recorded_run(checkpoint).get("data") or {}
    train, val = recorded.get("train") or {}, recorded.get("val") or {}
    trained = [source.get("data") or {} for source in train.get("sources", ())] or [train]
    try:
        seen = {key for tree in trained if is_same_dataset(tree, spec) for key in identities(open_dataset(tree))}
    except DensevitError:
        return ""  # it is no longer there, or its plug-in is not
    count = sum(key in seen for key in identities(data))
    if not count:
        return ""
    advice = "score images that it has not seen, for example by --split val."
    if is_same_dataset(val, spec) and val.get("split") not in (spec.get("split"), train.get("split")):
        fraction = f" --data-options val_fraction={val['val_fraction']:g}" if val.get("val_fraction") else ""
        advice = f"score its validation data by --split {val.get('split', 'val')}{fraction}, or without --data."
    return f"{count:,} of these {len(data):,} images trained the model, so others will score worse; {advice}"


def is_same_dataset(tree: ComponentConfig, spec: ComponentConfig) -> bool:
    """Return whether two configs of data sets have one type and one root."""
    roots = [Path(config["root"]).expanduser().resolve() if config.get("root") else None for config in (tree, spec)]
    return tree.get("type") == spec.get("type") and roots[0] == roots[1]


def identities(data: Dataset) -> Iterator[str]:
    """Yield what tells samples of one place apart: their image files, or their names where they have none."""
    return (str(data.files(index).get("image", name)) for index, name in enumerate(data.names))


def find_splits(
    target: str | None,
    overrides: Sequence[str],
    data: str | None,
    root: str | Path | None,
    options: Options,
    splits: Sequence[str],
) -> Iterator[Split]:
    """Return the splits of a config, or of a data set. Raises ConfigError: neither or both are named, or an option is
    wrong."""
    name = data or target
    if name is None or None not in (data, target):
        raise ConfigError("give a config, a data set's name, a folder, or --data NAME.")
    if target is not None and is_config(target):
        if root is not None or options or splits:
            raise ConfigError(
                f"{target} is a config: --root, --data-options and --splits are for a data set by its name. Give "
                "data.root=FOLDER, data.train.OPTION=VALUE."
            )
        return _splits_of_config(target, overrides)
    return _splits_of_dataset(name, None if root is None else Path(root), options, overrides, splits)


def is_config(target: str) -> bool:
    """Return whether it is a config's file or recipe; a data set of that name, or a folder, comes first."""
    if Path(target).suffix in SUFFIXES:
        return True
    return target not in DATASETS.components and not Path(target).is_dir() and find_recipe(target) is not None


def _splits_of_config(path: str, overrides: Sequence[str]) -> Iterator[Split]:
    run, _ = parser.read(path, overrides)
    plugins.load(run.plugins, Path(path).parent)
    yield _checked("train", run.data.train)
    if run.data.val is not None:
        yield _checked("val", run.data.val)


def _splits_of_dataset(
    name: str, root: Path | None, options: Options, overrides: Sequence[str], splits: Sequence[str]
) -> Iterator[Split]:
    tree = named_spec(name, root, options, overrides)
    component = DATASETS.components.get(tree["type"])
    supported = choices(component, "split") if component is not None else ()
    usual = default(component, "split") if component is not None else None
    named = list(splits) or ([tree["split"]] if "split" in tree else [])
    available = split_folders(tree) or [split for split in SPLITS if split in supported and usual != "all"]
    selected: list[str | None] = [*(named or available)] or [None]
    for split in selected:
        spec = tree if split is None else {**tree, "split": split}
        yield _checked(split or usual or "all", spec, optional=not named and split not in (None, usual))


def _checked(split: str, spec: ComponentConfig, *, optional: bool = False) -> Split:
    return Split(split, DATASETS.check(spec, f"data.{split}"), optional)


def recorded_run(checkpoint: str | Path) -> Mapping[str, Any]:
    """Return the config that trained the checkpoint; empty where it records none."""
    if is_address(checkpoint):
        return {}
    try:
        locate(checkpoint)
        return read_card(checkpoint).config
    except CheckpointError:
        if Path(checkpoint).exists():
            return {}  # of others
        raise


def validation_spec(
    checkpoint: str | Path,
    root: Path | None = None,
    split: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> ComponentConfig:
    """Return what the checkpoint's training validated on, with the root, split and options that are given here. Raises
    ConfigError: it records none, or validated on objects."""
    run = recorded_run(checkpoint)
    recorded = (run.get("data") or {}).get("val")
    if not recorded:
        raise ConfigError(f"--data: {checkpoint} records no validation data; name a data set.")
    if recorded["type"] == OBJECT:
        name = recorded["name"]
        raise ConfigError(f"--data: {checkpoint} was validated on a Python object ({name}); give it as `data`.")
    tree = {**recorded, **(options or {})}
    if tree["type"] not in DATASETS.components and (files := run.get("plugins")):
        raise ConfigError(f"data: the run's own, '{tree['type']}', needs {' '.join(f'--plugins {f}' for f in files)}.")
    if root is not None:
        tree["root"] = str(root.absolute())
    if split is not None:
        tree["split"] = split
    details = "".join(f", {key} {tree[key]}" for key in ("root", "split") if tree.get(key))
    print(f"data: the run's own validation data, {tree['type']}{details}", file=sys.stderr)
    return tree


def recorded_protocol(checkpoint: str | Path, head: str | None = None) -> str | None:
    """Return what the checkpoint's training was validated by."""
    tasks: Mapping[str, Mapping[str, str]] = recorded_run(checkpoint).get("tasks") or {}
    task = tasks.get(head or "depth") or next(iter(tasks.values()), {})
    return task.get("protocol")
