"""The camera of an image: focal lengths for models whose metres depend on them, intrinsics for point clouds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Real

from densevit.errors import DataError
from densevit.inference.tta import Outputs
from densevit.model_card import HeadSpec
from densevit.ops.geometry import Matrix, pinhole
from densevit.structures import Size

Focal = float | Sequence[float]
"""Focal length in pixels of the image at its full size: one number, or along x and y."""


@dataclass(frozen=True)
class Intrinsics:
    """A pinhole camera in pixels.

    Attributes:
        size: (h, w) of the images that it holds for; None where it was given for one image.
    """

    fx: float
    fy: float
    cx: float
    cy: float
    size: Size | None = None

    def matrix(self, size: Size) -> Matrix:
        """The 3x3 matrix for an image of this size.

        Raises:
            DataError: the camera is that of images of another size.
        """
        if self.size not in (None, size):
            raise DataError(
                f"intrinsics: given for images of {self.size[0]}x{self.size[1]}, this one is {size[0]}x{size[1]}; "
                "a CSV with columns image, fx, fy, cx, cy gives each image its own."
            )
        if self.cx >= size[1] or self.cy >= size[0]:
            raise DataError(
                f"intrinsics: the principal point ({self.cx:g}, {self.cy:g}) lies outside this image of "
                f"{size[0]}x{size[1]}."
            )
        return pinhole(self.fx, self.fy, self.cx, self.cy)


@dataclass(frozen=True)
class CanonicalCamera:
    """Converts predictions for a canonical focal length into metres (Metric3D, Depth Anything 3).

    Attributes:
        focal: of the image's camera, along x and y, in pixels.
        canonical: head -> the focal length, in pixels of the network's input, for which its predictions are metres.
    """

    focal: tuple[float, float]
    canonical: Mapping[str, float]

    def to_metres(self, outputs: Outputs, size: Size, input_size: Size) -> Outputs:
        """Of an image of `size` that entered the network at `input_size`."""
        fx, fy = (
            length * after / before
            for length, after, before in zip(self.focal, input_size[::-1], size[::-1], strict=True)
        )
        focal_at_input = (fx + fy) / 2
        return {
            name: y * (focal_at_input / self.canonical[name]) if name in self.canonical else y
            for name, y in outputs.items()
        }


def scale_focal(focal: Focal | None, factor: float) -> Focal | None:
    """The focal length in an image whose sides were multiplied by `factor`."""
    return None if focal is None else tuple(length * factor for length in along_both_axes(focal))


def canonical_camera(heads: Mapping[str, HeadSpec], focal: Focal | None) -> CanonicalCamera | None:
    """What converts the predictions of these heads into metres; None where they need no focal length.

    Raises:
        DataError: they need a focal length, and there is none, or none above 0.
    """
    canonical = {name: spec.focal for name, spec in heads.items() if spec.focal is not None}
    if not canonical:
        return None
    if focal is None:
        raise DataError(
            f"head {', '.join(canonical)}: metres follow from the camera's focal length, and none is known. Give it in "
            "pixels of the image: focal=PIXELS (--focal PIXELS); width / (2 tan(half the horizontal field of view))."
        )
    given = along_both_axes(focal)
    if len(given) != 2 or not all(isinstance(length, Real) and 0 < length < inf for length in given):
        raise DataError(f"focal is {focal}; a focal length is a number of pixels above 0, or two, along x and y.")
    return CanonicalCamera((given[0], given[1]), canonical)


def along_both_axes(focal: Focal) -> tuple[float, ...]:
    return tuple(focal) if isinstance(focal, Sequence) else (focal, focal)
