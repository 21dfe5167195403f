"""Which data set a name, a folder or the tree of a config means, and which split of it is scored."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from densevit.config.yaml_document import YamlDocument
from densevit.data.datasets.base import DATASETS, resolve_root
from densevit.data.datasets.segmentation.coco import annotation_files, find_annotations
from densevit.data.recordings.layouts import find_sequences
from densevit.errors import ConfigError, DataError
from densevit.registry import ComponentConfig, choices, default, schema

SPLITS = ("train", "val", "test")

NAMES = {
    "images": ("images", "image", "rgb", "img", "imgs", "color"),
    "depths": ("depths", "depth", "depth_maps", "gt"),
    "labels": ("labels", "label", "masks", "mask", "annotations", "seg"),
}
"""What folders of images and maps are called; the first is the data set's own default."""


def named_spec(
    name: str,
    root: Path | None = None,
    options: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
) -> ComponentConfig:
    """Return the data set as a config would name it; a path to a folder is the data set that it holds. `overrides`:
    `key=value`, after `options`. Raises ConfigError if it needs a folder or an option that is not given."""
    if root is None and Path(name).is_dir():
        if name in DATASETS.components:
            print(f"data: {name} is the data set of that name; for the folder here say ./{name}", file=sys.stderr)
        else:
            name, root = type_of_folder(Path(name)), Path(name)
            if name == "folder":
                options = {**names_in(root), **(options or {})}
    document = YamlDocument({"type": name, **(options or {})})
    for item in overrides:
        document.override(item)
    if root is not None:
        document.tree["root"] = str(root.absolute())
    fields = schema(DATASETS.components[name]).model_fields if name in DATASETS.components else {}
    missing = [key for key, field in fields.items() if field.is_required() and key not in document.tree]
    if missing and document.tree.keys() <= {"type", *fields}:  # else a misspelt option is what is wrong
        options_for = ["--root FOLDER" if key == "root" else f"--data-options {key}=VALUE" for key in missing]
        raise ConfigError(f"--data {name}: needs {' and '.join(options_for)}.")
    return document.tree


def type_of_folder(root: Path) -> str:
    """Return the data set that a folder is: rooms, a recording, COCO's or YOLO's annotations, or images and maps."""
    if (root / "dataset.json").is_file():
        return "rooms"
    if find_sequences(root):
        return "recording"
    return "yolo" if (root / "data.yaml").is_file() else "coco" if annotation_files(root) else "folder"


def find_names(base: Path) -> dict[str, str]:
    """Map each kind to the folder that holds it. Raises DataError if none holds images."""
    folders = {kind: next((name for name in names if (base / name).is_dir()), "") for kind, names in NAMES.items()}
    if not folders["images"]:
        there = ", ".join(sorted(path.name for path in base.iterdir() if path.is_dir())[:8]) or "none"
        raise DataError(
            f"{base}: no folder of images ({', '.join(NAMES['images'])}); its folders: {there}. For other layouts see "
            "`densevit list components data_set folder`: patterns, or a table."
        )
    return {kind: name for kind, name in folders.items() if name}


def other_names(folders: Mapping[str, str]) -> dict[str, str]:
    """Return those of `find_names` that are not the data set's own defaults, as its options."""
    return {kind: name for kind, name in folders.items() if name != NAMES[kind][0]}


def names_in(root: Path) -> dict[str, str]:
    """Return what the folders of a user's data are called, as options of `folder`; empty where none holds images."""
    for base in (*(root / split for split in SPLITS), root):
        if any((base / name).is_dir() for name in NAMES["images"]):
            return other_names(find_names(base))
    return {}


def split_folders(spec: ComponentConfig) -> list[str]:
    """Return the folders train, val and test of data set `folder`, where its images lie in those and not beside them;
    those that COCO's annotation files are named for."""
    if spec["type"] == "coco" and "annotations" not in spec and "root" in spec:
        files = find_annotations(resolve_root(Path(spec["root"]), "coco"))
        return [split for split in SPLITS if split in files]
    if spec["type"] != "folder" or spec.get("manifest") or "root" not in spec:
        return []
    root = resolve_root(Path(spec["root"]), "folder")
    images = spec.get("images", "images")
    if (root / images).exists():
        return []
    return [split for split in SPLITS if (root / split / images).exists()]


def spec_to_score(tree: ComponentConfig, split: str | None = None) -> ComponentConfig:
    """Return a data set with the split to score: the one that is named, else test where there is one."""
    tree = dict(tree)
    dataset = DATASETS.components.get(str(tree.get("type")))
    if split is not None:
        tree["split"] = split
    elif dataset is not None and default(dataset, "split") == "train" and "test" in choices(dataset, "split"):
        tree.setdefault("split", "test")
    elif "split" not in tree and (splits := split_folders(tree)):
        tree["split"] = splits[-1]  # test before val before train
        print(f"data: {tree['root']}, split {splits[-1]} of {', '.join(splits)}", file=sys.stderr)
    return tree
