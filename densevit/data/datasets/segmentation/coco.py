"""`coco`: annotation files of COCO, or of tools that write its format: panoptic PNGs, or polygons and run lengths.

    {train,val}2017/000000000139.jpg
    annotations/panoptic_{train,val}2017.json                       with, in the same folder or in the root,
    [annotations/]panoptic_{train,val}2017/000000000139.png         RGB: segment id = R + 256 G + 65536 B
    annotations/{instances,stuff,...}_{train,val}2017.json          polygons, or run lengths
    {train,valid,test}/_annotations.coco.json                       with the images in the same folder (Roboflow)
    annotations/instances_default.json and images/                  CVAT
    ade20k_panoptic_{train,val}.json, ade20k_panoptic_{train,val}/  Mask2Former's ADE20K, with images/{training,...}/

Lin et al. 2014; Kirillov et al. 2019 for the panoptic format; cocodataset.org/#format-data. The classes are the file's
categories in the order of their ids; those with `isthing: 0` are stuff. Crowd regions count nowhere.
"""

import re
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import numpy as np
from jaxtyping import Bool, Int64
from pydantic import Field

from densevit.data.datasets.base import DATASETS, Classes, FileDataset, resolve_root
from densevit.data.datasets.folder import Split, pick_split
from densevit.data.index.paths import (
    SampleFiles,
    Subset,
    check_inside,
    confine,
    file_version,
    first_folder,
    glob_visible,
)
from densevit.data.io.coco import field, mask_of, read_annotations, read_panoptic_ids
from densevit.data.labels.class_table import ClassTable, Colour, Entry, nth_class_id
from densevit.errors import DataError
from densevit.ops.segments import Objects, Segments, segments_of_ids
from densevit.structures import IGNORE

FIRST_KEY = re.compile(rb'[\s\xef\xbb\xbf]*\{\s*"(info|licenses|images|annotations|categories)"')
SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
"""Split by a word in the name of an annotation file or its folder."""
TRIED = 20  # images that are looked for to find their folder
IMAGES = {"train": "images/training", "val": "images/validation"}  # of ADE20K


