"""The objects of an image as a table: class, score and box, with metres where the model gives metric depth."""

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from densevit.inference.writers.base import DEPTH_FORMATS, PredictedMap
from densevit.inference.writers.segments import ObjectWriter, box_of, metres_beside, objects_of
from densevit.model_card import HeadSpec
from densevit.ops.calibration import widths
from densevit.ops.segments.measure import Measured, measure
from densevit.utils.atomic_io import write_text

COLUMNS = ("image", "object", "class", "score", "area", "x", "y", "w", "h", *(f"{name}_m" for name in Measured._fields))


@DEPTH_FORMATS.register("objects")
class ObjectTable(ObjectWriter):
    """JSON of the objects, and objects.csv for all images: class, score, box; with metric depth its median in metres,
    its interval where that is calibrated, and width and height of the box at that depth where the camera is known."""

    suffix = ".objects.json"
    beside = ("metric",)

    def write(self, path: Path, frame: PredictedMap) -> int:
        rows = [
            {
                "object": number, "class": frame.spec.classes[label], "score": round(score, 6), **box_of(mask),
                **{f"{name}_m": value and round(value, 4) for name, value in metres_of(frame, mask)._asdict().items()},
            }
            for number, (mask, label, score) in enumerate(objects_of(frame, self.threshold), 1)
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


def metres_of(frame: PredictedMap, mask: np.ndarray) -> Measured:
    """Measure an object by the depth head beside; nothing is known where there is none."""
    depth, metres = frame.depth, metres_beside(frame)
    if depth is None or metres is None:
        return Measured()
    spread, camera = None, frame.camera
    if depth.spec.interval is not None and depth.uncertainty is not None:
        spread = widths(metres, depth.uncertainty, depth.spec.interval)
    matrix: Any = None if camera is None else frame.matrix()
    return measure(mask, metres, spread, matrix)
