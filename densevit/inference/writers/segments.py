"""Segments as files: COCO's panoptic maps and results, YOLO's outlines, overlays, crops. h x w pixels."""

import csv
import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar

import cv2
import numpy as np
from jaxtyping import Bool, Float
from pydantic import Field

from densevit.data.index.paths import file_version, tell_apart
from densevit.data.io.coco import encode_mask, encode_panoptic_ids, read_annotations
from densevit.data.io.images import Raster
from densevit.data.io.writers import encode
from densevit.errors import ConfigError
from densevit.inference.writers.base import DEPTH_FORMATS, MapWriter, PredictedMap, with_text
from densevit.model_card import HeadSpec, Kind
from densevit.ops.calibration import widths
from densevit.ops.segments import (
    InstancePrediction,
    ObjectDepth,
    PanopticPrediction,
    captions,
    draw_segments,
    masks_of,
    measure,
    median_depths,
    write_names,
)
from densevit.structures import IGNORE
from densevit.utils.atomic_io import write_text

Score = Annotated[float, Field(ge=0, le=1, description="of instances, below which they are left out")]
Annotations = Annotated[
    Path | None, Field(description="JSON of the data set in COCO's format: its ids of images and categories are taken.")
]
INFO = "segments_info"  # the text chunk of a PNG
SURE = 0.5


class SegmentWriter(MapWriter):
    """A format for segments."""

    kinds: ClassVar[tuple[Kind, ...]] = ("panoptic", "instances")

    def name_of(self, folder: Path, path: Path) -> str:
        """Return the name of the image that a file is of."""
        return path.relative_to(folder).as_posix().removesuffix(self.suffix)


class ObjectWriter(SegmentWriter):
    """A format for single objects."""

    def __init__(self, *, threshold: Score = SURE) -> None:
        self.threshold = threshold


class CocoWriter(SegmentWriter):
    """A format with one JSON for all images, which is joined of their files.

    An image's id is its name, as a number where it is one; categories are counted from 1.
    """

    def __init__(self, *, annotations: Annotations = None) -> None:
        self.annotations = None if annotations is None else str(annotations)

    def check(self, spec: HeadSpec) -> None:
        """Raise ConfigError if the data set's categories lack a class; DataError if its JSON cannot be read."""
        super().check(spec)
        if self.annotations is not None:
            categories = known_ids(self.annotations)[1]
            if missing := [name for name in spec.classes if name not in categories]:
                raise ConfigError(f"{self.annotations}: no category '{missing[0]}', which the model predicts.")

    def category(self, name: str, index: int) -> int:
        return index + 1 if self.annotations is None else known_ids(self.annotations)[1][name]

    def image_id(self, name: str) -> int | str:
        images = {} if self.annotations is None else known_ids(self.annotations)[0]
        stem = PurePosixPath(name).name
        return images.get(name, images.get(stem, int(stem) if stem.isdecimal() else name))

    def image_ids(self, names: Sequence[str]) -> list[int | str]:
        """Return the ids of images; those that folders alone tell apart have their whole names."""
        return tell_apart([self.image_id(name) for name in names], names)

    def categories(self, spec: HeadSpec) -> list[dict[str, Any]]:
        return [{"id": self.category(name, i), "name": name, "isthing": int(i in spec.things)}
                for i, name in enumerate(spec.classes)]  # fmt: skip


