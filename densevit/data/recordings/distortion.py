"""Lens distortion as OpenCV, ROS and COLMAP model it, and how it is undone: images as a pinhole camera would take them.

Directions are x / z and y / z in camera axes (right, down, forward), n 2; pixels as in `densevit.ops.geometry`.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import cv2
import numpy as np
from jaxtyping import Float32, Float64, UInt8
from numpy.polynomial import Polynomial

from densevit.errors import DataError
from densevit.ops.geometry import Matrix, pinhole, scale
from densevit.structures import Size

Points = Float64[np.ndarray, "n 2"]

WIDEST, NARROWEST = 0.5, 16.0  # focal lengths of undistorted images, in those of the lens
SHAPE = 0.01  # by which the aspect ratios of a camera and its images may differ


@dataclass(frozen=True)
class Distortion:
    """How a lens bends rays.

    Attributes:
        model: its name where the camera was written, for messages.
        fisheye: the radial polynomial is of the angle to the axis (OpenCV's fisheye module, ROS' equidistant, COLMAP's
            FISHEYE models), not of the distance from it (plumb bob, radtan, rational polynomial).
        radial: k1 to k6, the last three in the denominator; of a fisheye k1 to k4.
        tangential: p1 and p2.
    """

    model: str
    radial: tuple[float, ...]
    tangential: tuple[float, float] = (0.0, 0.0)
    fisheye: bool = False

    def __str__(self) -> str:
        terms = {f"k{i}": k for i, k in enumerate(self.radial, 1)} | dict(
            zip(("p1", "p2"), self.tangential, strict=True)
        )
        return f"{self.model} ({', '.join(f'{key} {value:g}' for key, value in terms.items() if value) or 'all 0'})"

    @cached_property
    def _polynomials(self) -> tuple[Polynomial, Polynomial]:
        """Return numerator and denominator of the radial factor, of the squared distance or angle."""
        split = len(self.radial) if self.fisheye else 3
        return Polynomial([1.0, *self.radial[:split]]), Polynomial([1.0, *self.radial[split:]])

    @cached_property
    def reach(self) -> float:
        """The distance from the axis up to which each ray has a pixel of its own: there the polynomial turns back."""
        over, under = self._polynomials
        slope = over * under + Polynomial([0, 2]) * (over.deriv() * under - over * under.deriv())
        roots = np.concatenate([part.trim().roots() for part in (slope, under)])
        real = np.sqrt(roots.real[(abs(roots.imag) < 1e-9) & (roots.real > 0)])
        if self.fisheye:
            return float(np.tan(real.min())) if len(real) and real.min() < np.pi / 2 else np.inf
        return float(real.min(initial=np.inf))

    def distort(self, rays: Points) -> Points:
        """Return the direction in which a pinhole camera of the same matrix would see what the lens shows there."""
        square, turned = (rays**2).sum(1), np.array(self.tangential[::-1])
        bent: Points = rays * (self._radial_factor(square) + 2 * rays @ turned)[:, None] + square[:, None] * turned
        return bent

    def _radial_factor(self, square: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
        over, under = self._polynomials
        distance = np.sqrt(square).clip(1e-9)
        angle = np.arctan(distance)
        return np.asarray(angle * over(angle**2) / distance if self.fisheye else over(square) / under(square))

    def _newton_step(self, rays: Points, seen: Points) -> Points:
        """Return the rays nearer to those of distorted directions, of a lens that is no fisheye."""
        (over, under), turned = self._polynomials, np.array(self.tangential[::-1])
        square = (rays**2).sum(1)
        slope = (over.deriv()(square) - over(square) / under(square) * under.deriv()(square)) / under(square)
        change = 2 * rays[:, :, None] * (slope[:, None] * rays + turned)[:, None]
        change += 2 * turned[:, None] * rays[:, None]
        (a, b), (c, d) = change.transpose(1, 2, 0)
        factor = over(square) / under(square) + 2 * rays @ turned
        (x, y), a, d = (self.distort(rays) - seen).T, a + factor, d + factor
        return np.asarray(rays - np.stack([d * x - b * y, a * y - c * x], 1) / (a * d - b * c)[:, None])

    def undistort(self, seen: Points) -> Points:
        """Return the rays whose distorted directions these are, by Newton's method; NaN where there is none."""
        if self.fisheye:
            over, distance = self._polynomials[0], np.sqrt((seen**2).sum(1)).clip(1e-12)
            angle = distance.clip(max=np.pi / 2)
            for _ in range(20):
                slope = over(angle**2) + 2 * angle**2 * over.deriv()(angle**2)
                angle = angle - (angle * over(angle**2) - distance) / slope
            rays = seen * (np.tan(angle.clip(0, 1.57)) / distance)[:, None]
        else:
            rays = seen
            with np.errstate(all="ignore"):
                for _ in range(20):
                    rays = self._newton_step(rays, seen)
        good = (abs(self.distort(rays) - seen).max(1) < 1e-9) & ((rays**2).sum(1) <= self.reach**2)
        return np.where(good[:, None], rays, np.nan)


