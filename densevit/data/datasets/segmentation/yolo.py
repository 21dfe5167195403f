"""`yolo`: label files of YOLO segmentation, a line per object: its class and the corners of its outline.

    data.yaml                        names: [cat, dog] or {0: cat, 1: dog}; train: images/train; path: .
    images/train/kitchen_0001.jpg
    labels/train/kitchen_0001.txt    0 0.51 0.20 0.63 0.21 0.60 0.44      x y x y ..., as shares of width and height

The format of Ultralytics' segmentation data sets. An image without a label file, or with an empty one, has no object.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from jaxtyping import Float64, Int64

from densevit.config.yaml_document import YamlDocument
from densevit.data.datasets.base import DATASETS, Classes, FileDataset, resolve_root
from densevit.data.index.matching import IMAGE_SUFFIXES
from densevit.data.index.paths import Listing, SampleFiles, Subset, confine, glob_visible
from densevit.data.io.readers import image_size
from densevit.data.labels.class_table import ClassTable, Entry
from densevit.errors import ConfigError, DataError
from densevit.ops.segments import Segments
from densevit.structures import IGNORE, Size
from densevit.utils.json_files import read_text

Split = Literal["train", "val", "test"]
Outline = tuple[int, Float64[np.ndarray, "_ 2"]]
"""Class, and the corners as shares of width and height."""


@DATASETS.register("yolo")
class Yolo(FileDataset):
    """Outlines of objects as classes of pixels and as segments; where some overlap, the smaller object is on top."""

    def __init__(
        self,
        *,
        root: Path,
        file: Path = Path("data.yaml"),
        split: Split = "train",
        background: bool = True,
        subset: Subset = "full",
        allow_outside_root: bool = False,
    ) -> None:
        """List the images; no label file is read. Raises DataError: no file, classes or images.

        Args:
            root: the folder (densevit.data.datasets.base.resolve_root).
            file: under `root`: names of the classes, and folders or lists of the splits' images.
            background: pixels in no object are class 0, `background`; false ignores them.
            subset: `available` takes the images that are there.
            allow_outside_root: `file` may name folders outside of the root.
        """
        self.root = resolve_root(root, "yolo")
        tree = read_yaml(self.root / file)
        names = class_names(tree, self.root / file)
        entries = [Entry(i, name) for i, name in enumerate(("background", *names) if background else names)]
        table = ClassTable(entries, str(self.root / file))
        self.classes = table.names
        self.things = self.positions = table.things[int(background) :]  # of the numbers in label files
        self.empty = 0 if background else IGNORE
        stated = str(tree.get("path") or ".")  # often a path on the machine that wrote the file
        base = (
            confine(self.root, stated, allow_outside=allow_outside_root) if (self.root / stated).exists() else self.root
        )
        stated_images = tree.get(split)
        if not stated_images or not isinstance(stated_images, str | list):
            raise DataError(f"{self.root / file}: names no images of '{split}'.")
        listed = [stated_images] if isinstance(stated_images, str) else list(stated_images)
        folders = [confine(base, below(base, str(entry)), allow_outside=allow_outside_root) for entry in listed]
        images = [image for each in folders for image in images_of(each)]
        names_of = [image.relative_to(base) if image.is_relative_to(base) else Path(image.name) for image in images]
        samples = [SampleFiles(str(name.with_suffix("")), image) for name, image in zip(names_of, images, strict=True)]
        super().__init__(samples, subset, f"yolo '{split}' in {self.root}")
        there = Listing()
        self.outlines = [path if (path := label_path(files.image)) in there else None for files in self.samples]
        self.outline_of = {files.image: path for files, path in zip(self.samples, self.outlines, strict=True)}
        if not any(self.outlines):
            raise DataError(
                f"{self.root}: none of {len(images):,} images has a label file, as {label_path(images[0])}."
            )

    def scene(self, index: int) -> str:
        return ""  # folders sort images by split, or not at all

    def files(self, index: int) -> Mapping[str, Path]:
        outline = self.outlines[index]
        return {**super().files(index), **({} if outline is None else {"labels": outline})}

    def label_map(self, index: int) -> Int64[np.ndarray, "h w"]:
        return self.segments(self.outlines[index], image_size(self.samples[index].image)).labels(self.empty)

    def decode_classes(self, files: SampleFiles, size: tuple[int, ...]) -> Classes:
        segments = self.segments(self.outline_of[files.image], (size[0], size[1]))
        return segments.labels(self.empty), segments

    def segments(self, path: Path | None, size: Size) -> Segments:
        outlines = [] if path is None else read_outlines(path, len(self.positions))
        return paint([(self.positions[number], corners) for number, corners in outlines], size)


def read_yaml(path: Path) -> Mapping[str, Any]:
    """Raise DataError if it is not there, or no YAML."""
    try:
        return YamlDocument.read(path).tree
    except ConfigError as error:
        raise DataError(str(error)) from None


def class_names(tree: Mapping[str, Any], path: Path) -> tuple[str, ...]:
    """Raise DataError if `names` is missing, or does not go from 0 on."""
    names = tree.get("names")
    if isinstance(names, Mapping):
        if sorted(names) != sorted(str(i) for i in range(len(names))):
            raise DataError(f"{path}: names: ids go from 0 on, got {', '.join(map(str, names))}.")
        names = [names[str(i)] for i in range(len(names))]
    if not isinstance(names, list) or not names:
        raise DataError(f"{path}: names: a list of class names, or id: name.")
    return tuple(map(str, names))


def below(base: Path, path: str) -> str:
    """Return the path without the `../` that Roboflow writes for folders beside the file (Ultralytics does the
    same)."""
    inside = path.removeprefix("../")
    return inside if not (base / path).exists() and (base / inside).exists() else path


def images_of(source: Path) -> list[Path]:
    """Return the images of a folder, folders in it included, or of a list with one path a line. Raises DataError if
    neither is there."""
    if source.is_file():
        lines = [line.strip() for line in read_text(source).splitlines() if line.strip()]
        return [source.parent / line for line in lines]
    images = [path for path in glob_visible(source, "**/*") if path.suffix.lower() in IMAGE_SUFFIXES]
    if not images:
        raise DataError(f"{source}: no images, nor a list of them.")
    return images


def label_path(image: Path) -> Path:
    """Return the label file of an image: `images` in its path becomes `labels`, as the format has it."""
    folders = list(image.with_suffix(".txt").parts)
    positions = [i for i, folder in enumerate(folders) if folder == "images"]
    if positions:
        folders[positions[-1]] = "labels"
    return Path(*folders)


def read_outlines(path: Path, classes: int) -> list[Outline]:
    """Raise DataError naming the line: a box instead of an outline, a class that has no name, corners outside the
    image."""
    outlines = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            values = [float(word) for word in words]
        except ValueError:
            raise DataError(f"{path}:{number}: not all of it is numbers.") from None
        if len(values) == 5:
            raise DataError(f"{path}:{number}: a box; classes of pixels need outlines, class x y x y x y ...")
        if len(values) < 7 or len(values) % 2 == 0:
            raise DataError(f"{path}:{number}: {len(values)} numbers; an outline is class x y x y x y ...")
        if not 0 <= values[0] < classes or values[0] % 1:
            raise DataError(f"{path}:{number}: class {values[0]:g}; there are 0 to {classes - 1}.")
        corners = np.array(values[1:]).reshape(-1, 2)
        outside = corners[~(np.abs(corners - 0.5) <= 0.51)]  # NaN, too
        if outside.size:
            raise DataError(f"{path}:{number}: corners are shares of width and height, 0 to 1, got {outside[0]:g}.")
        outlines.append((int(values[0]), corners))
    return outlines


def paint(outlines: Sequence[Outline], size: Size) -> Segments:
    """Return the outlines as segments; where some overlap, the smallest is on top."""
    ids = np.zeros(size, np.int32)
    pixels = [np.rint(corners * size[::-1]).astype(np.int32) for _, corners in outlines]
    for number, corners in sorted(enumerate(pixels, 1), key=lambda pair: -cv2.contourArea(pair[1])):
        cv2.fillPoly(ids, [corners], number)
    classes = np.array([number for number, _ in outlines], np.int64)
    return Segments(ids, classes, np.zeros(len(classes), np.bool_))
