"""The camera behind a picture, for models that give metres only to who says with what lens it was taken."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from numbers import Real

from densevit.errors import DataError
from densevit.inference.tta import Outputs
from densevit.model_card import HeadSpec
from densevit.structures import Size

Focal = float | Sequence[float]
"""Focal length in pixels of the picture at its full size: one number, or along x and y."""


@dataclass(frozen=True)
class Camera:
    """
    Attributes:
        focal: along x and y, in pixels.
        canonical: heads whose answers are metres for a camera of so many pixels, as the network sees the picture.
    """

    focal: tuple[float, float]
    canonical: Mapping[str, float]

    def in_metres(self, answers: Outputs, size: Size, seen: Size) -> Outputs:
        """Answers to a picture of `size` that met the network at the size `seen`."""
        fx, fy = (
            length * after / before for length, after, before in zip(self.focal, seen[::-1], size[::-1], strict=True)
        )
        at_network = (fx + fy) / 2
        return {
            name: y * (at_network / self.canonical[name]) if name in self.canonical else y
            for name, y in answers.items()
        }


def zoomed(focal: Focal | None, factor: float) -> Focal | None:
    """Of a picture whose sides were multiplied by `factor`."""
    return None if focal is None else tuple(length * factor for length in both(focal))


def camera_for(outputs: Mapping[str, HeadSpec], focal: Focal | None) -> Camera | None:
    """What turns the answers of these heads into metres; None where they need nothing.

    Raises:
        DataError: they need a focal length, and there is none, or none above 0.
    """
    canonical = {name: spec.focal for name, spec in outputs.items() if spec.focal is not None}
    if not canonical:
        return None
    if focal is None:
        raise DataError(
            f"head {', '.join(canonical)}: metres follow from the camera's focal length, and none is known. Give it in "
            "pixels of the picture: focal=PIXELS (--focal PIXELS); width / (2 tan(half the horizontal field of view))."
        )
    given = both(focal)
    if len(given) != 2 or not all(isinstance(length, Real) and 0 < length < inf for length in given):
        raise DataError(f"focal is {focal}; a focal length is a number of pixels above 0, or two, along x and y.")
    return Camera((given[0], given[1]), canonical)


def both(focal: Focal) -> tuple[float, ...]:
    return tuple(focal) if isinstance(focal, Sequence) else (focal, focal)