@dataclass(frozen=True)
class CameraModel:
    """A camera as its calibration gives it.

    Attributes:
        size: (h, w) of the images that it was calibrated with; None where that is not written.
    """

    fx: float
    fy: float
    cx: float
    cy: float
    size: Size | None = None
    distortion: Distortion | None = None

    def of_size(self, size: Size) -> "CameraModel":
        """Return the camera of images of a size, to which they were scaled from that of the calibration.

        Raises:
            DataError: images of another shape.
        """
        if self.size in (None, size):
            return replace(self, size=size)
        (h, w), (was_h, was_w) = size, self.size
        if abs(h * was_w / (w * was_h) - 1) > SHAPE:
            raise DataError(
                f"the camera is of images of {was_h} x {was_w} (h x w), this one is {h} x {w}, of another shape: "
                "it was cropped or turned. Give the camera of these images."
            )
        new = scale(w / was_w, h / was_h) @ pinhole(self.fx, self.fy, self.cx, self.cy)
        return replace(self, fx=new[0, 0], fy=new[1, 1], cx=new[0, 2], cy=new[1, 2], size=size)

    def undistorted(self, size: Size) -> "PinholeView":
        """Return what a pinhole camera in its place shows, for images of a size. Raises DataError as `of_size`, or if
        the distortion leaves no view."""
        return _pinhole_view(self.of_size(size))


