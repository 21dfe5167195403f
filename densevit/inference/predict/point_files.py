"""Measured points for the images of an export: CSV, PNG of LiDAR depth, or PLY with a pose."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from densevit.data.datasets.base import read_numbers
from densevit.data.index.manifest import read_table
from densevit.data.io.images import read_bytes
from densevit.data.io.readers import NOT_MEASURED, read_depth
from densevit.data.recordings.distortion import PinholeView
from densevit.data.recordings.poses import Pose, check_pose
from densevit.errors import DataError
from densevit.inference.predict.cameras import rows_name, size_of
from densevit.inference.predict.inputs import Item, absolute
from densevit.ops.points import MeasuredPoints
from densevit.structures import Size

SUFFIXES = (".csv", ".png", ".ply")
COLUMNS = ("u", "v", "depth")


@dataclass(frozen=True)
class PointFiles:
    """Where the measured points of each image are.

    Attributes:
        path: a file for one image; a CSV with a column `image` (a path relative to the table's folder) or `name` (of
            the output) for several; or a folder that holds NAME.csv, NAME.png or NAME.ply for each.
        scale: of PNG, stored units per metre; None: the file says it (`depth_scale`).
        pose: of PLY, a text file of 12 or 16 numbers, row by row: from the points' frame to the camera's (right, down,
            forward, metres); None where the points are in the camera's frame.
    """

    path: Path
    scale: float | None = None
    pose: Path | None = None

    def check(self, items: Sequence[Item]) -> None:
        """Read the points of every image. Raises DataError: an image without points, points that are no numbers or lie
        outside of their image."""
        for item in items:
            if (size := size_of(item)) is not None:
                self.read(item, size, single=len(items) == 1)

    def read(self, item: Item, size: Size, single: bool) -> MeasuredPoints:
        """Return `single`: it is the only image, so that a file needs not name it."""
        path = self.file(item)
        if path.suffix.lower() == ".ply":
            return from_cloud(path, item, size, self.pose)
        is_table = path.suffix.lower() == ".csv"
        points = from_table(path, item, size, single) if is_table else from_map(path, size, self.scale)
        return points if (view := item.view(size)) is None else undistorted(points, view, size, path)

    def file(self, item: Item) -> Path:
        if not self.path.is_dir():
            return self.path
        tried = [self.path / f"{item.name}{suffix}" for suffix in SUFFIXES]
        existing = next((path for path in tried if path.is_file()), None)
        if existing is None:
            raise DataError(f"{item.source}: no points; looked for {', '.join(map(str, tried))}.")
        return existing


def from_table(path: Path, item: Item, size: Size, single: bool) -> MeasuredPoints:
    """Return the columns u, v (pixels, the centre of the first one is 0, 0), depth and, optionally, noise (metres)."""
    table = list(read_table(path))
    rows = [(number, cells) for number, cells in table if single or image_of(cells, path) in (item.source, item.name)]
    if not rows:
        names = (image_of(cells, path) for _, cells in table)
        hint = "" if single else f" {rows_name((str(name) for name in names if name), item)}"
        raise DataError(f"{path}: no points of {item.source}.{hint}")
    h, w = size
    points = []
    for number, cells in rows:
        try:
            u, v, depth = (float(str(cells[column])) for column in COLUMNS)
            noise = float(str(cells.get("noise") or 0))
        except (KeyError, ValueError):
            raise DataError(f"{path}:{number}: needs numbers u, v and depth; got {dict(cells)}.") from None
        if not (np.isfinite([u, v, depth, noise]).all() and depth > 0 and noise >= 0):
            raise DataError(f"{path}:{number}: u {u:g}, v {v:g}, depth {depth:g}: a point has a depth over 0 metres.")
        if not (-0.5 <= u < w - 0.5 and -0.5 <= v < h - 0.5):
            raise DataError(f"{path}:{number}: u {u:g}, v {v:g} lies outside {item.source} of {h}x{w}.")
        points.append((u, v, depth, noise))
    columns = np.array(points).T
    return MeasuredPoints(columns[0], columns[1], columns[2], columns[3] if columns[3].any() else None)


def undistorted(points: MeasuredPoints, view: PinholeView, size: Size, path: Path) -> MeasuredPoints:
    """Return points of the image as it was taken at the pixels of the undistorted one, those outside left out."""
    u, v = view.pixels(np.stack([points.u, points.v], 1)).T
    inside = (u >= -0.5) & (u < size[1] - 0.5) & (v >= -0.5) & (v < size[0] - 0.5)
    if not inside.any():
        raise DataError(f"{path}: none of its {len(u)} points lies in the undistorted image.")
    noise = None if points.noise is None else points.noise[inside]
    return MeasuredPoints(u[inside], v[inside], points.depth[inside], noise)


def image_of(cells: Mapping[str, Any], table: Path) -> Path | str | None:
    """Return the image or name that a row is of."""
    image = cells.get("image")
    return absolute(table.parent / str(image)) if image else cells.get("name")


def from_map(path: Path, size: Size, scale: float | None) -> MeasuredPoints:
    depth = read_depth(path, scale, invalid=NOT_MEASURED)
    if depth.shape != size:
        raise DataError(f"{path}: is {depth.shape[0]}x{depth.shape[1]}, and its image {size[0]}x{size[1]}.")
    v, u = np.nonzero(depth)
    if not len(u):
        raise DataError(f"{path}: holds no depth.")
    return MeasuredPoints(u.astype(np.float64), v.astype(np.float64), depth[v, u].astype(np.float64))


def from_cloud(path: Path, item: Item, size: Size, pose: Path | None) -> MeasuredPoints:
    """Return the points that the camera sees; of those in one pixel the nearest."""
    if item.intrinsics is None:
        raise DataError(f"{path}: points of a cloud need the camera of {item.source}: --intrinsics, --focal or --fov.")
    points = read_ply_points(path)
    if not np.isfinite(points).all():
        raise DataError(f"{path}: {int((~np.isfinite(points)).any(1).sum())} points are not finite.")
    if pose is not None:
        matrix = read_pose(pose)
        points = points @ matrix[:3, :3].T + matrix[:3, 3]
    points = points[points[:, 2] > 0]
    projected = points @ item.intrinsics.matrix(size).T
    u, v = (np.rint(projected[:, axis] / projected[:, 2]) for axis in (0, 1))
    inside = (u >= 0) & (u < size[1]) & (v >= 0) & (v < size[0])
    if not inside.any():
        raise DataError(f"{path}: none of its points lies in {item.source}; is the pose from points to camera?")
    u, v, depth = u[inside], v[inside], points[inside, 2]
    order = np.argsort(depth, kind="stable")
    _, first = np.unique(v[order] * size[1] + u[order], return_index=True)
    seen = order[first]
    return MeasuredPoints(u[seen], v[seen], depth[seen])


def read_pose(path: Path) -> Pose:
    try:
        values = read_numbers(path, 16)
    except DataError:
        values = [*read_numbers(path, 12), 0.0, 0.0, 0.0, 1.0]
    pose = check_pose(values, str(path))
    assert pose is not None  # its numbers are finite
    return pose


TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "float32": "f4", "float64": "f8",
}  # fmt: skip
ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">"}


def read_ply_points(path: Path) -> Float64[np.ndarray, "n 3"]:
    """Return x, y, z of every vertex. Raises DataError if it is missing, no PLY, damaged, or its first element is not a
    vertex with x, y and z."""
    head, *rest = re.split(rb"end_header\r?\n", content := read_bytes(path), maxsplit=1)
    if not content.startswith(b"ply") or not rest:
        raise DataError(f"{path}: no PLY file.")
    body, lines = rest[0], [line.split() for line in head.decode("latin-1").splitlines()]
    try:
        layout = next(line[1] for line in lines if line[:1] == ["format"])
        elements = [number for number, line in enumerate(lines) if line[:1] == ["element"]]
        if not elements or lines[elements[0]][1] != "vertex":
            raise DataError(f"{path}: its first element is no vertex.")
        count = int(lines[elements[0]][2])
        last = elements[1] if len(elements) > 1 else len(lines)
        properties = [line for line in lines[elements[0] : last] if line[:1] == ["property"]]
        names = [line[-1] for line in properties]
        if any(line[1] not in TYPES for line in properties) or not {"x", "y", "z"} <= set(names):
            raise DataError(f"{path}: a vertex needs numbers x, y and z; it has {', '.join(names) or 'nothing'}.")
        if layout == "ascii":
            table = np.array([line.split()[: len(names)] for line in body.decode().splitlines()[:count]], float)
            if len(table) < count:
                raise ValueError(f"{len(table)} of {count} vertices")
            columns = dict(zip(names, table.T, strict=True))
        else:
            order = ORDERS[layout]
            fields = np.dtype([(line[-1], order + TYPES[line[1]]) for line in properties])
            rows = np.frombuffer(body, fields, count)
            columns = {axis: rows[axis] for axis in "xyz"}
    except DataError:
        raise
    except (IndexError, KeyError, OverflowError, StopIteration, ValueError) as error:
        raise DataError(f"{path}: is damaged ({error}).") from error
    return np.stack([columns[axis].astype(np.float64) for axis in "xyz"], 1)
