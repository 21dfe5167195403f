"""Saved segments of any system as COCO's files: a panoptic JSON with its PNGs, or a JSON list of results with masks."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np

from densevit.data.datasets.base import Dataset
from densevit.data.datasets.segmentation.coco import Coco
from densevit.data.index.paths import confine, first_five
from densevit.data.io.coco import field, mask_of, read_panoptic_ids
from densevit.errors import DataError
from densevit.ops.segments import InstancePrediction, PanopticPrediction, segments_of_ids
from densevit.structures import Size
from densevit.utils.json_files import read_json

SegmentTask = Literal["panoptic", "instances"]


FORMS: Mapping[SegmentTask, str] = {
    "panoptic": "a panoptic JSON with `annotations` and their `segments_info`",
    "instances": "a list of results with image_id, category_id, segmentation and score",
}


def task_of_file(path: Path) -> SegmentTask:
    """Return what a JSON file of predictions holds. Raises DataError if it is no such file."""
    tree = read_json(path)
    return "instances" if isinstance(tree, list) else "panoptic"


class SavedSegments:
    """The predictions of a file for the images of a data set.

    Images are found by `image_id`: of what the file lists in `images`, else of the data's own annotation file, else the
    name of an image, with or without folders, or its number (12 of `a/0012`). Categories are those that this file
    names, as each result of `predict` does, else those of the data's file, else counted from 1.

    Raises:
        DataError: no such file, an image or a category that the data lacks, an image without a panoptic map.
    """

    def __init__(self, path: Path, data: Dataset, task: SegmentTask) -> None:
        tree = read_json(path)
        rows = tree if isinstance(tree, list) else tree.get("annotations") if isinstance(tree, dict) else None
        if (
            not isinstance(rows, list)
            or not all(isinstance(row, dict) for row in rows)
            or (bool(rows) and all("segments_info" in row for row in rows)) != (task == "panoptic")
        ):
            raise DataError(f"{path}: is not {FORMS[task]}.")
        self.path, self.data, self.task = path, data, task
        listed = {} if isinstance(tree, list) else tree
        for key in ("images", "categories"):
            if not isinstance(listed.get(key, []), list):
                raise DataError(f"{path}: `{key}` is {repr(listed[key])[:40]}, not a list.")
        self.class_ids: Mapping[Any, int] = category_places(data, listed, path)
        self.named: Mapping[Any, int] = {one: i for i, one in enumerate(data.classes)}
        names = image_names(data, listed, path)
        self.rows: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for row in rows:
            image = str(row.get("image_id"))
            if image not in names:
                raise DataError(f"{path}: image_id {image} is no image of the data, whose first is '{data.names[0]}'.")
            self.rows[names[image]].append(row)
        missing = [name for name in data.names if name not in self.rows]
        if missing and task == "panoptic":
            raise DataError(f"{path}: no map for {len(missing):,} of {len(data):,} images:{first_five(missing)}")

    def read(self, name: str, size: Size) -> PanopticPrediction | InstancePrediction:
        """Raise DataError naming what does not fit: a missing PNG, an id without an entry, a mask of another size."""
        rows = self.rows.get(name, [])
        if self.task == "panoptic":
            return self._panoptic(name, rows[-1])
        masks = [mask_of(row.get("segmentation"), size, f"{self.path}: '{name}'") for row in rows]
        scores = np.array([self._score(name, row) for row in rows], np.float64)
        order = np.argsort(-scores, kind="stable")
        classes = np.array([self._class_id(name, row) for row in rows], np.int64)
        return InstancePrediction(np.array(masks, np.bool_).reshape(-1, *size)[order], classes[order], scores[order])

    def _panoptic(self, name: str, row: Mapping[str, Any]) -> PanopticPrediction:
        file = str(row.get("file_name", f"{PurePosixPath(name).name}.png"))
        folder = self.path.with_suffix("")  # the PNGs are in a folder of the file's name, or with it
        png = confine(folder if folder.is_dir() else self.path.parent, file, allow_outside=False)
        segments_info = row["segments_info"]
        if not isinstance(segments_info, list) or not all(isinstance(one, dict) for one in segments_info):
            raise DataError(f"{self.path}: '{name}': `segments_info` is no list of segments.")
        classes = [self._class_id(name, one) for one in segments_info]
        ids = [field(one, "id", int, f"{self.path}: '{name}', segment") for one in segments_info]
        segments, unknown = segments_of_ids(read_panoptic_ids(png), ids, classes, [False] * len(segments_info))
        if unknown:
            raise DataError(f"{png}: segment {unknown[0]} is not in {self.path.name}.")
        scores = np.array([self._score(name, one) for one in segments_info], np.float32)
        return PanopticPrediction(segments.ids, segments.classes, scores, np.isin(classes, list(self.data.things)))

    def _score(self, name: str, row: Mapping[str, Any]) -> float:
        return field(row, "score", float, f"{self.path}: '{name}', result") if "score" in row else 1.0

    def _class_id(self, name: str, row: Mapping[str, Any]) -> int:
        category, known = row.get("category_id"), self.class_ids
        if "category_name" in row:  # as `predict` writes it
            category, known = row["category_name"], self.named
        if not isinstance(category, int | str) or category not in known:
            raise DataError(f"{self.path}: '{name}' has category {category}, which the data does not have.")
        return known[category]


def category_places(data: Dataset, tree: Mapping[str, Any], path: Path) -> Mapping[int, int]:
    """Return the class id by category. Raises DataError, which names `path`: one without id or name."""
    class_ids, what = {name: i for i, name in enumerate(data.classes)}, f"{path}: category"
    if "categories" in tree:
        listed = {field(one, "id", int, what): field(one, "name", str, what) for one in tree["categories"]}
        return {id_: class_ids[name] for id_, name in listed.items() if name in class_ids}
    return data.id_map if isinstance(data, Coco) else {i + 1: i for i in range(len(data.classes))}


def image_names(data: Dataset, tree: Mapping[str, Any], path: Path) -> Mapping[str, str]:
    """Return the name in the data set by `image_id`. Raises DataError, which names `path`: an image without id."""
    names, what = {name: name for name in data.names}, f"{path}: image"
    files = {field(one, "id", str, what): str(one.get("file_name")) for one in tree.get("images", ())}
    stems = {id_: file if file in names else str(PurePosixPath(file).with_suffix("")) for id_, file in files.items()}
    listed = {id_: stem for id_, stem in stems.items() if stem in names}
    if isinstance(data, Coco):
        return names | {str(entry["id"]): name for name, entry in data.entries.items() if name in names} | listed
    parts = [(PurePosixPath(name).name, name) for name in names]
    short = {*parts, *((str(int(part)), name) for part, name in parts if part.isdecimal())}
    count = Counter(key for key, _ in short)
    return {key: name for key, name in short if count[key] == 1} | names | listed
