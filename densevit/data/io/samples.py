"""An image file with the map files that belong to it, read as one Sample; and cutting a Sample to a window."""

from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from densevit.data.io.readers import read_depth, read_image, read_label_picture, read_labels
from densevit.data.labels.class_table import ClassTable
from densevit.errors import DataError
from densevit.structures import Sample


def read_pair(
    name: str,
    image_path: Path,
    depth_path: Path | None,
    scale: float | None,
    *,
    labels_path: Path | None = None,
    table: ClassTable | None = None,
    intrinsics: Float64[np.ndarray, "3 3"] | None = None,
) -> Sample:
    """Reads what there is; every depth that is positive and finite is valid.

    Args:
        table: what the stored labels mean; without it they are class ids.

    Raises:
        DataError: a file is bad (naming it), or its size is not the image's (naming both).
    """
    image = read_image(image_path)
    depth = None if depth_path is None else read_depth(depth_path, scale)
    labels = None if labels_path is None else read_label_map(labels_path, table)
    for path, pixels in ((depth_path, depth), (labels_path, labels)):
        if path is not None and pixels is not None:
            same_size(image_path, image, path, pixels)
    valid = None if depth is None else depth > 0
    return Sample(name=name, image=image, depth=depth, valid=valid, labels=labels, intrinsics=intrinsics)


def read_label_map(path: Path, table: ClassTable | None) -> Int64[np.ndarray, "h w"]:
    """Class ids of a file of ids or colours.

    Raises:
        DataError: it is bad, or holds what the table has not; naming the file.
    """
    if table is None:
        return read_labels(path)
    stored = read_label_picture(path)
    if stored.pixels.ndim == 3:
        return table.of_colours(path, stored.pixels.astype(np.uint8, copy=False))
    ids = stored.pixels.astype(np.int64, copy=False)
    table.check_palette(path, ids, stored.palette)
    return table.of_ids(path, ids)


def same_size(image_path: Path, image: np.ndarray, path: Path, pixels: np.ndarray) -> None:
    """
    Raises:
        DataError: a map has another height or width than its image; naming both.
    """
    if pixels.shape != image.shape[:2]:
        raise DataError(
            f"sizes differ: {image_path} is {_size(image)}, {path} is {_size(pixels)}. They must be of one "
            "size: scale the image to the map, since a map must not be interpolated."
        )


def _size(pixels: np.ndarray) -> str:
    return f"{pixels.shape[0]} x {pixels.shape[1]} (h x w)"
