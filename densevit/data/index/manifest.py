"""A list of samples as a table: CSV with a header, or JSONL with one object a line.

Columns: image (required), depth, labels, normals, segments, name, split, fx, fy, cx, cy, time, tx, ty, tz, qx, qy, qz,
qw. Paths are relative to the table's root and may not lead out of it; intrinsics are in pixels of that image, times in
seconds; the pose is from camera to world, in metres (`densevit.data.recordings.poses`).
"""

import csv
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from jaxtyping import Float64

from densevit.data.index.paths import PATHS, SampleFiles, confine
from densevit.data.recordings.poses import QUATERNION, Pose, pose_of_cells
from densevit.errors import DataError, located
from densevit.ops.geometry import is_camera, pinhole
from densevit.registry import did_you_mean
from densevit.utils.json_files import parse_json

CAMERA = ("fx", "fy", "cx", "cy")
COLUMNS = (*PATHS, "name", "split", *CAMERA, "time", *QUATERNION)


def read_manifest(path: Path, root: Path, *, allow_outside: bool) -> list[SampleFiles]:
    """Read the table; the files it names are not opened. Raises DataError naming the line: an unknown column, no
    image, a path that leads out, a number that is none."""
    rows = []
    for number, cells in read_table(path):
        with located(f"{path}:{number}"):
            rows.append(_row(cells, root, allow_outside))
    if not rows:
        raise DataError(f"{path}: no samples in it.")
    return rows


def read_table(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    """Return (line number, cells) of every line of a CSV or JSONL that is not blank. Raises DataError if it cannot be
    read; naming the line that is no object."""
    try:
        return list(_records(path))
    except DataError:
        raise
    except (OSError, ValueError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({why}).") from error


def _records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        if path.suffix.lower() in (".jsonl", ".ndjson"):
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _object(line, f"{path}:{number}")
        else:
            reader = csv.DictReader(file, restkey="more cells than columns", strict=True)
            reader.fieldnames = [column.strip() for column in reader.fieldnames or ()]
            for record in reader:
                yield reader.line_num, record


def _object(line: str, source: str) -> Mapping[str, Any]:
    cells = parse_json(line, source)
    if not isinstance(cells, dict):
        raise DataError(f'{source}: expected an object such as {{"image": ...}}, got {line.strip()[:60]}.')
    return cells


def _row(cells: Mapping[str, Any], root: Path, allow_outside: bool) -> SampleFiles:
    for column in cells:
        if column not in COLUMNS:
            hint = " Commas separate columns." if ";" in column else did_you_mean(str(column), COLUMNS)
            raise DataError(f"no such column '{column}'.{hint}")
    filled = {k: str(v).strip() for k, v in cells.items() if v is not None and str(v).strip()}
    if "image" not in filled:
        raise DataError("no image; the column 'image' is required.")
    paths: dict[str, Any] = {k: confine(root, filled[k], allow_outside=allow_outside) for k in PATHS if k in filled}
    name = filled.get("name") or _name(root, paths["image"])
    confine(root, name, allow_outside=False)  # exports write files of this name
    return SampleFiles(
        name,
        **paths,
        intrinsics=camera_of(filled),
        pose=None if filled.keys().isdisjoint(QUATERNION) else _pose(filled),
        time=_time(filled["time"]) if "time" in filled else None,
        split=filled.get("split"),
    )


def _name(root: Path, image: Path) -> str:
    """Return a sample's name: its image's path under the root; of one elsewhere the whole path, made relative."""
    path = image.relative_to(root) if image.is_relative_to(root) else image
    names = PurePosixPath(os.path.normpath(path.with_suffix(""))).parts
    return "/".join(name for name in names if name not in (path.anchor, ".."))


def _pose(cells: Mapping[str, str]) -> Pose:
    try:
        return pose_of_cells(cells)
    except (KeyError, ValueError):
        came = {key: cells[key] for key in QUATERNION if key in cells}
        raise DataError(
            f"a pose needs the numbers {', '.join(QUATERNION)}, and a quaternion over 0; got {came}."
        ) from None


def _time(text: str) -> float:
    with suppress(ValueError):
        if np.isfinite(time := float(text)):
            return time
    raise DataError(f"time is seconds, got {text!r}.")


def camera_of(cells: Mapping[str, str]) -> Float64[np.ndarray, "3 3"] | None:
    present = [key for key in CAMERA if key in cells]
    if not present:
        return None
    try:
        matrix = pinhole(*(float(cells[key]) for key in CAMERA))
    except (KeyError, ValueError):
        matrix = np.full((3, 3), np.nan)
    if not is_camera(matrix):
        came = {key: cells[key] for key in present}
        raise DataError(f"intrinsics need four numbers fx, fy, cx, cy, in pixels and fx and fy over 0; got {came}.")
    return matrix
