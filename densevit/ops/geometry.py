"""Pinhole cameras and affine transforms of images: pure functions on 3x3 matrices.

The centre of the first pixel is (0, 0), as in OpenCV and in the calibration of NYU and KITTI; an image of width w
spans [-0.5, w - 0.5]. A transform maps (u, v, 1) of the old image to the new one. x right, y down, z forward, in
metres.
"""

import math

import numpy as np
from jaxtyping import Float, Float64

from densevit.errors import DataError

Matrix = Float64[np.ndarray, "3 3"]


def shift(x: float, y: float) -> Matrix:
    return np.array([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])


def scale(x: float, y: float) -> Matrix:
    """Zoom the image area, borders to borders: u' + 0.5 = x (u + 0.5)."""
    return np.array([[x, 0.0, (x - 1) / 2], [0.0, y, (y - 1) / 2], [0.0, 0.0, 1.0]])


def mirror(width: int) -> Matrix:
    return np.array([[-1.0, 0.0, width - 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


def rotate(degrees: float, size: tuple[int, int]) -> Matrix:
    """Rotate the image counter-clockwise about its centre; `size` is (h, w)."""
    h, w = size
    angle = math.radians(degrees)
    cos, sin = math.cos(angle), math.sin(angle)
    turn = np.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]])
    return np.asarray(shift((w - 1) / 2, (h - 1) / 2) @ turn @ shift((1 - w) / 2, (1 - h) / 2))


def transform_intrinsics(intrinsics: Matrix, transform: Matrix) -> Matrix:
    """Return the intrinsics of the transformed image.

    A rotated or mirrored image is that of a camera rolled about, or mirrored across, its optical axis: a scene in
    that camera's frame, with the same depth. What remains is upper triangular with focal lengths above 0. Rotating
    non-square pixels (fx != fy) leaves a small skew, which is kept.

    Returns:
        K' with K' Q = transform K, where Q is the roll or mirror about the z axis (an RQ decomposition).
    """
    moved = transform @ intrinsics
    (a, b), (c, d) = moved[:2, :2]
    fy = math.hypot(c, d)
    x_axis, y_axis = np.array([d, -c]) / fy, np.array([c, d]) / fy
    fx = float(np.array([a, b]) @ x_axis)
    skew = float(np.array([a, b]) @ y_axis)
    return np.array([[abs(fx), skew, moved[0, 2]], [0.0, fy, moved[1, 2]], [0.0, 0.0, 1.0]])


def rolled(intrinsics: Matrix, transform: Matrix) -> Matrix:
    """Return the Q of `transform_intrinsics`: what directions in camera axes are multiplied by."""
    return np.asarray(np.linalg.inv(transform_intrinsics(intrinsics, transform)) @ transform @ intrinsics)


def backproject(depth: Float[np.ndarray, "h w"], intrinsics: Matrix) -> Float[np.ndarray, "h w 3"]:
    """Return the point that each pixel shows, in the unit and type of `depth`, which runs along the optical axis."""
    h, w = depth.shape
    (fx, skew, cx), (_, fy, cy) = intrinsics[:2]
    y = (np.arange(h)[:, None] - cy) / fy
    x = (np.arange(w) - cx - skew * y) / fx
    rays = np.stack([x, np.broadcast_to(y, (h, w)), np.ones((h, w))], axis=-1)
    return np.asarray(rays.astype(depth.dtype) * depth[..., None])


def pinhole_from_fov(size: tuple[int, int], fov: float) -> Matrix:
    """Return a camera whose axis passes through the centre of an (h, w) image, with square pixels and a horizontal
    field of view of `fov` degrees."""
    h, w = size
    focal = focal_length(w, fov)
    return pinhole(focal, focal, (w - 1) / 2, (h - 1) / 2)


def focal_length(width: int, fov: float) -> float:
    """Return the focal length in pixels, for a horizontal field of view of `fov` degrees across `width` pixels."""
    return width / 2 / math.tan(math.radians(fov) / 2)


def field_of_view(width: int, focal: float) -> float:
    """Return the field of view in degrees across `width` pixels, for a focal length in pixels."""
    return math.degrees(2 * math.atan(width / 2 / focal))


def is_possible_fov(degrees: float) -> bool:
    """Return whether a pinhole camera's photo can have this horizontal field of view: 0.5 to 170 degrees."""
    return 0.5 < degrees < 170


def pinhole(fx: float, fy: float, cx: float, cy: float) -> Matrix:
    """Return the 3x3 intrinsics of focal lengths and principal point in pixels."""
    return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])


def is_camera(matrix: Matrix) -> bool:
    """Return whether these are intrinsics: finite numbers, focal lengths over 0, and 0, 0, 0, 1 at the lower left. (A
    transposed matrix has its principal point there.)"""
    lower_left = np.array([matrix[1, 0], *matrix[2]])
    return bool(
        np.isfinite(matrix).all() and min(matrix[0, 0], matrix[1, 1]) > 0 and np.allclose(lower_left, (0, 0, 0, 1))
    )


def check_intrinsics(matrix: Matrix, size: tuple[int, int]) -> None:
    """Raise DataError if no (h, w) image has this camera: its principal point lies beyond, as that of a larger image
    does, or see `check_fov`."""
    cx, cy = matrix[:2, 2]
    if cx >= size[1] or cy >= size[0]:
        raise DataError(
            f"intrinsics: the principal point ({cx:g}, {cy:g}) lies outside this image of {size[0]}x{size[1]}."
        )
    check_fov(float(matrix[0, 0]), size[1])


def check_fov(focal: float, width: int) -> None:
    """Raise DataError if a focal length that no image of this width has."""
    if not is_possible_fov(fov := field_of_view(width, focal)):
        raise DataError(
            f"a focal length of {focal:.4g} pixels is a field of view of {fov:.3g} degrees across {width} pixels, "
            "which no photo has. Focal lengths are in pixels of the image, not in millimetres or shares of its width."
        )
