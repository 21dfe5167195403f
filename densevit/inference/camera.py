"""The camera of an image: focal lengths for models whose metres depend on them, intrinsics for point clouds."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from numbers import Real
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from densevit.data.io.exif import exif_focal, exif_fov
from densevit.data.recordings.cameras import SKEW, read_camera
from densevit.data.recordings.distortion import CameraModel, PinholeView
from densevit.errors import DataError
from densevit.inference.tta import Outputs
from densevit.model_card import HeadSpec, ModelCard
from densevit.ops.camera import Camera, canonical_scale
from densevit.ops.geometry import (
    Matrix,
    check_fov,
    check_intrinsics,
    focal_length,
    is_possible_fov,
    pinhole,
    pinhole_from_fov,
)
from densevit.structures import Size

log = logging.getLogger(__name__)

TOLERANCE = 1.15  # times the training's narrowest and widest focal length that count as known

CameraNumbers = float | Sequence[float] | np.ndarray
"""Focal length in pixels of the image at its full size: one number, along x and y, or fx, fy, cx, cy."""

FOV = 60.0  # degrees across, of a phone's main camera held upright or of a webcam


@dataclass(frozen=True)
class Intrinsics(CameraModel):
    """A camera in pixels of its images, those of one with distortion before they are undistorted.

    Attributes:
        scaled: images of another size than `size` are taken for scaled ones; else they are refused.
    """

    scaled: bool = False

    def matrix(self, size: Size) -> Matrix:
        """Return the 3x3 matrix for an image of this size, undistorted. Raises DataError if the camera is that of
        images of another size, or its field of view that of no photo."""
        if not (self.scaled or self.size in (None, size)):
            raise DataError(
                f"intrinsics: given for images of {self.size[0]}x{self.size[1]}, this one is {size[0]}x{size[1]}; "
                "a CSV with columns image, fx, fy, cx, cy gives each image its own."
            )
        matrix = self.undistorted(size).matrix
        check_intrinsics(matrix, size)
        return matrix

    @classmethod
    def of_file(cls, path: Path) -> "Intrinsics":
        """Return the camera of a calibration's file (densevit.data.recordings.cameras)."""
        camera = read_camera(path)
        if isinstance(camera, CameraModel):
            return cls(**vars(camera), scaled=camera.size is not None)
        if abs(camera[0, 1]) > SKEW:
            raise DataError(f"{path}: a skew of {camera[0, 1]:g} pixels is not read; fx 0 cx, 0 fy cy, 0 0 1 is.")
        return cls(*focal_of_matrix(camera))


@dataclass(frozen=True)
class Lens:
    """A camera whose principal point is the middle of the image, by one of two numbers.

    Attributes:
        focal: focal length in pixels.
        focal_y: that along y, where pixels are not square.
        fov: horizontal field of view in degrees.
        size: (h, w) of the image that it holds for; None for any.

    Raises:
        ValueError: the number makes no camera.
    """

    fits: ClassVar[Mapping[str, str]] = {"focal": "pixels above 0", "fov": "degrees between 0.5 and 170"}

    focal: float | None = None
    fov: float | None = None
    size: Size | None = None
    focal_y: float | None = None

    def __post_init__(self) -> None:
        if not (0 < self.focal < inf if self.focal is not None else self.fov is not None and is_possible_fov(self.fov)):
            raise ValueError(f"{self} is no camera")
        for name in self.fits:
            if (value := getattr(self, name)) is not None:
                object.__setattr__(self, name, float(value))  # 60 and 60.0 are one camera in records

    def matrix(self, size: Size) -> Matrix:
        """Return the 3x3 matrix for an image of this size. Raises DataError if the camera is that of an image of
        another size, or its field of view that of no photo."""
        if self.size not in (None, size):
            raise DataError(f"the camera is of {self.size[0]}x{self.size[1]}, this image is {size[0]}x{size[1]}.")
        h, w = size
        if self.focal is not None:
            check_fov(self.focal, w)
            return pinhole(self.focal, self.focal_y or self.focal, (w - 1) / 2, (h - 1) / 2)
        assert self.fov is not None
        return pinhole_from_fov(size, self.fov)


def pinhole_view(camera: Intrinsics | Lens | None, size: Size) -> PinholeView | None:
    """Return how images of this size are undistorted; None where no distortion is known."""
    return camera.undistorted(size) if isinstance(camera, Intrinsics) and camera.distortion is not None else None


def to_metres(outputs: Outputs, camera: Float[Tensor, "b 4"], heads: Mapping[str, HeadSpec]) -> Outputs:
    """Return predictions in metres where heads give them for one focal length (Metric3D, Depth Anything 3). `camera`:
    at the network's input."""
    focals = {name: spec.focal for name, spec in heads.items() if spec.focal is not None}
    scales = {name: canonical_scale(Camera(camera), focal) for name, focal in focals.items() if name in outputs}
    return {name: y * scales[name] if name in scales else y for name, y in outputs.items()}


def assumed_fov(card: ModelCard) -> float:
    """Return the horizontal field of view, in degrees, of an image of which none is known: that of the training, or
    usual."""
    return round(sum(card.fov) / 2) if card.fov else FOV


