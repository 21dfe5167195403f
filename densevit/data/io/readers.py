"""Reads images (h w 3, 8-bit RGB), depth (h w, metres) and label maps (h w, class ids), from files or from Python.

All three are upright (EXIF orientation applied), so an image and its maps line up whichever of them carries the tag.
"""

import hashlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import IOBase
from pathlib import Path
from typing import Any, TypeGuard, Union

import numpy as np
from jaxtyping import Float32, Int64, Integer, Shaped, UInt8
from PIL import Image, ImageOps

from densevit.data.io.arrays import READERS, hdf5_kind, read_array
from densevit.data.io.images import GRAY16, LOSSY, MAX_PIXELS, Raster, file_format
from densevit.data.labels.class_table import BAD_LABELS, LabelError
from densevit.errors import DataError
from densevit.model_card import Palette
from densevit.utils.atomic_io import atomic_write, make_folder

SCALE_KEY = "depth_scale"  # PNG text chunk with the stored units per metre; `export` writes it
CODING_KEYS = ("value_scale", "value_offset")  # those of maps without unit: value = stored / scale + offset, 0: none
NOT_MEASURED = (65535,)  # stored depth that means so, unless a data set says otherwise


def read_image(path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS) -> UInt8[np.ndarray, "h w 3"]:
    """Read a JPEG, PNG, WEBP, TIFF, BMP, GIF, JPEG 2000, AVIF or HEIC (extra `heif`) as 8-bit RGB.

    Gray is repeated, palettes are looked up, CMYK is converted, alpha is dropped, of 16 bits the upper 8 are kept; of
    several frames or pages the first is read, with a warning. Raises DataError naming the file, when it is missing,
    damaged, truncated, no image, or larger than `max_pixels` (checked in the header, before anything is decoded).
    """
    return Raster.open(path, max_pixels).rgb()


