"""Image, truth, prediction and error of one sample, as HTML figures with the pixels inside. h x w pixels, metres."""

import base64
import io
from dataclasses import dataclass
from html import escape

import cv2
import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image

from densevit.ops.colormap import colorize, spread, table

WIDEST = 480  # pixels of a picture in the page
ERROR = 0.3  # relative error with the error map's last colour
SPARSE = 0.5  # share of measured pixels under which they are drawn larger, to be seen at all


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One sample to show.

    Attributes:
        label: why it is shown: best, median, worst.
        prediction: metres, at the size of the truth; what is not over 0 counts as no prediction.
        abs_rel: as the protocol scored it.
    """

    name: str
    label: str
    image: UInt8[np.ndarray, "h w 3"]
    depth: Float[np.ndarray, "h w"]
    valid: Bool[np.ndarray, "h w"]
    prediction: Float[np.ndarray, "h w"]
    abs_rel: float


def row(picture: Picture) -> str:
    """The four maps beside each other; truth and prediction share one colour scale, the error has its own."""
    truth = np.where(picture.valid, picture.depth, np.nan)
    prediction = np.where(picture.prediction > 0, picture.prediction, np.nan)
    near, far = spread(truth)
    error = np.abs(prediction - truth) / truth
    enlarged = bool(picture.valid.mean() < SPARSE)
    panels = [
        figure("image", jpeg(shrink(picture.image, cv2.INTER_AREA))),
        figure("truth" + " (points enlarged)" * enlarged, _map(truth, near, far, "turbo", enlarged)),
        figure("prediction", _map(prediction, near, far, "turbo", False)),
        figure("|p - d| / d" + " (points enlarged)" * enlarged, _map(error, 0, ERROR, "magma", enlarged)),
    ]
    head = f"<b>{escape(picture.label)}</b> {escape(picture.name)} <span>AbsRel {picture.abs_rel:.4f}</span>"
    scales = _scale("turbo", f"{near:.2f} m", f"{far:.2f} m") + _scale("magma", "0%", f"{ERROR:.0%} error")
    return (
        f'<section class="sample"><h3>{head}</h3><div class="panels">{"".join(panels)}</div>'
        f'<div class="scales">{scales}</div></section>'
    )


def _map(values: Float[np.ndarray, "h w"], low: float, high: float, cmap: str, enlarge: bool) -> str:
    small = shrink(_enlarged(values) if enlarge else values, cv2.INTER_NEAREST)
    return png(colorize(small, low, high, cmap))


def _enlarged(values: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Each known pixel spread over its neighbours, the largest value winning."""
    grown = cv2.dilate(np.where(np.isfinite(values), values, -1).astype(np.float32), np.ones((5, 5), np.uint8))
    return np.where(grown >= 0, grown, np.nan)


def shrink(pixels: np.ndarray, how: int) -> np.ndarray:
    h, w = pixels.shape[:2]
    return pixels if w <= WIDEST else np.asarray(cv2.resize(pixels, (WIDEST, round(h * WIDEST / w)), interpolation=how))


def figure(caption: str, source: str) -> str:
    text = escape(caption)
    return f'<figure><img src="{source}" alt="{text}"><figcaption>{text}</figcaption></figure>'


def _scale(cmap: str, low: str, high: str) -> str:
    """The colour map as a bar between the values of its ends."""
    return f'<span class="scale">{low}<img src="{png(table(cmap)[None].repeat(8, axis=0))}" alt="to">{high}</span>'


def png(pixels: UInt8[np.ndarray, "h w 3"]) -> str:
    return _data("image/png", pixels, "PNG", optimize=True)


def jpeg(pixels: UInt8[np.ndarray, "h w 3"]) -> str:
    return _data("image/jpeg", pixels, "JPEG", quality=88)


def _data(kind: str, pixels: UInt8[np.ndarray, "h w 3"], form: str, **options: int) -> str:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, form, **options)
    return f"data:{kind};base64,{base64.b64encode(content.getvalue()).decode()}"