def known_ids(path: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return the ids of the images, by name without suffix, and of the categories of an annotation file."""
    file = Path(path).absolute()
    return _known_ids(file, file_version(file) if file.is_file() else "")


@lru_cache(maxsize=4)
def _known_ids(path: Path, version: str) -> tuple[Mapping[str, int], Mapping[str, int]]:
    tree = read_annotations(path)
    images = {PurePosixPath(str(one["file_name"])).with_suffix("").as_posix(): int(one["id"]) for one in tree["images"]}
    return images, {str(one["name"]): int(one["id"]) for one in tree["categories"]}


@DEPTH_FORMATS.register("panoptic")
class PanopticPng(CocoWriter):
    """COCO's panoptic PNG (id = R + 256 G + 65536 B, 0 = void), and panoptic.json for all images."""

    suffix = ".panoptic.png"
    kinds = ("panoptic",)

    def encode(self, frame: PredictedMap) -> bytes:
        result = frame.segments
        assert isinstance(result, PanopticPrediction)
        info = [
            {"id": row + 1, "category_id": self.category(frame.spec.classes[int(label)], int(label)),
             "isthing": int(thing), "score": round(float(score), 6), **box_of(result.segments == row + 1), "iscrowd": 0}
            for row, (label, thing, score) in enumerate(
                zip(result.classes, result.is_thing, result.scores, strict=True))
        ]  # fmt: skip
        return with_text(encode_panoptic_ids(result.segments), {INFO: json.dumps(info)})

    def write_list(self, folder: Path, spec: HeadSpec, paths: Iterable[Path]) -> None:
        images, annotations, paths = [], [], list(paths)
        names = [self.name_of(folder, path) for path in paths]
        for path, name, image in zip(paths, names, self.image_ids(names), strict=True):
            raster = Raster.open(path)
            h, w = raster.size
            images.append({"id": image, "file_name": name, "height": h, "width": w})
            file = path.relative_to(folder).as_posix()
            annotations.append({"image_id": image, "file_name": file,
                                "segments_info": json.loads(raster.text(INFO) or "[]")})  # fmt: skip
        tree = {"images": images, "annotations": annotations, "categories": self.categories(spec)}
        write_text(folder / "panoptic.json", json.dumps(tree))


@DEPTH_FORMATS.register("coco")
class CocoResults(CocoWriter):
    """COCO's results, masks as run lengths: a JSON for each image, and instances.json for all of them. They have no
    boxes, by which COCO's tools would tell small masks from large ones."""

    suffix = ".instances.json"

    def write(self, path: Path, frame: PredictedMap) -> int:
        image = self.image_id(path.name.removesuffix(self.suffix))
        rows = [
            {"image_id": image, "category_id": self.category(name := frame.spec.classes[label], label),
             "category_name": name, "segmentation": encode_mask(mask), "score": round(score, 6)}
            for _, mask, label, score in objects_of(frame, 0.0)
        ]  # fmt: skip
        write_text(path, json.dumps(rows))
        return 0

    def write_list(self, folder: Path, spec: HeadSpec, paths: Iterable[Path]) -> None:
        rows: list[dict[str, Any]] = []
        paths = list(paths)
        for path, image in zip(paths, self.image_ids([self.name_of(folder, path) for path in paths]), strict=True):
            rows += [row | {"image_id": image} for row in json.loads(path.read_text())]
        write_text(folder / "instances.json", json.dumps(rows))


@DEPTH_FORMATS.register("yolo")
class YoloOutlines(ObjectWriter):
    """YOLO's label file: a line for each object, its class and the corners of its outline as shares of the sides."""

    suffix = ".txt"

    def encode(self, frame: PredictedMap) -> bytes:
        lines = []
        for _, mask, label, _ in objects_of(frame, self.threshold):
            # A quarter of a pixel, so that readers find the same pixel whether they round or truncate.
            corners = (outline(mask) + 0.25) / mask.shape[::-1]
            number = label - (label > IGNORE)  # no class has that position
            lines.append(f"{number} " + " ".join(f"{value:.6f}" for value in corners.ravel()))
        return "".join(f"{line}\n" for line in lines).encode()


@DEPTH_FORMATS.register("segments")
class SegmentOverlay(SegmentWriter):
    """The segments over the image with their names and scores, and with metric depth the median distance of each
    object, as 8-bit RGB PNG."""

    suffix = ".segments.png"
    beside = ("metric",)

    def __init__(self, *, opacity: Annotated[float, Field(gt=0, le=1)] = 0.55, names: bool = True) -> None:
        """
        Args:
            names: write name, score and distance of each segment.
        """
        self.opacity, self.names = opacity, names

    def encode(self, frame: PredictedMap) -> bytes:
        segments = frame.segments
        pixels = draw_segments(frame.image, segments, frame.spec, self.opacity)
        if self.names:
            metres = median_depths(segments, metres_beside(frame))
            pixels = write_names(pixels, segments, captions(segments, frame.spec, metres))
        return encode(".png", pixels)


@DEPTH_FORMATS.register("crops")
class Crops(ObjectWriter):
    """A ZIP of an RGBA PNG for each object: the window of the image around it, transparent outside of it."""

    suffix = ".crops.zip"

    def encode(self, frame: PredictedMap) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:  # stored: PNGs do not shrink
            for number, mask, label, score in objects_of(frame, self.threshold):
                x, y, w, h = box_of(mask)["bbox"]
                pixels = np.dstack([frame.image, np.where(mask, np.uint8(255), np.uint8(0))])[y : y + h, x : x + w]
                name = "".join(c if c.isalnum() else "_" for c in frame.spec.classes[label])
                png = cv2.imencode(".png", cv2.cvtColor(pixels, cv2.COLOR_RGBA2BGRA))[1].tobytes()
                archive.writestr(zipfile.ZipInfo(f"{number:03d}_{name}_{score:.2f}.png"), png)
        return buffer.getvalue()


def objects_of(frame: PredictedMap, threshold: float) -> list[tuple[int, Bool[np.ndarray, "h w"], int, float]]:
    """Return the number, mask, class and score of each object: the instances of a score from `threshold` on, or the
    things of a map. Numbers are those of all segments, as the panoptic PNG has them."""
    segments = frame.segments
    selected = segments.scores >= threshold if isinstance(segments, InstancePrediction) else segments.is_thing
    rows = zip(masks_of(segments), segments.classes.tolist(), segments.scores.tolist(), selected, strict=True)
    numbered = ((number, *row) for number, row in enumerate(rows, 1))
    return [(number, mask, label, score) for number, mask, label, score, there in numbered if there and mask.any()]


def metres_beside(frame: PredictedMap) -> Float[np.ndarray, "h w"] | None:
    """Return the map of the metric head beside, NaN where it has no value."""
    return None if frame.depth is None else np.where(frame.depth.valid(), frame.depth.values, np.nan)


def box_of(mask: Bool[np.ndarray, "h w"]) -> dict[str, Any]:
    """Return the area and box (x, y, width, height) as COCO's files have them."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not rows.size:
        return {"area": 0, "bbox": [0, 0, 0, 0]}
    x, y = int(columns[0]), int(rows[0])
    return {"area": int(mask.sum()), "bbox": [x, y, int(columns[-1]) - x + 1, int(rows[-1]) - y + 1]}


def outline(mask: Bool[np.ndarray, "h w"]) -> np.ndarray:
    """Return the corners x, y of the outline in pixels; the parts of a mask one after the other, joined by lines
    without width."""
    contours, _ = cv2.findContours(mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    closed = [np.concatenate([contour[:, 0], contour[:1, 0]]) for contour in sorted(contours, key=len, reverse=True)]
    corners = np.concatenate(closed)
    return np.concatenate([corners, np.repeat(corners[-1:], max(0, 3 - len(corners)), 0)])


METRES = tuple(f"{name}_m" for name in ObjectDepth._fields)
COLUMNS = ("image", "object", "class", "score", "area", "x", "y", "w", "h", *METRES)


@DEPTH_FORMATS.register("objects")
class ObjectTable(ObjectWriter):
    """JSON of the objects, and objects.csv for all images: class, score, box; with metric depth its median in metres,
    its interval where that is calibrated, and width and height of the box at that depth where the camera is known."""

    suffix = ".objects.json"
    beside = ("metric",)
    uses_camera = True

    def write(self, path: Path, frame: PredictedMap) -> int:
        rows = [
            {
                "object": number, "class": frame.spec.classes[label], "score": round(score, 6), **box_of(mask),
                **{f"{name}_m": value and round(value, 4) for name, value in metres_of(frame, mask)._asdict().items()},
            }
            for number, mask, label, score in objects_of(frame, self.threshold)
        ]  # fmt: skip
        write_text(path, json.dumps(rows, indent=1) + "\n")
        return 0

    def write_list(self, folder: Path, spec: HeadSpec, paths: Iterable[Path]) -> None:
        buffer = io.StringIO()
        table = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
        table.writeheader()
        for path in paths:
            for row in json.loads(path.read_text()):
                box = dict(zip("xywh", row.pop("bbox"), strict=True))
                table.writerow({"image": self.name_of(folder, path), **row, **box})
        write_text(folder / "objects.csv", buffer.getvalue())


def metres_of(frame: PredictedMap, mask: np.ndarray) -> ObjectDepth:
    """Measure an object by the depth head beside; nothing is known where there is none."""
    depth, metres = frame.depth, metres_beside(frame)
    if depth is None or metres is None:
        return ObjectDepth()
    spread, camera = None, frame.camera
    if depth.spec.interval is not None and depth.uncertainty is not None:
        spread = widths(metres, depth.uncertainty, depth.spec.interval)
    matrix: Any = None if camera is None else frame.matrix()
    return measure(mask, metres, spread, matrix)
