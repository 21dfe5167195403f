"""A pinhole camera: x right, y down, z forward. The centre of the first pixel is (0, 0)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64


@dataclass(frozen=True)
class Mount:
    """Distribution of camera poses, as (mean, standard deviation) or (low, high); angles in radians."""

    height: tuple[float, float]  # metres over the floor, mean and deviation
    pitch: tuple[float, float]  # up, mean and deviation
    roll: float  # deviation
    fov: tuple[float, float]  # horizontal, in degrees, low and high
    spread: float = 0.4  # metres, of the height about its mean, at most
    centre: float = 0.0  # deviation of the principal point from the middle, as a share of the width


MOUNTS = {
    # Photographs by hand, with several lenses.
    "hand": Mount(height=(1.4, 0.15), pitch=(-0.2, 0.25), roll=0.035, fov=(55, 75)),
    # One camera on a robot's mast, so that the image row of the floor determines its depth.
    "robot": Mount(height=(1.4, 0.01), pitch=(-0.25, 0.01), roll=0.005, fov=(65, 65)),
    # Level and near the floor, as on a small robot: the floor's row tells depth only together with the focal length.
    "level": Mount(height=(0.4, 0.01), pitch=(0.0, 0.01), roll=0.005, fov=(65, 65)),
    # Anything that is no drone: phones held high and low, robots, cameras on shelves, cropped images.
    "any": Mount(height=(1.2, 0.45), pitch=(-0.15, 0.28), roll=0.07, fov=(45, 85), spread=0.95, centre=0.025),
}


@dataclass(frozen=True)
class Camera:
    position: Float64[np.ndarray, "3"]  # metres
    axes: Float64[np.ndarray, "3 3"]  # columns: the camera's x, y, z in world axes
    size: tuple[int, int]  # (h, w) of the image
    fov: float  # horizontal, in radians, from edge to edge of a camera whose principal point is the middle
    centre: tuple[float, float] = (0.0, 0.0)  # right and down from the middle, as shares of the width

    @property
    def intrinsics(self) -> Float64[np.ndarray, "3 3"]:
        h, w = self.size
        f = w / 2 / np.tan(self.fov / 2)
        cx, cy = (w - 1) / 2 + self.centre[0] * w, (h - 1) / 2 + self.centre[1] * w
        return np.array([[f, 0, cx], [0, f, cy], [0, 0, 1]], dtype=np.float64)

    @property
    def pose(self) -> Float64[np.ndarray, "4 4"]:
        """Camera to world, in metres; the world's z is up."""
        matrix = np.eye(4)
        matrix[:3, :3], matrix[:3, 3] = self.axes, self.position
        return matrix

    def rays(self) -> Float32[np.ndarray, "n 3"]:
        """Return the world directions of all pixels, row by row, of length 1 along the optical axis.

        So the distance that a ray tracer counts in ray lengths is the depth itself.
        """
        h, w = self.size
        x, y = np.meshgrid(np.arange(w), np.arange(h))
        pixels = np.stack([x, y, np.ones_like(x)], axis=-1).reshape(-1, 3)
        return np.ascontiguousarray(pixels @ (self.axes @ np.linalg.inv(self.intrinsics)).T, dtype=np.float32)


def look_direction(yaw: float, pitch: float, roll: float) -> Float64[np.ndarray, "3 3"]:
    """Return the camera axes (columns): `yaw` from the world's x towards y, `pitch` up, rolled by `roll`; all in
    radians."""
    forward = np.array([np.cos(pitch) * np.cos(yaw), np.cos(pitch) * np.sin(yaw), np.sin(pitch)])
    right = np.array([np.sin(yaw), -np.cos(yaw), 0.0])
    down = np.cross(forward, right)
    cos, sin = np.cos(roll), np.sin(roll)
    return np.stack([cos * right + sin * down, cos * down - sin * right, forward], axis=1)