@DATASETS.register("coco")
class Coco(FileDataset):
    """Annotation files of COCO, or of tools that write the same format, as classes and segments."""

    def __init__(
        self,
        *,
        root: Path,
        annotations: Path | None = None,
        images: str = "",
        masks: str | None = None,
        background: bool = False,
        unannotated: bool = False,
        split: Split = "all",
        val_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        subset: Subset = "full",
    ) -> None:
        """Read the JSON; no mask is decoded. Raises DataError if it is no such file, or images or masks are missing;
        with the count and the first five.

        Args:
            root: the folder (densevit.data.datasets.base.resolve_root).
            annotations: JSON file under `root`; default: the only one, or the one that is named for the split.
            images: folder under `root` that holds the images; default: what fits the file's name, as `val2017`.
            masks: folder of the panoptic PNGs; default: the JSON's name.
            background: pixels in no segment are class 0, `background`; false ignores them.
            unannotated: read images without any annotation, too; COCO's scores count what is predicted in them.
            split: part of a single file, drawn by `val_fraction`.
            val_fraction: share of `val`, drawn by a hash of the name.
        """
        self.root = resolve_root(root, "coco")
        files = {"all": confine(self.root, str(annotations), allow_outside=False)} if annotations else None
        files = files or find_annotations(self.root)
        if split not in files and "all" not in files:
            raise DataError(
                f"{self.root}: no annotations of '{split}'; there are {', '.join(map(str, files.values()))}."
            )
        self.path = path = files.get(split) or files["all"]
        tree, self.version = read_annotations(path), file_version(path)
        categories = by_id(tree["categories"], what := f"{path}: category")
        self.background = background
        entries = [Entry(nth_class_id(0), "background", (0, 0, 0))] if background else []
        self.id_map = {id_: nth_class_id(i + background) for i, id_ in enumerate(categories)}
        names = {id_: field(one, "name", str, what) for id_, one in categories.items()}
        entries += [Entry(self.id_map[id_], names[id_], colour_of(one, path)) for id_, one in categories.items()]
        self.classes, self.palette = (table := ClassTable(entries, str(path))).names, table.palette
        things = {id_: field({"isthing": 1, **one}, "isthing", int, what) for id_, one in categories.items()}
        self.things = [self.id_map[id_] for id_, thing in things.items() if thing]
        self.segments: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        self.panoptic = isinstance(tree["annotations"][0], dict) and "segments_info" in tree["annotations"][0]
        pngs = first_folder(self.root, (str(path.parent.relative_to(self.root)), ""), masks or path.stem)
        masks_of: dict[int, Path] = {}
        what = f"{path}: annotation"
        for annotation in tree["annotations"]:
            image = field(annotation, "image_id", int, what)
            segments = annotation.get("segments_info") if self.panoptic else [annotation]
            if not isinstance(segments, list) or image in masks_of:
                raise DataError(f"{path}: image {image} has no `segments_info`, or two annotations.")
            self.segments[image] += segments
            if self.panoptic:
                masks_of[image] = pngs / (masks or path.stem) / field(annotation, "file_name", str, what)
        self._check_segments()
        listed = by_id(
            tree["images"], f"{path}: image"
        )  # the order of COCO's tools, which decides between equal scores
        listed = {id_: one for id_, one in listed.items() if unannotated or id_ in self.segments}
        if not listed:
            raise DataError(f"{path}: no annotation has the `image_id` of one of its images.")
        paths = {id_: path_in(one, path) for id_, one in listed.items()}
        first = list(islice(paths.values(), TRIED))
        folder = self.root / (images or images_folder(self.root, path, first, set(masks_of.values())))
        flat = not any((folder / file).exists() for file in first)
        self.entries: dict[str, Mapping[str, Any]] = {}
        samples = []
        for id_, file in paths.items():
            file = PurePosixPath(file.name) if flat else file
            name = file.with_suffix("").as_posix()
            if name in self.entries:
                raise DataError(f"{path}: images {self.entries[name]['id']} and {id_} have one name, {name}.")
            self.entries[name] = listed[id_]
            samples.append(SampleFiles(name, folder / file, labels=masks_of.get(id_)))
        check_inside(self.entries, path)
        what = f"coco, {path.name} in {self.root}"
        self.drawn = split not in files  # from one file
        super().__init__(pick_split(samples, split, val_fraction, what) if self.drawn else samples, subset, what)

    def scene(self, index: int) -> str:
        return "" if self.drawn else super().scene(index)

    def decode_labels(self, files: SampleFiles) -> Int64[np.ndarray, "h w"] | None:
        return self.decode_segments(files).labels(0 if self.background else IGNORE)

    def decode_classes(self, files: SampleFiles, size: tuple[int, ...]) -> Classes:
        segments = self.decode_segments(files)
        return segments.labels(0 if self.background else IGNORE), segments

    def decode_segments(self, files: SampleFiles) -> Segments:
        entries, classes, crowd = self._annotated(files.name)
        if not self.panoptic:
            return painted(self._masks(files), classes, crowd)
        assert files.labels is not None
        ids = read_panoptic_ids(files.labels)
        segments, unknown = segments_of_ids(ids, [int(one["id"]) for one in entries], classes, crowd)
        if unknown:
            raise DataError(f"{files.labels}: segment {unknown[0]} is not in the JSON.")
        return segments

    def objects(self, index: int) -> Objects | None:
        if self.panoptic:
            return None
        entries, classes, crowd = self._annotated(self.names[index])
        masks = self._masks(self.samples[index])
        stated = [field(one, "area", float, f"{self.path}: annotation") if "area" in one else None for one in entries]
        areas = np.array([m.sum() if area is None else area for area, m in zip(stated, masks, strict=True)], np.float64)
        thing = np.isin(np.array(classes, np.int64), self.things)
        return Objects(masks[thing], np.array(classes, np.int64)[thing], np.array(crowd, np.bool_)[thing], areas[thing])

    def _annotated(self, name: str) -> tuple[list[Mapping[str, Any]], list[int], list[bool]]:
        """Return the segments of an image, their classes, and which are crowds."""
        entries = self.segments.get(int(self.entries[name]["id"]), [])
        return (
            entries,
            [self.id_map[int(x["category_id"])] for x in entries],
            [bool(int(x.get("iscrowd") or 0)) for x in entries],
        )

    def _masks(self, files: SampleFiles) -> Bool[np.ndarray, "n h w"]:
        entry = self.entries[files.name]
        h, w = (field(entry, side, int, f"{self.path}: image") for side in ("height", "width"))
        if h < 1 or w < 1:
            raise DataError(f"{self.path}: image {entry['id']}: is {h} x {w} (h x w).")
        entries = self.segments.get(int(entry["id"]), [])
        names = [f"annotation {one['id']}" if "id" in one else f"segment {i}" for i, one in enumerate(entries, 1)]
        masks = [mask_of(one.get("segmentation"), (h, w), f"{self.path}: image {entry['id']} ({files.name}), {name}")
                 for one, name in zip(entries, names, strict=True)]  # fmt: skip
        return np.array(masks, np.bool_).reshape(-1, h, w)

    def _check_segments(self) -> None:
        """Raise DataError: a segment is of a category that the file does not list, or has no id of its own."""
        for image, segments in self.segments.items():
            source = f"{self.path}: image {image}, annotation"
            for one in segments:
                if field(one, "category_id", int, source) not in self.id_map:
                    raise DataError(
                        f"{self.path}: image {image} has category {one['category_id']}, but `categories` lists only "
                        f"{', '.join(map(str, sorted(self.id_map)[:10]))}{', ...' if len(self.id_map) > 10 else ''}."
                    )
                if one.get("iscrowd") is not None:
                    field(one, "iscrowd", int, source)
            if self.panoptic and 0 in by_id(segments, f"{self.path}: image {image}, segment"):
                raise DataError(f"{self.path}: image {image} has a segment 0, which is void in the PNG.")


