"""Samples as reports, TensorBoard and Jupyter show them: images side by side, with captions. h x w pixels, metres."""

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
from jaxtyping import Bool, Float, Int64, UInt8
from PIL import Image

from densevit.model_card import HeadSpec, Palette
from densevit.ops.colors import (
    colorize,
    colorize_normals,
    draw_text,
    paint,
    palette_for,
    percentile_range,
    table,
    text_width,
)
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
    """Draw ground truth and prediction in one colour scale; the error has its own. `prediction`: metres, at
    the size of the ground truth; what is not over 0 counts as no prediction."""
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
        f"relative error{note}": colorize(shrink(error), 0, MAX_ERROR, "magma"),
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
    """Return True classes, predicted ones, and where they differ; the legend has the classes that occur."""
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
    """Return True and predicted segments as drawn over the image; the legend has the classes that occur."""
    maps = {"ground truth": truth, "prediction": prediction}
    return _figure(image, {caption: shrink(pixels, cv2.INTER_AREA) for caption, pixels in maps.items()}, **fields)


def normals_figure(
    *,
    image: UInt8[np.ndarray, "h w 3"],
    truth: Float[np.ndarray, "h w 3"],
    prediction: Float[np.ndarray, "h w 3"],
    **fields: Any,
) -> Figure:
    """Return True and predicted normals in colours, and the angle between them."""
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
    """Return the image; `score` names its classes."""
    pixels = lossless(image) if max(image.shape) <= THUMBNAIL else jpeg(shrink(image, cv2.INTER_AREA))
    return Figure(panels=[("image", pixels)], thumbnails=[], **fields)


def _figure(image: Image8, maps: dict[str, Image8], **fields: Any) -> Figure:
    image = shrink(image, cv2.INTER_AREA)
    error = list(maps.values())[-1]
    panels = [("image", jpeg(image)), *((caption, lossless(pixels)) for caption, pixels in maps.items())]
    thumbnails = [jpeg(shrink(pixels, cv2.INTER_AREA, THUMBNAIL)) for pixels in (image, error)]
    return Figure(panels=panels, thumbnails=thumbnails, **fields)