@dataclass(frozen=True, eq=False)
class PinholeView:
    """Images of a pinhole camera in the place of one with a lens: of the same size, principal point and ratio of fx to
    fy, and as wide as they can be without pixels that the lens does not show.

    Attributes:
        camera: of the images as they were taken.
        matrix: of the new images.
        u, v: the place in the taken image that each pixel shows; None where nothing bends.
    """

    camera: CameraModel
    matrix: Matrix
    u: Float32[np.ndarray, "h w"] | None = None
    v: Float32[np.ndarray, "h w"] | None = None

    def image(self, taken: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h w 3"]:
        """Return the new image, interpolated."""
        if self.u is None or self.v is None:
            return taken
        return np.asarray(cv2.remap(taken, self.u, self.v, cv2.INTER_LINEAR), np.uint8)

    def nearest(self, taken: np.ndarray) -> np.ndarray:
        """Return the new map of depth, classes, segments or normals: in each pixel the value of the nearest one."""
        return taken if self.u is None else taken[tuple(np.rint(self.places[::-1]).astype(np.intp))]

    def straightened(self, normals: Float32[np.ndarray, "h w 3"]) -> Float32[np.ndarray, "h w 3"]:
        """Return the normals of depth from those that were fitted to it as if the lens bent nothing, and then moved
        (`nearest`): 1 / depth is linear in rays, and `bent` says how what was taken for them changes with these."""
        if self.u is None or self.v is None:
            return normals
        rows, columns = (np.arange(n) for n in self.u.shape)
        x, y = (columns - self.matrix[0, 2]) / self.matrix[0, 0], (rows - self.matrix[1, 2]) / self.matrix[1, 1]
        bent = np.stack([(self.u - self.camera.cx) / self.camera.fx, (self.v - self.camera.cy) / self.camera.fy], 2)
        along_y, along_x = ((normals[..., :2] * slope).sum(2) for slope in np.gradient(bent, y, x, axis=(0, 1)))
        value = (normals[..., :2] * bent).sum(2) + normals[..., 2]
        turned = np.stack([along_x, along_y, value - along_x * x - along_y * y[:, None]], 2)
        length = np.linalg.norm(turned, axis=2, keepdims=True)
        return np.asarray(turned / np.maximum(length, 1e-12), np.float32)

    @property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return columns and rows of the taken image, of a shape that broadcasts to h w."""
        if self.u is None or self.v is None:
            h, w = self.camera.size or (0, 0)
            return np.arange(w), np.arange(h)[:, None]
        return self.u, self.v

    def pixels(self, taken: Points) -> Points:
        """Return where the view shows pixels of the taken image; NaN where the lens has no ray."""
        if self.camera.distortion is None:
            return taken
        own, (fx, fy) = self.camera, np.diag(self.matrix)[:2]
        rays = self.camera.distortion.undistort((taken - (own.cx, own.cy)) / (own.fx, own.fy))
        return np.asarray(rays * (fx, fy) + (own.cx, own.cy))

    @property
    def bend(self) -> float:
        """How far, in pixels, the lens moves the corner of the view that it moves most."""
        if self.u is None or self.v is None:
            return 0.0
        h, w = self.u.shape
        corners = np.array([(x, y) for x in (0, w - 1) for y in (0, h - 1)])
        own, (fx, fy) = self.camera, np.diag(self.matrix)[:2]
        straight = (corners - (own.cx, own.cy)) * (own.fx / fx, own.fy / fy) + (own.cx, own.cy)
        bent = np.array([(self.u[y, x], self.v[y, x]) for x, y in corners])
        return float(np.hypot(*(bent - straight).T).max())


@lru_cache(maxsize=4)
def _pinhole_view(camera: CameraModel) -> PinholeView:
    lens, size = camera.distortion, camera.size
    assert size is not None
    h, w = size
    if lens is None:
        return PinholeView(camera, pinhole(camera.fx, camera.fy, camera.cx, camera.cy))
    x, y = (np.arange(w) - camera.cx) / camera.fx, (np.arange(h) - camera.cy) / camera.fy
    grid = np.stack(np.meshgrid(x, y), -1)
    border = np.concatenate([grid[0], grid[-1], grid[:, 0], grid[:, -1]])

    def taken(rays: Points) -> Points:
        return lens.distort(rays) * (camera.fx, camera.fy) + (camera.cx, camera.cy)

    def fits(zoom: float) -> bool:
        rays = border / zoom
        if ((rays**2).sum(1) > lens.reach**2).any():
            return False
        u, v = taken(rays).T
        return bool((u > -1e-3).all() and (v > -1e-3).all() and (u < w - 0.999).all() and (v < h - 0.999).all())

    wide, narrow = WIDEST, WIDEST
    while not fits(narrow):
        wide, narrow = narrow, 2 * narrow
        if narrow > NARROWEST:
            raise DataError(
                f"distortion {lens}: no view without borders is left of "
                f"{h} x {w} (h x w). Are fx, fy, cx, cy and the coefficients of one calibration, in pixels of it?"
            )
    for _ in range(30 * (narrow > wide)):
        middle = (wide + narrow) / 2
        wide, narrow = (wide, middle) if fits(middle) else (middle, narrow)
    u, v = taken(grid.reshape(-1, 2) / narrow).astype(np.float32).T.reshape(2, h, w)
    return PinholeView(
        camera,
        pinhole(camera.fx * narrow, camera.fy * narrow, camera.cx, camera.cy),
        np.ascontiguousarray(u.clip(0, w - 1)), np.ascontiguousarray(v.clip(0, h - 1)),
    )  # fmt: skip
