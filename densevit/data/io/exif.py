"""The focal length that a camera wrote into its photo (EXIF 2.32)."""

import os
from collections.abc import Mapping
from math import hypot, isfinite
from typing import Any

from PIL import ExifTags

from densevit.data.io.images import MAX_PIXELS, Raster
from densevit.errors import DataError
from densevit.ops.geometry import field_of_view, is_possible_fov

FULL_FRAME = hypot(36, 24)  # mm, the diagonal of 35 mm film
MM = {2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}  # FocalPlaneResolutionUnit: inch, cm, mm, um
LARGEST_ASPECT_CHANGE = 1.02  # beyond, the file shows a part of what the camera took
Tag = ExifTags.Base


def exif_focal(path: str | os.PathLike[str], max_pixels: int = MAX_PIXELS) -> float | None:
    """Return the focal length of a photo in its own pixels; None where EXIF does not tell.

    From the 35 mm equivalent by the diagonal (CIPA DCG-001), else from the focal length in mm and the pixel pitch. Both
    hold for a resized photo; they do not for a cropped one. Raises DataError naming the file and the value, where EXIF
    cannot be true of this image.
    """
    raster = Raster.open(path, max_pixels)
    width, height = size = raster.header.size
    tags = exif_tags(raster)
    if focal := number(path, tags, Tag.FocalLengthIn35mmFilm):  # 0: not known
        focal = focal * hypot(width, height) / FULL_FRAME
    else:
        focal = from_pixel_pitch(path, tags, size)
    if focal is None:
        return None
    check_not_cropped(path, tags, size)
    if not is_possible_fov(fov := field_of_view(width, focal)):
        raise DataError(
            f"{path}: EXIF gives a focal length of {focal:.4g} pixels, a field of view of {fov:.3g} degrees across "
            f"{width} pixels, which no photo has. Give --focal, --fov or --intrinsics."
        )
    return focal


def exif_fov(path: str | os.PathLike[str]) -> float | None:
    """Return the horizontal field of view of a photo in degrees; None where EXIF does not tell, or cannot be true."""
    try:
        focal = exif_focal(path)
        return None if focal is None else field_of_view(Raster.open(path).size[1], focal)
    except DataError:
        return None


def exif_tags(raster: Raster) -> Mapping[int, Any]:
    """Return the tags of the camera; none where EXIF is missing or cannot be parsed."""
    if raster.format == "PNG" and not raster.may_hold_exif():
        return {}
    try:
        return dict(raster.header.getexif().get_ifd(ExifTags.IFD.Exif))
    except Exception:  # a parser over damaged bytes raises anything
        return {}


def from_pixel_pitch(path: object, tags: Mapping[int, Any], size: tuple[int, int]) -> float | None:
    focal = number(path, tags, Tag.FocalLength)
    per_unit = number(path, tags, Tag.FocalPlaneXResolution)
    taken = number(path, tags, Tag.ExifImageWidth) or 0, number(path, tags, Tag.ExifImageHeight) or 0
    # The longer sides correspond, since some programs turn the pixels and leave the size in EXIF as it was.
    resized = max(size) / max(taken) if all(taken) else size[0] / (taken[0] or size[0])
    unit = MM.get(int(number(path, tags, Tag.FocalPlaneResolutionUnit) or 2))
    if not focal or not per_unit or unit is None:
        return None
    zoom = number(path, tags, Tag.DigitalZoomRatio) or 1.0  # which the focal length in mm does not know
    return focal * per_unit / unit * zoom * resized


def check_not_cropped(path: object, tags: Mapping[int, Any], size: tuple[int, int]) -> None:
    """Raise DataError: the camera took an image of another aspect ratio, so that its focal length is not that of the
    file."""
    taken = number(path, tags, Tag.ExifImageWidth), number(path, tags, Tag.ExifImageHeight)
    if not taken[0] or not taken[1]:
        return
    change = (taken[0] / taken[1]) / (size[0] / size[1])
    turned = (taken[1] / taken[0]) / (size[0] / size[1])
    if all(max(ratio, 1 / ratio) > LARGEST_ASPECT_CHANGE for ratio in (change, turned)):
        raise DataError(
            f"{path}: EXIF is of {taken[0]:g} x {taken[1]:g} pixels, and the file has {size[0]} x {size[1]}: it was "
            "cropped, so the focal length in EXIF is not its own. Give --focal, --fov or --intrinsics."
        )


def number(path: object, tags: Mapping[int, Any], tag: int) -> float | None:
    """Raise DataError if it is no number, or negative."""
    if tag not in tags:
        return None
    try:
        value = float(tags[tag])
    except (TypeError, ValueError, ZeroDivisionError):
        value = -1.0
    if not isfinite(value) and tag == Tag.FocalLengthIn35mmFilm:
        value = -1.0
    if value < 0:
        raise DataError(f"{path}: EXIF says {ExifTags.TAGS[tag]} {tags[tag]!r}, which is no length.")
    return value if isfinite(value) else None
