"""Paths, arrays and PIL images as UInt8 h w 3 in RGB."""

import os
from collections.abc import Iterable, Sequence
from io import IOBase
from typing import TypeGuard, Union

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from densevit.data.io.readers import read_image
from densevit.errors import DataError

Rgb = UInt8[np.ndarray, "_ _ 3"]
"""h w 3; each of a list may have another size."""

ImageLike = Union[str, "os.PathLike[str]", np.ndarray, Image.Image]


def is_batch(images: object) -> TypeGuard[Iterable[ImageLike]]:
    """True for any iterable of images, and for one array n h w 3; anything else counts as one image."""
    if isinstance(images, np.ndarray):
        return images.ndim == 4
    one = isinstance(images, (str, bytes, os.PathLike, Image.Image, IOBase)) or is_tensor(images)
    return isinstance(images, Iterable) and not one


def as_rgb(image: object) -> Rgb:
    """Reads, applies the EXIF orientation and converts. Raises DataError if it cannot be read, or is no image; the
    message says what came and what would fit."""
    if isinstance(image, (str, os.PathLike)):
        return read_image(image)
    if isinstance(image, Image.Image):
        return from_pil(image)
    if isinstance(image, np.ndarray):
        return check_array(image)
    hint = " Models take tensors; see densevit.inference.forward." if is_tensor(image) else ""
    hint = " PIL.Image.open reads what an open file holds." if isinstance(image, IOBase) else hint
    raise DataError(f"{type(image).__name__} is no image: give a path, an h w 3 uint8 array or a PIL image.{hint}")


def stack(images: Sequence[Rgb]) -> UInt8[np.ndarray, "b h w 3"]:
    """Return a batch of images of one size; a single one is not copied where torch takes its memory as it is."""
    flags = images[0].flags
    return images[0][None] if len(images) == 1 and flags.c_contiguous and flags.writeable else np.stack(images)


def from_pil(image: Image.Image) -> Rgb:
    if image.mode.startswith(("I", "F")):  # convert("RGB") would clip their values at 255
        raise DataError(f"a PIL image of mode {image.mode} has no 8-bit colours; give its path, or convert it to RGB.")
    return check_array(np.array(ImageOps.exif_transpose(image).convert("RGB")))


def check_array(image: np.ndarray) -> Rgb:
    came = f"{image.dtype} array of shape {image.shape}"
    if image.dtype != np.uint8:
        raise DataError(f"{came}: images are uint8, 0 to 255; `(image * 255).round().astype(np.uint8)` for [0, 1].")
    if image.ndim == 2:
        raise DataError(f"{came}: images are h w 3; `np.repeat(image[..., None], 3, axis=-1)` for a gray one.")
    if image.ndim != 3 or image.shape[-1] != 3:
        raise DataError(f"{came}: images are h w 3, RGB.{shape_hint(image)}")
    if image.size == 0:
        raise DataError(f"{came}: the image is empty.")
    return image


def shape_hint(image: np.ndarray) -> str:
    if image.ndim != 3:
        return ""
    if image.shape[-1] == 4:
        return " `image[..., :3]` drops the alpha channel."
    return " `image.transpose(1, 2, 0)` puts the channels last." if image.shape[0] == 3 else ""


def is_tensor(image: object) -> bool:
    return type(image).__module__.partition(".")[0] == "torch"