def image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return (h, w) of the upright image, from its header."""
    return Raster.open(path).size


class UnknownUnit(DataError):
    """A depth map of integers, of which nothing says how many are a metre."""

    kind = "unknown_unit"


class CoarseDepth(DataError):
    """A depth map of 8 bits or of colours."""

    kind = "coarse_depth"

    def __init__(self, path: Path, fault: str) -> None:
        super().__init__(
            f"{path}: {fault}, too coarse for metres: probably a colour map, a preview or a relative map. Depth must "
            "be one channel of 16-bit integers (with depth_scale) or floats."
        )


def read_depth(
    path: str | os.PathLike[str],
    scale: float | None = None,
    *,
    invalid: Sequence[float] = (),
    infinite: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> Float32[np.ndarray, "h w"]:
    """Read a depth map in metres; what is not a positive finite number comes back as 0.

    PNG and TIFF with 16 bits or more, NPY, NPZ, PFM, HDF5 (one array, or one called `depth`), and EXR (extra `exr`).
    8-bit and RGB files are refused: they are previews or colour maps. Raises DataError naming the file, when it is
    missing, damaged, no depth map, or integers without a scale.

    Args:
        scale: stored units per metre: 1000 for NYU, 256 for KITTI. None: float files are in metres, integer ones
            must say it themselves in a PNG text chunk `depth_scale`.
        invalid: stored values that mean that nothing was measured.
        infinite: keep inf, which predictions may hold.
    """
    path = Path(path)
    stored, coding = read_wide(path, max_pixels)
    scale = coding.get(SCALE_KEY) if scale is None else scale
    if scale is None and coding:
        raise UnknownUnit(
            f"{path}: it says that it holds no metres, but affine depth or disparity, which --prediction-type affine "
            "or disparity evaluates. A source of a mixture learns from it by `depth_scale: 1` and its `truth`."
        )
    if scale is None and stored.dtype.kind != "f":
        raise UnknownUnit(
            f"{path}: integer depth ({stored.dtype}) without a unit. Set depth_scale, the units per metre: "
            "data.depth_scale=1000 to train, --data-options depth_scale=1000 to evaluate, --scale for saved maps."
        )
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise DataError(f"{path}: depth_scale is {scale}; it must be a positive number of stored units per metre.")
    return stored_to_metres(stored, scale, invalid, infinite=infinite)


def read_values(path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS) -> Float32[np.ndarray, "h w"]:
    """Read a map of numbers without unit from the same formats, as they are stored, or as text chunks of their PNG
    decode them; NaN where one is not finite. Raises DataError naming the file, when it is missing, damaged, or of 8
    bits or colours."""
    stored, coding = read_wide(Path(path), max_pixels)
    scale, offset = (coding.get(key) for key in CODING_KEYS)
    with np.errstate(over="ignore"):
        if scale and offset is not None:
            stored = np.where(stored > 0, stored / scale + offset, np.nan)
        values = stored.astype(np.float32)
    values[~np.isfinite(values)] = np.nan
    return values


def read_wide(path: Path, max_pixels: int = MAX_PIXELS) -> tuple[Shaped[np.ndarray, "h w"], Mapping[str, float]]:
    """Return the numbers of a map of more than 8 bits as stored, and the scales that its own file names, by their keys.
    Raises DataError naming the file, when it is missing, damaged, or of 8 bits or colours."""
    kind, coding = file_format(path), {}
    if kind in READERS:
        stored = _two_dimensional(path, read_array(path, kind, max_pixels))
        coding = {CODING_KEYS[0]: 1.0} if kind == "HDF5" and hdf5_kind(path) in ("affine", "disparity") else {}
    else:
        raster = Raster.open(path, max_pixels)
        if raster.mode not in ("F", "I", *GRAY16):
            raise CoarseDepth(path, f"is {raster.format} {raster.mode}")
        keys = (SCALE_KEY, *CODING_KEYS)
        coding = {key: number for key in keys if (number := _text_number(raster, key)) is not None}
        stored = _two_dimensional(path, raster.stored())
    if stored.dtype.kind not in "iuf" or stored.dtype.itemsize < 2:
        raise CoarseDepth(path, f"holds {stored.dtype}")
    return stored, coding


def read_labels(path: str | os.PathLike[str]) -> Int64[np.ndarray, "h w"]:
    """Read class ids from a gray or palette PNG, TIFF or BMP (a palette's indices are the ids), or an integer NPY.
    Raises DataError naming the file, when it is missing, damaged, or colours instead of ids."""
    ids = read_stored_labels(path).pixels
    if ids.ndim == 3:
        raise LabelError(
            f"{path}: holds colours, not class ids; store a gray or palette PNG, or say in a file of classes what each "
            "colour means.",
            BAD_LABELS,
        )
    return ids.astype(np.int64)


@dataclass(frozen=True, eq=False)
class StoredLabels:
    """A label map as its file holds it."""

    pixels: Integer[np.ndarray, "h w *rgb"]  # class ids, or 8-bit RGB
    palette: Palette = ()  # the colours of the ids, where they are indices into a palette


def read_stored_labels(path: str | os.PathLike[str]) -> StoredLabels:
    """Read ids, as `read_labels` does, or colours. Raises DataError naming the file, when it is missing, damaged, or
    of a format that keeps neither exactly."""
    path = Path(path)
    palette: Palette = ()
    if file_format(path) == "NPY":
        ids = _two_dimensional(path, read_array(path, "NPY", MAX_PIXELS))
    else:
        raster = Raster.open(path)
        if raster.format in LOSSY:
            raise LabelError(
                f"{path}: {raster.format} does not keep class ids exactly; store labels as PNG.", BAD_LABELS
            )
        if raster.mode in ("RGB", "RGBA"):
            return StoredLabels(raster.rgb())
        if raster.mode not in ("1", "L", "P", "I", *GRAY16):
            raise LabelError(
                f"{path}: {raster.mode} holds neither class ids nor RGB; store a gray or palette PNG.", BAD_LABELS
            )
        step = _gray_step(raster)
        ids, palette = (raster.stored() if step == 1 else raster.stored() // step), raster.palette()
    if ids.dtype.kind not in "iub":
        raise LabelError(f"{path}: labels must be integers, got {ids.dtype}.", BAD_LABELS)
    return StoredLabels(ids.astype(np.int64), palette)


def stored_to_metres(
    stored: Shaped[np.ndarray, "h w"], scale: float | None, invalid: Sequence[float] = (), *, infinite: bool = False
) -> Float32[np.ndarray, "h w"]:
    """Return a map of stored numbers in metres; the arguments are those of `read_depth`."""
    metres: Float32[np.ndarray, "h w"]
    with np.errstate(over="ignore"):
        if stored.dtype == np.uint16:  # no negative, no NaN: the common case in one pass
            metres = stored.astype(np.float32) / np.float32(scale)
        else:
            # In float64 only where something is divided. Tiny values may round to 0 metres, huge ones overflow to inf.
            exact = stored if scale is None else stored.astype(np.float64) / scale
            metres = np.require(exact, np.float32, "W")  # what Pillow hands out is not to be written to
            if not (metres.min(initial=1) > 0 and metres.max(initial=1) < np.inf):  # neither holds of NaN
                metres[~((metres > 0) & ((metres < np.inf) | infinite))] = 0
        if invalid:
            metres[np.isin(stored.astype(np.float32), np.asarray(invalid, np.float32))] = 0
    return metres


def _text_number(raster: Raster, key: str) -> float | None:
    text = raster.text(key)
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{raster.path}: its text chunk {key} is {text[:40]!r}, not a number.") from None


def _two_dimensional(path: Path, array: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "h w"]:
    """h w out of h w, h w 1 (DIODE), 1 h w or 1 1 h w (a batch of one, as models give it)."""
    while array.ndim > 2 and 1 in (array.shape[0], array.shape[-1]):
        array = array.squeeze(-1 if array.shape[-1] == 1 else 0)
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"{path}: an array of shape {array.shape}; expected height x width.")
    return array


def _gray_step(raster: Raster) -> int:
    """Return what Pillow multiplied with: it stretches 2- and 4-bit gray to 0..255, whereas ids must stay."""
    if raster.mode != "L" or raster.format not in ("PNG", "TIFF"):
        return 1
    header: Any = raster.header
    bits = raster.data[24] if raster.format == "PNG" else header.tag_v2.get(258, (8,))[0]  # IHDR, BitsPerSample
    return int(255 // (2**bits - 1))


class DepthCache:
    """Reads depth maps as `read_depth` does, and keeps each as a float32 NPY file in `folder`.

    A file counts as changed when its path, its size, its modification time, the scale or `invalid` does.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, path: Path, scale: float | None = None, invalid: Sequence[float] = ()) -> Float32[np.ndarray, "h w"]:
        """Return the depth in metres, from the cache where it holds this file. Raises DataError if the file is bad.
        Raises StorageError if the folder cannot be written."""
        cached = self._cached_path(path, scale, invalid)
        depth = _load(cached)
        if depth is None:
            depth = read_depth(path, scale, invalid=invalid)
            make_folder(self.folder)
            atomic_write(cached, lambda file: np.save(file, depth, allow_pickle=False))
        return depth

    def _cached_path(self, path: Path, scale: float | None, invalid: Sequence[float]) -> Path:
        try:
            status = path.stat()
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read ({error}).") from error
        key = f"{path.absolute()}\n{status.st_size}\n{status.st_mtime_ns}\n{scale}"
        key += "".join(f"\n{value}" for value in invalid)
        return self.folder / f"{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()[:32]}.npy"


