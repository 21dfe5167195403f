"""Samples as a report shows them: image, ground truth, prediction and error side by side. h x w pixels, metres."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from jaxtyping import Bool, Float, Int64, UInt8
from PIL import Image

from densevit.model_card import Palette
from densevit.ops.colors import colorize, colorize_normals, paint, percentile_range, table
from densevit.structures import IGNORE

MAX_WIDTH = 480  # pixels of an image in the page
THUMBNAIL = 100
MAX_ERROR = 0.3  # relative error with the error map's last colour
MAX_ANGLE = 45.0  # degrees with the last colour of the map of angles
SPARSE = 0.5  # share of measured pixels under which they are drawn larger, to be seen at all
SAME, OTHER, UNKNOWN = (222, 226, 230), (198, 40, 40), (255, 255, 255)

Image8 = UInt8[np.ndarray, "_ _ 3"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One sample in a page; the template `macros.html` draws it."""

    name: str
    label: str  # why it is shown: best, median, worst
    score: str  # of the sample, in words
    panels: Sequence[tuple[str, str]]  # caption and image address, side by side
    thumbnails: Sequence[str]  # image addresses
    # of the colour maps: text of the low end, address of the bar, text of the high end
    scales: Sequence[tuple[str, str, str]] = ()
    legend: Sequence[tuple[tuple[int, int, int], str]] = ()  # colours and their class names

    @property
    def anchor(self) -> str:
        return f"sample-{self.name}"


def depth_figure(
    *,
    image: UInt8[np.ndarray, "h w 3"],
    depth: Float[np.ndarray, "h w"],
    valid: Bool[np.ndarray, "h w"],
    prediction: Float[np.ndarray, "h w"],
    **fields: Any,
) -> Figure:
    """Ground truth and prediction share one colour scale, the error has its own. `prediction`: metres, at the size of
    the ground truth; what is not over 0 counts as no prediction."""
    gt = np.where(valid, depth, np.nan)
    prediction = np.where(prediction > 0, prediction, np.nan)
    near, far = percentile_range(gt)
    error = np.abs(prediction - gt) / gt
    sparse = bool(valid.mean() < SPARSE)
    note = " (points enlarged)" * sparse
    if sparse:
        gt, error = _enlarged(gt), _enlarged(error)
    maps = {
        f"ground truth{note}": colorize(shrink(gt), near, far, "turbo"),
        "prediction": colorize(shrink(prediction), near, far, "turbo"),
        f"|p - d| / d{note}": colorize(shrink(error), 0, MAX_ERROR, "magma"),
    }
    scales = [
        (f"{near:.2f} m", color_bar("turbo"), f"{far:.2f} m"),
        ("0%", color_bar("magma"), f"{MAX_ERROR:.0%} error"),
    ]
    return _figure(image, maps, **fields, scales=scales)


def segmentation_figure(
    *,
    image: UInt8[np.ndarray, "h w 3"],
    labels: Int64[np.ndarray, "h w"],
    predicted: Int64[np.ndarray, "h w"],
    classes: Sequence[str],
    palette: Palette,
    **fields: Any,
) -> Figure:
    """True classes, predicted ones, and where they differ; the legend has the classes that occur."""
    wrong = np.where((labels == predicted)[..., None], SAME, OTHER).astype(np.uint8)
    wrong[labels == IGNORE] = UNKNOWN
    maps = {
        "ground truth": shrink(paint(labels, palette)),
        "prediction": shrink(paint(predicted, palette)),
        "red where they differ": shrink(wrong),
    }
    occurring = [i for i in np.union1d(labels, predicted).tolist() if 0 <= i < len(palette)]
    legend = [(palette[i], classes[i]) for i in occurring]
    return _figure(image, maps, **fields, legend=legend)


def segments_figure(
    *,
    truth: UInt8[np.ndarray, "h w 3"],
    prediction: UInt8[np.ndarray, "h w 3"],
    image: UInt8[np.ndarray, "h w 3"],
    **fields: Any,
) -> Figure:
    """True and predicted segments as drawn over the image; the legend has the classes that occur."""
    maps = {"ground truth": truth, "prediction": prediction}
    return _figure(image, {caption: shrink(pixels, cv2.INTER_AREA) for caption, pixels in maps.items()}, **fields)


def normals_figure(
    *,
    image: UInt8[np.ndarray, "h w 3"],
    truth: Float[np.ndarray, "h w 3"],
    prediction: Float[np.ndarray, "h w 3"],
    **fields: Any,
) -> Figure:
    """True and predicted normals in colours, and the angle between them."""
    angle = np.degrees(np.arccos((truth.astype(np.float64) * prediction).sum(2).clip(-1, 1)))
    error = np.where((truth != 0).any(axis=2), angle, np.nan)
    maps = {
        "ground truth": shrink(colorize_normals(truth)),
        "prediction": shrink(colorize_normals(prediction)),
        "angle between them": colorize(shrink(error), 0, MAX_ANGLE, "magma"),
    }
    scales = [("0°", color_bar("magma"), f"{MAX_ANGLE:g}°")]
    return _figure(image, maps, **fields, scales=scales)


def classification_figure(image: UInt8[np.ndarray, "h w 3"], **fields: Any) -> Figure:
    """The image; `score` names its classes."""
    pixels = lossless(image) if max(image.shape) <= THUMBNAIL else jpeg(shrink(image, cv2.INTER_AREA))
    return Figure(panels=[("image", pixels)], thumbnails=[], **fields)


def _figure(image: Image8, maps: dict[str, Image8], **fields: Any) -> Figure:
    image = shrink(image, cv2.INTER_AREA)
    error = list(maps.values())[-1]
    panels = [("image", jpeg(image)), *((caption, lossless(pixels)) for caption, pixels in maps.items())]
    thumbnails = [jpeg(shrink(pixels, cv2.INTER_AREA, THUMBNAIL)) for pixels in (image, error)]
    return Figure(panels=panels, thumbnails=thumbnails, **fields)


def _enlarged(values: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Each known pixel spread over its neighbours, the largest value winning."""
    grown = cv2.dilate(np.where(np.isfinite(values), values, -1).astype(np.float32), np.ones((5, 5), np.uint8))
    return np.where(grown >= 0, grown, np.nan)


def shrink(pixels: np.ndarray, interpolation: int = cv2.INTER_NEAREST, width: int = MAX_WIDTH) -> np.ndarray:
    """The image at most `width` pixels wide."""
    h, w = pixels.shape[:2]
    if w <= width:
        return pixels
    return np.asarray(cv2.resize(pixels, (width, max(1, round(h * width / w))), interpolation=interpolation))


def color_bar(cmap: str) -> str:
    """The address of an image of a colour map, its low end at the left."""
    return lossless(table(cmap)[None].repeat(8, axis=0))


def lossless(pixels: UInt8[np.ndarray, "h w 3"]) -> str:
    """A `data:` address of the image, in WebP, which is smaller than PNG."""
    return _data_address("webp", pixels, lossless=True)


def jpeg(pixels: UInt8[np.ndarray, "h w 3"]) -> str:
    """A `data:` address of the image."""
    return _data_address("jpeg", pixels, quality=88)


def _data_address(form: str, pixels: UInt8[np.ndarray, "h w 3"], **options: int) -> str:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, form, **options)
    return f"data:image/{form};base64,{base64.b64encode(content.getvalue()).decode()}"
