"""Images, depth and label maps put together as one Sample."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Shaped, UInt8

from densevit.data.index.paths import SampleFiles
from densevit.data.io.readers import read_labels, read_stored_labels
from densevit.data.labels.class_table import ClassTable
from densevit.data.recordings.distortion import PinholeView
from densevit.errors import DataError
from densevit.ops.geometry import pinhole, scale
from densevit.ops.normals import KINDS_WITH_NORMALS, normals_of_map
from densevit.ops.segments import Segments
from densevit.structures import Sample


def make_sample(
    files: SampleFiles,
    image: UInt8[np.ndarray, "h w 3"],
    *,
    depth: Float32[np.ndarray, "_ _"] | None = None,
    labels: Int64[np.ndarray, "_ _"] | None = None,
    segments: Segments | None = None,
    normals: Float32[np.ndarray, "_ _ 3"] | None = None,
    intrinsics: Float64[np.ndarray, "3 3"] | None = None,
    pose: Float64[np.ndarray, "4 4"] | None = None,
) -> Sample:
    """Return the sample of what was read from `files`; depth is valid where it is above 0. Raises DataError if a map
    has another size than the image; naming both."""
    ids = None if segments is None else segments.ids
    maps = (
        (files.depth, depth),
        (files.labels, labels),
        (files.segments or files.labels, ids),
        (files.normals, normals),
    )
    for path, pixels in maps:
        if pixels is not None and pixels.shape[:2] != image.shape[:2]:
            raise DataError(
                f"sizes differ: {files.image} is {_size(image)}, {path or 'its annotation'} is {_size(pixels)}. They "
                "must be of one size: scale the image to the map, since a map must not be interpolated."
            )
    valid = None if depth is None else depth > 0
    sample = Sample(
        name=files.name, image=image, depth=depth, valid=valid, labels=labels, normals=normals, intrinsics=intrinsics,
        pose=pose,
    )  # fmt: skip
    return sample if segments is None else with_segments(sample, segments)


def with_segments(sample: Sample, segments: Segments) -> Sample:
    """Return the sample with segments."""
    return replace(
        sample, segments=segments.ids, segment_classes=segments.classes, segment_crowd=segments.crowd
    )  # fmt: skip


def segments_of(sample: Sample) -> Segments | None:
    """Return the segments of a sample, None where it has none."""
    if sample.segments is None or sample.segment_classes is None or sample.segment_crowd is None:
        return None
    return Segments(sample.segments, sample.segment_classes, sample.segment_crowd)


def depth_at_image(
    files: SampleFiles,
    depth: Float32[np.ndarray, "_ _ *k"],
    size: tuple[int, ...],
    intrinsics: Float64[np.ndarray, "3 3"] | None,
    view: PinholeView | None = None,
) -> Float32[np.ndarray, "_ _ *k"]:
    """Return a depth map, or another of its pixels, at the size of its image; each pixel has the value of the nearest
    one of the map.

    Where the depth map has a camera of its own, pixels are found by both cameras, which are taken to stand in one
    place; else by scale, and by what `view` shows of the image, with which the map then is registered. Raises
    DataError: the map has no camera, and another shape than the image.
    """
    h, w = size[:2]
    rows, columns = depth.shape[:2]
    if files.depth_intrinsics is not None and intrinsics is not None:
        step = files.depth_intrinsics @ np.linalg.inv(intrinsics)
        view = None
    elif (rows, columns) == (h, w):
        return depth if view is None else view.nearest(depth)
    elif abs(h * columns / (w * rows) - 1) > 0.02:
        raise DataError(
            f"sizes differ: {files.image} is {h} x {w}, {files.depth} is {rows} x {columns} (h x w), of another "
            "shape, and the camera of the depth map is not known; data set recording takes it as `depth_camera`."
        )
    else:
        step = scale(columns / w, rows / h)
    x, y = (np.arange(w), np.arange(h)[:, None]) if view is None else view.places
    u = np.rint(step[0, 0] * x + step[0, 2]).astype(int)
    v = np.rint(step[1, 1] * y + step[1, 2]).astype(int)
    inside = (v >= 0) & (v < rows) & (u >= 0) & (u < columns)
    moved: np.ndarray = depth[v.clip(0, rows - 1), u.clip(0, columns - 1)]
    moved[~inside] = 0
    return moved


def normals_at_image(
    files: SampleFiles,
    depth: Float32[np.ndarray, "_ _"],
    size: tuple[int, ...],
    intrinsics: Float64[np.ndarray, "3 3"],
    view: PinholeView | None = None,
) -> Float32[np.ndarray, "_ _ 3"]:
    """Return the normals of a depth map at the size of its image, as `depth_at_image` finds the pixels; they are fitted
    to the map as it was measured, since the repeated or skipped pixels of a resampled one lie on no plane."""
    (h, w), (rows, columns) = size[:2], depth.shape
    camera = files.depth_intrinsics
    bent = None if camera is not None else view
    if camera is None:
        taken = None if view is None else view.camera
        camera = intrinsics if taken is None else pinhole(taken.fx, taken.fy, taken.cx, taken.cy)
        camera = scale(columns / w, rows / h) @ camera
    normals = depth_at_image(files, normals_of_map(depth, camera), size, intrinsics, view)
    return normals if bent is None else bent.straightened(normals)


def true_normals(sample: Sample) -> Float32[np.ndarray, "_ _ 3"] | None:
    """Return the sample's normals, else those of its depth; None where it has neither, or no intrinsics, or its depth
    has an unknown shift."""
    if sample.normals is not None:
        return sample.normals
    if sample.depth is None or sample.valid is None or sample.intrinsics is None:
        return None
    if sample.depth_kind not in KINDS_WITH_NORMALS:
        return None
    return normals_of_map(np.where(sample.valid, sample.depth, np.float32(0)), sample.intrinsics)


def valid_depth(
    metres: Shaped[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"] | None = None
) -> Float32[np.ndarray, "h w"]:
    """Return the depth that is 0 where it is not positive and finite, or where `valid` is False."""
    with np.errstate(over="ignore"):
        depth = metres.astype(np.float32)
    positive = np.isfinite(depth) & (depth > 0)
    return np.where(positive if valid is None else positive & valid, depth, np.float32(0))


def read_mask(path: Path, size: tuple[int, ...]) -> Bool[np.ndarray, "h w"]:
    """Return where a file of integers is above 0. Raises DataError if it is bad, or not of the depth map's size."""
    mask = read_labels(path) > 0
    if mask.shape != size:
        raise DataError(f"{path}: {_size(mask)}, while the depth map is {size[0]} x {size[1]}.")
    return mask


def read_label_map(path: Path, table: ClassTable | None) -> Int64[np.ndarray, "h w"]:
    """Return the class ids of a file of ids or colours; without a table the ids are taken as stored. Raises DataError
    if it is bad, or holds what the table has not; naming the file."""
    if table is None:
        return read_labels(path)
    stored = read_stored_labels(path)
    if stored.pixels.ndim == 3:
        return table.map_colours(path, stored.pixels.astype(np.uint8, copy=False))
    ids = stored.pixels.astype(np.int64, copy=False)
    table.check_palette(path, ids, stored.palette)
    return table.map_ids(path, ids)


def _size(pixels: np.ndarray) -> str:
    return f"{pixels.shape[0]} x {pixels.shape[1]} (h x w)"
