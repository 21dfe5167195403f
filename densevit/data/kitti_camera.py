"""Intrinsics of KITTI's rectified colour cameras, per recording day."""

from pathlib import Path

import numpy as np
from jaxtyping import Float64

from densevit.data.pairs import pinhole
from densevit.errors import DataError

# fx = fy, cx, cy of P_rect_02, which P_rect_03 shares, in each day's calib_cam_to_cam.txt.
CAMERAS = {
    "2011_09_26": (721.5377, 609.5593, 172.8540),
    "2011_09_28": (707.0493, 604.0814, 180.5066),
    "2011_09_29": (718.3351, 600.3891, 181.5122),
    "2011_09_30": (707.0912, 601.8873, 183.1104),
    "2011_10_03": (718.8560, 607.1928, 185.2157),
}


def day_camera(day: Path, camera: str) -> Float64[np.ndarray, "3 3"] | None:
    """Intrinsics of `image_02` or `image_03` on the day that the folder is named for: its calibration file's
    where there is one, else the table's, else None.

    Raises:
        DataError: the calibration file does not hold the camera.
    """
    file = day / "calib_cam_to_cam.txt"
    if file.is_file():
        return _matrix(file, f"P_rect_{camera[-2:]}")
    if day.name not in CAMERAS:
        return None
    focal, cx, cy = CAMERAS[day.name]
    return pinhole(focal, focal, cx, cy)


def benchmark_camera(file: Path) -> Float64[np.ndarray, "3 3"]:
    """Intrinsics of one cropped benchmark image: nine numbers, row by row."""
    return _numbers(file, file.read_text(), 9).reshape(3, 3)


def _matrix(file: Path, key: str) -> Float64[np.ndarray, "3 3"]:
    for line in file.read_text().splitlines():
        name, _, values = line.partition(":")
        if name.strip() == key:
            return np.ascontiguousarray(_numbers(file, values, 12).reshape(3, 4)[:, :3])
    raise DataError(f"{file}: no '{key}' in it.")


def _numbers(file: Path, text: str, count: int) -> Float64[np.ndarray, " n"]:
    try:
        numbers = np.array([float(word) for word in text.split()])
    except ValueError:
        numbers = np.empty(0)
    if numbers.size != count or not np.isfinite(numbers).all():
        raise DataError(f"{file}: expected {count} numbers, got {text[:60]!r}.")
    return numbers
