"""`coco`: COCO's annotation files as classes of pixels: panoptic PNGs, or polygons and run lengths of JSON.

    {train,val}2017/000000000139.jpg
    annotations/panoptic_{train,val}2017.json                       with, beside it or in the root,
    [annotations/]panoptic_{train,val}2017/000000000139.png         RGB: segment id = R + 256 G + 65536 B
    annotations/{instances,stuff,...}_{train,val}2017.json          polygons, or run lengths

Lin et al. 2014; Kirillov et al. 2019 for the panoptic format; cocodataset.org/#format-data. The classes are the file's
categories in the order of their ids. Crowd regions count nowhere.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jaxtyping import Bool, Int64

from densevit.data.datasets.base import DATASETS, FileDataset, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, confine, first_folder
from densevit.data.io.readers import read_stored_labels
from densevit.data.labels.class_table import ClassTable, Colour, Entry
from densevit.errors import DataError
from densevit.structures import IGNORE, Size


@DATASETS.register("coco")
class Coco(FileDataset):
    """Annotation files of COCO, or of tools that write the same format."""

    def __init__(
        self,
        *,
        root: Path,
        annotations: Path,
        images: str = "",
        masks: str | None = None,
        background: bool = False,
        subset: Subset = "full",
    ) -> None:
        """Reads the JSON; no mask is decoded. Raises DataError if it is no such file, or images or masks are missing;
        with the count and the first five.

        Args:
            root: the folder (densevit.data.datasets.base.resolve_root).
            annotations: JSON file under `root`.
            images: folder under `root` that holds the images; default: what fits the file's name, as `val2017`.
            masks: folder of the panoptic PNGs; default: the JSON's name.
            background: pixels in no segment are class 0, `background`; false ignores them.
        """
        self.root = resolve_root(root, "coco")
        path = confine(self.root, str(annotations), allow_outside=False)
        tree = read_annotations(path)
        categories = sorted(tree["categories"], key=lambda category: int(category["id"]))
        self.background = background
        entries = [Entry(position(0), "background", (0, 0, 0))] if background else []
        places = {int(category["id"]): position(i + background) for i, category in enumerate(categories)}
        entries += [Entry(places[int(one["id"])], str(one["name"]), colour_of(one)) for one in categories]
        self.classes, self.palette = (table := ClassTable(entries, str(path))).names, table.palette
        self.segments: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        folder = self.root / (images or images_folder(self.root, path))
        self.panoptic = any("segments_info" in annotation for annotation in tree["annotations"][:1])
        files: dict[int, Path] = {}
        pngs = first_folder(self.root, (str(path.parent.relative_to(self.root)), ""), masks or path.stem)
        for annotation in tree["annotations"]:
            image = int(annotation["image_id"])
            segments = annotation["segments_info"] if self.panoptic else [annotation]
            for segment in segments:
                if int(segment["category_id"]) not in places:
                    raise DataError(
                        f"{path}: image {image} has category {segment['category_id']}, which it does not list."
                    )
            self.segments[image] += [{**one, "place": places[int(one["category_id"])]} for one in segments]
            if self.panoptic:
                files[image] = pngs / (masks or path.stem) / str(annotation["file_name"])
        listed = [entry for entry in tree["images"] if int(entry["id"]) in self.segments]
        self.entries = {Path(str(entry["file_name"])).stem: entry for entry in listed}
        samples = [
            SampleFiles(name, folder / Path(str(entry["file_name"])).name, labels=files.get(int(entry["id"])))
            for name, entry in self.entries.items()
        ]
        super().__init__(samples, subset, f"coco, {path.name} in {self.root}")

    def decode_labels(self, files: SampleFiles) -> Int64[np.ndarray, "h w"]:
        entry = self.entries[files.name]
        segments = self.segments[int(entry["id"])]
        empty = 0 if self.background else IGNORE
        if self.panoptic:
            assert files.labels is not None
            return paint_panoptic(files.labels, segments, empty)
        return paint_segments(segments, (int(entry["height"]), int(entry["width"])), empty, str(files.image))


def read_annotations(path: Path) -> Mapping[str, Any]:
    """Raises DataError: no JSON, or without images, annotations and categories."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: is not readable JSON ({error}).") from error
    parts = ("images", "annotations", "categories")
    if not isinstance(tree, dict) or not all(isinstance(tree.get(part), list) and tree[part] for part in parts):
        raise DataError(f"{path}: no COCO annotations; these have lists of {', '.join(parts)}.")
    return tree