def by_id(entries: Sequence[Any], what: str) -> dict[int, Mapping[str, Any]]:
    """Return the entries in the order of their ids. Raises DataError, which begins with `what`: one has none, or two
    the same."""
    entry_of: dict[int, Mapping[str, Any]] = {}
    for entry in entries:
        id_ = field(entry, "id", int, what)
        if id_ in entry_of:
            raise DataError(f"{what} {id_}: this id occurs more than once.")
        entry_of[id_] = entry
    return dict(sorted(entry_of.items()))


def path_in(image: Mapping[str, Any], path: Path) -> PurePosixPath:
    """Return the path that an image has in an annotation file. Raises DataError if it has none."""
    file = PurePosixPath(field(image, "file_name", str, f"{path}: image").replace("\\", "/").lstrip("/"))
    if not file.name:
        raise DataError(f"{path}: image {image['id']}: `file_name` is {image['file_name']!r}, not a file.")
    return file


def find_annotations(root: Path) -> dict[str, Path]:
    """Map each split to the annotation file of a folder; `all` where there is one only. Raises DataError: none, or
    several of a split."""
    paths = annotation_files(root)
    if len(paths) == 1:
        return {"all": paths[0]}
    words = [re.findall("[a-z]+", str(path.relative_to(root)).lower()) for path in paths]
    splits = [next((SPLITS[word] for word in matches if word in SPLITS), "") for matches in words]
    matches = dict(zip(splits, paths, strict=True))
    if not matches or "" in matches or len(matches) < len(paths):
        there = ", ".join(str(path.relative_to(root)) for path in paths) or "none"
        raise DataError(f"{root}: say which JSON holds the annotations by `annotations`; COCO files there: {there}.")
    return matches


def annotation_files(root: Path) -> list[Path]:
    """Return the JSON files of a folder that begin as COCO's annotations do."""

    def begins(path: Path) -> bool:
        with open(path, "rb") as file:
            return FIRST_KEY.match(file.read(256)) is not None

    patterns = ("*.json", "annotations/*.json", *(f"{folder}/*.json" for folder in SPLITS))
    return [path for pattern in patterns for path in glob_visible(root, pattern) if begins(path)]


def images_folder(root: Path, annotations: Path, first: Sequence[PurePosixPath], masks: Container[Path]) -> str:
    """Return the folder of images of a file: `val2017` for `panoptic_val2017.json`. `first`: some of the images,
    which may be there without the folders or the address that the file has before their names. `masks`: the panoptic
    PNGs, which may have the names of the images."""
    name, beside = annotations.stem.rpartition("_")[2], str(annotations.parent.relative_to(root))
    choices = (beside, name, f"images/{name}", IMAGES.get(name, ""), "images", "")
    for files in (first, [PurePosixPath(file.name) for file in first]):
        for choice in choices:
            if any((one := root / choice / file) not in masks and one.is_file() for file in files):
                return choice
    return next((choice for choice in choices[1:-1] if choice and (root / choice).is_dir()), name)


def colour_of(category: Mapping[str, Any], path: Path) -> Colour | None:
    """Return the colour of a panoptic category; None where the file has none. Raises DataError if it is no colour."""
    if category.get("color") is None:
        return None
    try:
        red, green, blue = category["color"]
        return int(red), int(green), int(blue)
    except (TypeError, ValueError):
        raise DataError(f"{path}: category {category['id']}: `color` is not [red, green, blue].") from None


def painted(masks: Bool[np.ndarray, "n h w"], classes: Sequence[int], crowd: Sequence[bool]) -> Segments:
    """Return the masks as segments; where some overlap, the smallest is on top."""
    ids = np.zeros(masks.shape[1:], np.int32)
    for row in np.argsort(-masks.sum((1, 2)), kind="stable"):
        ids[masks[row]] = row + 1
    return Segments(ids, np.array(classes, np.int64), np.array(crowd, np.bool_))
