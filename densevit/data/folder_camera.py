"""The cameras of a folder of one's own: one JSON file for all images, or with one per name."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from densevit.data.manifest import CAMERA, Row
from densevit.data.matching import composed
from densevit.data.pairs import is_camera, pinhole
from densevit.data.paths import first_five
from densevit.errors import DataError

log = logging.getLogger(__name__)


def with_intrinsics(rows: list[Row], file: Path) -> list[Row]:
    """Rows with the cameras of a JSON file, where it is there; a table's own stay.

    Raises:
        DataError: the file is not of the form that `Folder` says.
    """
    if not file.is_file():
        return rows
    try:
        tree = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: is not readable JSON ({error}).") from error
    per_name = isinstance(tree, dict) and not set(CAMERA) <= set(tree)
    cameras = {composed(name): _camera(file, value) for name, value in tree.items()} if per_name else {}
    shared = None if per_name else _camera(file, tree)
    lost = [row.name for row in rows if per_name and row.name not in cameras]
    if lost:
        log.warning("%s: no intrinsics for %d of %d samples:%s", file, len(lost), len(rows), first_five(lost))
    return [r if r.intrinsics is not None else replace(r, intrinsics=cameras.get(r.name, shared)) for r in rows]


def _camera(file: Path, value: Any) -> Float64[np.ndarray, "3 3"]:
    """A camera as JSON has it: fx, fy, cx, cy by name, or three rows."""
    try:
        matrix = pinhole(*(float(value[key]) for key in CAMERA)) if isinstance(value, dict) else np.array(value, float)
    except (KeyError, TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape != (3, 3) or not is_camera(matrix):
        raise DataError(
            f"{file}: expected fx, fy, cx, cy or a 3 x 3 matrix, in pixels and fx and fy over 0, got {str(value)[:80]}."
        )
    return matrix