@dataclass(frozen=True)
class CameraPolicy:
    """Where the focal length of an image comes from: `override`, else its data or EXIF, else the model's estimate."""

    card: ModelCard  # of the model, which may need no focal length, or estimate one
    override: CameraNumbers | Lens | None = None  # of all images, whatever is known of them
    assumed_fov: float | None = None  # horizontal, in degrees, of images of which nothing is known; None refuses them
    warned: set[str] = field(default_factory=set, repr=False, compare=False)  # of a lens that training did not show

    @property
    def estimates(self) -> bool:
        """Whether the model estimates the focal length of images of which none is known."""
        return self.override is None and self.card.needs_camera and self.card.camera_head is not None

    def of_size(self, size: Size) -> CameraNumbers | None:
        """Return the override, for an image of a size."""
        return focal_of_matrix(self.override.matrix(size)) if isinstance(self.override, Lens) else self.override

    def of_data(self, intrinsics: Matrix | None, size: Size) -> CameraNumbers | None:
        """Return the override, else the focal lengths and principal point of a 3x3 matrix; None if both are missing."""
        return self.of_size(size) if self.override is not None or intrinsics is None else focal_of_matrix(intrinsics)

    def of_file(self, path: str | os.PathLike[str]) -> CameraNumbers | None:
        """Return the focal length in the EXIF of an image; None if it is unknown, not needed or overridden.

        Warns once of a lens that the training of a metric model did not show and that the model cannot know of. Raises
        DataError if the model needs its EXIF, which cannot be true of it.
        """
        if self.override is not None or self.card.needs_camera:
            return exif_focal(path) if self.override is None else None  # `of_batch` takes the override
        angle = None if self.card.fov is None or self.warned else exif_fov(path)
        if angle is not None and (warning := lens_warning([angle], self.card)):
            self.warned.add(warning)
            log.warning("%s: %s", path, warning)
        return None

    def of_batch(
        self, camera: CameraNumbers | None, shape: tuple[int, ...], estimate: Callable[[], Sequence[float]]
    ) -> Camera:
        """Return the cameras of images, for a model that needs them: known, else the override, else estimated. Raises
        DataError if there is none and the model estimates none, or it is no number of pixels above 0.

        Args:
            camera: of all these images.
            shape: b, h and w of the images.
            estimate: by the model, the focal length of each image.
        """
        count, h, w = shape
        focal = self.of_size((h, w)) if camera is None else camera
        if focal is None and self.estimates:
            return Camera.centred(torch.tensor(estimate()), (h, w))
        if focal is None and self.assumed_fov is not None:
            focal = focal_length(w, self.assumed_fov)
            self.warn_of_assumption()
        if focal is None:
            heads = ", ".join(self.card.canonical_focals or self.card.outputs)
            raise DataError(
                f"head {heads}: metres follow from the camera's focal length, and none is known. Give it in pixels of "
                "the image: focal=PIXELS (--focal PIXELS); width / (2 tan(half the horizontal field of view))."
            )
        check_camera(focal)
        return as_camera(focal, (h, w), count)

    def warn_of_assumption(self) -> None:
        """Log once that metres follow from an assumption."""
        if "assumed" not in self.warned:
            self.warned.add("assumed")
            log.warning(
                "Focal length unknown (no EXIF): a field of view of %.0f degrees is assumed, and metres are "
                "wrong in proportion to its error. --fov DEGREES or --focal PIXELS gives it.",
                self.assumed_fov,
            )


def check_camera(focal: CameraNumbers) -> None:
    """Raise DataError if it is no number of pixels above 0, nor two or four of them."""
    numbers = focal_numbers(focal)
    good = [isinstance(length, Real) and 0 < length < inf for length in numbers[:2]]
    good += [isinstance(coordinate, Real) and -inf < coordinate < inf for coordinate in numbers[2:]]
    if len(numbers) not in (2, 4) or not all(good):
        raise DataError(
            f"focal is {focal}; a focal length is a number of pixels above 0, or two, along x and y; with the "
            "principal point they are fx, fy, cx, cy."
        )


def focal_of_matrix(matrix: Matrix) -> tuple[float, float, float, float]:
    """Return fx, fy, cx, cy of a 3x3 matrix."""
    return float(matrix[0, 0]), float(matrix[1, 1]), float(matrix[0, 2]), float(matrix[1, 2])


def as_camera(focal: CameraNumbers, size: Size, count: int = 1) -> Camera:
    """Return the camera of `count` images of `size`; the principal point is their middle unless it is given. Raises
    DataError if a focal length that no such image has."""
    numbers = [float(number) for number in focal_numbers(focal)]
    check_fov(numbers[0], size[1])
    fx, fy = numbers[:2]
    cx, cy = numbers[2:] or ((size[1] - 1) / 2, (size[0] - 1) / 2)
    return Camera(torch.tensor([[fx, fy, cx, cy]]).expand(count, -1))


def focal_numbers(focal: CameraNumbers) -> tuple[float, ...]:
    given = focal.tolist() if isinstance(focal, np.ndarray | np.generic) else focal
    return tuple(given) if isinstance(given, Sequence) else (given, given)


def lens_warning(angles: Sequence[float], card: ModelCard) -> str:
    """Say that a metric model which knows no lens is shown one that its training did not; empty where it is not.
    `angles`: horizontal fields of view of images, in degrees."""
    if card.needs_camera or card.fov is None or not any(spec.kind == "metric" for spec in card.outputs.values()):
        return ""
    longest, shortest = (focal_length(1, angle) for angle in card.fov)
    far = [angle for angle in angles if not shortest / TOLERANCE <= focal_length(1, angle) <= longest * TOLERANCE]
    if not far:
        return ""
    found, known = (
        f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"
        for low, high in ((min(far), max(far)), card.fov)
    )
    return (
        f"{len(far)} of {len(angles)} images looked at have a field of view of {found} degrees. The model does not see "
        f"the lens and its metres hold for {known} degrees: they are off by about the ratio of focal lengths "
        "(docs/cameras.md)."
    )