def _load(path: Path) -> Float32[np.ndarray, "h w"] | None:
    """Return the array; None where it is missing or damaged."""
    try:
        array = read_array(path, "NPY", MAX_PIXELS)
    except DataError:
        return None
    return array if array.dtype == np.float32 and array.ndim == 2 else None


Rgb = UInt8[np.ndarray, "_ _ 3"]
"""h w 3; each of a list may have another size."""

ImageLike = Union[str, "os.PathLike[str]", np.ndarray, Image.Image]


def is_batch(images: object) -> TypeGuard[Iterable[ImageLike]]:
    """Return True for any iterable of images, and for one array n h w 3; anything else counts as one image."""
    if isinstance(images, np.ndarray):
        return images.ndim == 4
    one = isinstance(images, (str, bytes, os.PathLike, Image.Image, IOBase)) or is_tensor(images)
    return isinstance(images, Iterable) and not one


def as_array(value: Any, missing: float | np.int64) -> Shaped[np.ndarray, "..."]:
    """Return an array for an array-like or a tensor, which may have a gradient, be in bfloat16 or on a GPU.

    Args:
        missing: the value of the masked entries of a masked array.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() else value
    if isinstance(value, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(value), missing, value.data)
    return np.asarray(value)


def as_rgb(image: object) -> Rgb:
    """Read, apply the EXIF orientation and convert. Raises DataError if it cannot be read, or is no image; the
    message says what came and what would fit."""
    if isinstance(image, (str, os.PathLike)):
        return read_image(image)
    if isinstance(image, Image.Image):
        if image.mode.startswith(("I", "F")):  # convert("RGB") would clip their values at 255
            what = f"a PIL image of mode {image.mode} has no 8-bit colours"
            raise DataError(f"{what}; give its path, or convert it to RGB.")
        image = np.array(ImageOps.exif_transpose(image).convert("RGB"))
    if isinstance(image, np.ndarray):
        return check_array(image)
    hint = " Models take tensors; see densevit.inference.forward." if is_tensor(image) else ""
    hint = " PIL.Image.open reads what an open file holds." if isinstance(image, IOBase) else hint
    raise DataError(f"{type(image).__name__} is no image: give a path, an h w 3 uint8 array or a PIL image.{hint}")


def stack(images: Sequence[Rgb]) -> UInt8[np.ndarray, "b h w 3"]:
    """Return a batch of images of one size; a single one is not copied where torch takes its memory as it is."""
    flags = images[0].flags
    return images[0][None] if len(images) == 1 and flags.c_contiguous and flags.writeable else np.stack(images)


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