def images_folder(root: Path, annotations: Path) -> str:
    """The folder of images that goes with a file: `val2017` for `panoptic_val2017.json`."""
    name = annotations.stem.rpartition("_")[2]
    choices = (name, f"images/{name}", "images")
    return next((choice for choice in choices if (root / choice).is_dir()), name)


def position(index: int) -> int:
    """The class id of the n-th class: none is 255."""
    return index + (index >= IGNORE)


def colour_of(category: Mapping[str, Any]) -> Colour | None:
    """The colour of a panoptic category; None where the file has none."""
    if "color" not in category:
        return None
    red, green, blue = category["color"]
    return int(red), int(green), int(blue)


def paint_panoptic(path: Path, segments: Sequence[Mapping[str, Any]], empty: int) -> Int64[np.ndarray, "h w"]:
    """Raises DataError if the PNG has no colours, or an id that the JSON does not name."""
    pixels = read_stored_labels(path).pixels
    if pixels.ndim != 3:
        raise DataError(f"{path}: a panoptic PNG is RGB; this one has one channel.")
    ids = pixels.astype(np.int64) @ np.array([1, 256, 65536])
    found, inverse = np.unique(ids, return_inverse=True)
    places = {int(s["id"]): IGNORE if s.get("iscrowd") else int(s["place"]) for s in segments} | {0: empty}
    if unknown := [int(i) for i in found if int(i) not in places]:
        raise DataError(f"{path}: segment {unknown[0]} is not in the JSON.")
    labels: Int64[np.ndarray, "h w"] = np.array([places[int(i)] for i in found])[inverse].reshape(ids.shape)
    return labels


def paint_segments(
    segments: Sequence[Mapping[str, Any]], size: Size, empty: int, what: str
) -> Int64[np.ndarray, "h w"]:
    """Polygons and run lengths, the largest first, so that small objects stay on top."""
    labels = np.full(size, empty, np.int64)
    masks = [(mask_of(segment["segmentation"], size, what), segment) for segment in segments]
    for mask, segment in sorted(masks, key=lambda pair: -int(pair[0].sum())):
        labels[mask] = IGNORE if segment.get("iscrowd") else int(segment["place"])
    return labels


def mask_of(segmentation: Any, size: Size, what: str) -> Bool[np.ndarray, "h w"]:
    """Raises DataError: run lengths of another size, or neither form."""
    if isinstance(segmentation, list):
        mask = np.zeros(size, np.uint8)
        corners = [np.rint(np.array(outline, np.float64).reshape(-1, 2)).astype(np.int32) for outline in segmentation]
        cv2.fillPoly(mask, corners, 1)
        return mask.astype(bool)
    if not isinstance(segmentation, dict) or tuple(segmentation.get("size", ())) != tuple(size):
        raise DataError(f"{what}: a segment is neither polygons nor run lengths of {size[0]} x {size[1]}.")
    counts = segmentation["counts"]
    runs = decode_counts(counts) if isinstance(counts, str) else list(counts)
    if sum(runs) != size[0] * size[1]:
        raise DataError(f"{what}: run lengths of {sum(runs):,} pixels, where the image has {size[0] * size[1]:,}.")
    flat = np.repeat(np.arange(len(runs)) % 2 == 1, runs)  # column by column, the first run outside
    mask_: Bool[np.ndarray, "h w"] = flat.reshape(size[::-1]).T
    return mask_


def decode_counts(text: str) -> list[int]:
    """Run lengths from COCO's compressed text: five bits a character, from the fourth on differences."""
    runs: list[int] = []
    value = shift = 0
    for character in text:
        code = ord(character) - 48
        value |= (code & 31) << shift
        shift += 5
        if code & 32:
            continue
        if code & 16:  # negative
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value = shift = 0
    return runs
