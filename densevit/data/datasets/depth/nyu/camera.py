"""NYU Depth v2's colour camera, and what may be done about the border of its 480 x 640 images."""

from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np

from densevit.data.fields import crop_sample
from densevit.errors import DataError
from densevit.ops.crops import NYU_PROJECTED, NYU_SIZE, NYU_WITHOUT_BORDER
from densevit.ops.geometry import pinhole
from densevit.structures import Box, Sample, crop

Border = Literal["keep", "black", "mask", "crop"]
"""black: the image outside NYU_PROJECTED; mask: depth outside NYU_WITHOUT_BORDER is not valid; crop: to that window."""

Pixels = TypeVar("Pixels", bound=np.ndarray)

# From the data set's toolbox (camera_params.m).
INTRINSICS = pinhole(518.8579, 519.4696, 325.5824, 253.7362)


def apply_border(sample: Sample, border: Border) -> Sample:
    """Raises DataError if the image is not of NYU's size."""
    if border == "keep":
        return sample
    check_size(sample.name, sample.image)
    if border == "crop":
        return crop_sample(sample, NYU_WITHOUT_BORDER)
    if border == "black":
        return replace(sample, image=zero_outside(sample.image, NYU_PROJECTED))
    if sample.depth is None or sample.valid is None:
        return sample
    depth, valid = (zero_outside(pixels, NYU_WITHOUT_BORDER) for pixels in (sample.depth, sample.valid))
    return replace(sample, depth=depth, valid=valid)


def apply_border_to_map(name: str, pixels: Pixels, border: Border, *, masked: bool) -> Pixels:
    """The same of a depth or label map alone. `masked`: whether `mask` concerns it."""
    if border == "keep":
        return pixels
    check_size(name, pixels)
    if border == "crop":
        return crop(pixels, NYU_WITHOUT_BORDER)
    return zero_outside(pixels, NYU_WITHOUT_BORDER) if border == "mask" and masked else pixels


def check_size(name: str, pixels: np.ndarray) -> None:
    if pixels.shape[:2] != NYU_SIZE:
        h, w = pixels.shape[:2]
        raise DataError(f"'{name}' is {h} x {w}, not NYU's 480 x 640; set `border: keep`.")


def zero_outside(pixels: Pixels, box: Box) -> Pixels:
    y0, y1, x0, x1 = box
    kept: Pixels = np.zeros_like(pixels)
    kept[y0:y1, x0:x1] = pixels[y0:y1, x0:x1]
    return kept