def _enlarged(values: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Return each known pixel spread over its neighbours, the largest value winning."""
    grown = cv2.dilate(np.where(np.isfinite(values), values, -1).astype(np.float32), np.ones((5, 5), np.uint8))
    return np.where(grown >= 0, grown, np.nan)


def shrink(pixels: np.ndarray, interpolation: int = cv2.INTER_NEAREST, width: int = MAX_WIDTH) -> np.ndarray:
    """Return the image at most `width` pixels wide."""
    h, w = pixels.shape[:2]
    if w <= width:
        return pixels
    return np.asarray(cv2.resize(pixels, (width, max(1, round(h * width / w))), interpolation=interpolation))


def color_bar(cmap: str) -> str:
    """Return the address of an image of a colour map, its low end at the left."""
    return lossless(table(cmap)[None].repeat(8, axis=0))


def lossless(pixels: UInt8[np.ndarray, "h w 3"]) -> str:
    """Return a `data:` address of the image, in WebP, which is smaller than PNG."""
    return _data_address("webp", pixels, lossless=True)


def jpeg(pixels: UInt8[np.ndarray, "h w 3"]) -> str:
    """Return a `data:` address of the image."""
    return _data_address("jpeg", pixels, quality=88)


def _data_address(form: str, pixels: UInt8[np.ndarray, "h w 3"], **options: int) -> str:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, form, **options)
    return f"data:image/{form};base64,{base64.b64encode(content.getvalue()).decode()}"


TOP = 5  # classes of an image that are listed
CMAP = "turbo"
DEPTHS = {"metric": "depth in metres", "affine": "depth without unit", "disparity": "disparity without unit"}


class PredictedArray(np.ndarray):
    """A NumPy array, with the head that it came from. What is computed from it is a plain array; so is its pickle."""

    spec: HeadSpec | None  # kind, unit and classes of the head

    def __new__(cls, values: np.ndarray, spec: HeadSpec) -> "PredictedArray":
        array = np.asarray(values).view(cls)
        array.spec = spec
        return array

    def __array_finalize__(self, source: Any) -> None:
        self.spec = getattr(source, "spec", None)

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def _repr_html_(self) -> str | None:
        """Return the depth in colours with its scale, classes in theirs with a legend, the likeliest classes of an
        image."""
        values, spec = np.asarray(self), self.spec
        if spec is None or not values.size:
            return None
        if spec.output_kind.image_level:
            return class_table(values, spec) if values.shape == (len(spec.classes),) else None
        if spec.output_kind.has_classes:
            if values.ndim == 3 and len(values) == len(spec.classes):
                values = values.argmax(0)
            return classes_html(values, spec) if values.ndim == 2 and values.dtype.kind in "iu" else None
        return depth_html(values, spec) if values.ndim == 2 and spec.output_kind.is_depth else None


def depth_html(values: np.ndarray, spec: HeadSpec) -> str:
    low, high = percentile_range(values)
    unit = " m" if spec.output_kind.is_metric else ""
    scale = f'{low:.3g}{unit} <img src="{color_bar(CMAP)}" alt="" style="display:inline;height:10px;width:160px"> '
    return _map_html(
        shrink(colorize(values, low, high, CMAP)), values.shape, f"{DEPTHS[spec.kind]}<br>{scale}{high:.3g}{unit}"
    )


def classes_html(ids: np.ndarray, spec: HeadSpec) -> str:
    palette = palette_for(spec)
    present = [i for i in np.unique(ids).tolist() if 0 <= i < len(palette)]
    square = "display:inline-block;width:10px;height:10px;background:rgb({},{},{})"
    legend = " ".join(
        f'<span style="{square.format(*palette[i])}"></span> {html.escape(spec.classes[i])}' for i in present
    )
    return _map_html(shrink(paint(ids, palette)), ids.shape, f"classes<br>{legend}")


def class_table(logits: np.ndarray, spec: HeadSpec) -> str:
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    best = np.argsort(-shares, kind="stable")[:TOP].tolist()
    rows = "".join(f"<tr><td>{html.escape(spec.classes[i])}</td><td>{shares[i]:.1%}</td></tr>" for i in best)
    return f"<table>{rows}</table>"


def _map_html(pixels: np.ndarray, size: tuple[int, ...], caption: str) -> str:
    h, w = size
    return f'<figure><img src="{lossless(pixels)}" alt=""><figcaption>{h} x {w}, {caption}</figcaption></figure>'


SIDE = 112  # pixels that an image is wide at least: smaller ones are repeated
LINE, SIZE, INK, PAPER = 16, 12, (30, 30, 30), 255  # pixels of a line and of its letters


class ColorBar(NamedTuple):
    """A colour map below some columns, with what its ends mean."""

    columns: range
    low: str
    cmap: str
    high: str


def panel(
    rows: Sequence[tuple[str, Sequence[Image8]]],
    captions: Sequence[str],
    bars: Sequence[ColorBar] = (),
    legend: Sequence[tuple[tuple[int, int, int], str]] = (),
) -> Image8:
    """Draw rows of images of one size.

    Args:
        rows: a line above the images of a row, and the images.
        captions: of the columns.
        legend: colours and what they mean.
    """
    factor = max(1, -(-SIDE // rows[0][1][0].shape[1]))
    width = factor * rows[0][1][0].shape[1]
    whole = len(captions) * width
    lines = [text_line(whole, {i * width: caption for i, caption in enumerate(captions)})]
    for text, images in rows:
        lines.append(text_line(whole, {0: text}))
        lines.append(np.concatenate(images, axis=1).repeat(factor, 0).repeat(factor, 1))
    if bars:
        lines.append(bar_line(whole, width, bars))
    offset, entries = 0, dict[int, tuple[tuple[int, int, int], str]]()
    for color, name in [*legend, ((0, 0, 0), "")]:
        needed = LINE + text_width(name, SIZE) + 9
        if entries and (not name or offset + needed > whole):
            line = text_line(whole, {x + LINE: text for x, (_, text) in entries.items()})
            for x, (shade, _) in entries.items():
                line[3:-3, x + 3 : x + LINE - 3] = shade
            lines.append(line)
            offset, entries = 0, {}
        entries[offset] = color, name
        offset += needed
    return np.concatenate(lines)


def text_line(width: int, texts: dict[int, str]) -> Image8:
    """Return a strip with texts from pixels on."""
    line = np.full((LINE, width, 3), PAPER, np.uint8)
    for x, text in texts.items():
        draw_text(line, text, (x + 2, LINE - 5), SIZE, INK)
    return line


def bar_line(whole: int, width: int, bars: Sequence[ColorBar]) -> Image8:
    texts = {bar.columns.start * width: bar.low for bar in bars}
    ends = {bar.columns.stop * width - text_width(bar.high, SIZE) - 4: bar.high for bar in bars}
    line = text_line(whole, texts | ends)
    for bar in bars:
        start = bar.columns.start * width + text_width(bar.low, SIZE) + 8
        stop = bar.columns.stop * width - text_width(bar.high, SIZE) - 8
        if stop > start:
            line[4:-4, start:stop] = table(bar.cmap)[np.linspace(0, 255, stop - start).astype(int)]
    return line
