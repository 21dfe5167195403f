"""Colours of maps and classes, and text in images, in any script that the font of OpenCV 5 has."""

import threading
from functools import cache
from typing import Literal

import cv2
import numpy as np
from jaxtyping import Float, Int, UInt8

from densevit.errors import ConfigError
from densevit.model_card import HeadSpec, Palette
from densevit.structures import IGNORE

ColorMap = Literal["turbo", "magma", "inferno", "viridis", "spectral"]

_OPENCV = {
    "turbo": cv2.COLORMAP_TURBO,
    "magma": cv2.COLORMAP_MAGMA,
    "inferno": cv2.COLORMAP_INFERNO,
    "viridis": cv2.COLORMAP_VIRIDIS,
}

# ColorBrewer's diverging scheme of 11, red to violet.
_SPECTRAL = "9e0142 d53e4f f46d43 fdae61 fee08b ffffbf e6f598 abdda4 66c2a5 3288bd 5e4fa2"

UNKNOWN = (128, 128, 128)
"""The colour of NaN and infinity: no colour map here has this grey."""


def colorize(
    values: Float[np.ndarray, "h w"],
    vmin: float | None = None,
    vmax: float | None = None,
    cmap: str = "turbo",
) -> UInt8[np.ndarray, "h w 3"]:
    """Return RGB of each value: the map's first colour at `vmin` and below, its last at `vmax` and above. `vmin`,
    `vmax`: default to the 2nd and 98th percentile of the finite values. Raises ConfigError: an unknown colour map."""
    finite = np.isfinite(values)
    low, high = percentile_range(values) if vmin is None or vmax is None else (vmin, vmax)
    low, high = low if vmin is None else vmin, high if vmax is None else vmax
    span = high - low if high > low else 1.0
    halves = np.where(finite, values, low) / 2 - low / 2  # whose difference no float32 overflows
    shares = np.where(finite, halves / (span / 2), 0)
    colors: UInt8[np.ndarray, "h w 3"] = table(cmap)[np.rint(shares.clip(0, 1) * 255).astype(np.intp)]
    colors[~finite] = UNKNOWN
    return colors


def colorize_normals(normals: Float[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h w 3"]:
    """Return RGB of normals in camera axes (right, down, forward): blue faces the camera, green up, red right; grey
    unknown.

    The usual colours: (n + 1) / 2 of the components to the right, up and back.
    """
    valid = np.isfinite(normals).all(axis=2) & (normals != 0).any(axis=2)
    shares = (np.where(valid[..., None], normals, 0) * np.array([1, -1, -1]) + 1) / 2
    colors: UInt8[np.ndarray, "h w 3"] = np.rint(shares.clip(0, 1) * 255).astype(np.uint8)
    colors[~valid] = UNKNOWN
    return colors


def percentile_range(values: Float[np.ndarray, "..."], share: float = 0.02) -> tuple[float, float]:
    """Return the range of the finite values without `share` of them at either end; 0 to 1 of none."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = np.quantile(finite, (share, 1 - share))
    return float(low), float(high)


@cache
def table(cmap: str) -> UInt8[np.ndarray, "256 3"]:
    """Return the 256 colours of a map, first to last. Raises ConfigError: an unknown colour map."""
    if cmap in _OPENCV:
        colors = cv2.applyColorMap(np.arange(256, dtype=np.uint8)[:, None], _OPENCV[cmap])[:, 0, ::-1].copy()
    elif cmap == "spectral":
        anchors = np.array([list(bytes.fromhex(color)) for color in _SPECTRAL.split()], dtype=np.float64)
        at, positions = np.linspace(0, 1, 256), np.linspace(0, 1, len(anchors))
        colors = np.stack([np.interp(at, positions, channel) for channel in anchors.T], 1).round().astype(np.uint8)
    else:
        raise ConfigError(f"no colour map '{cmap}'. Known: {', '.join([*_OPENCV, 'spectral'])}.")
    colors.setflags(write=False)  # shared by every caller
    return colors


Rgb = UInt8[np.ndarray, "h w 3"]
BACKGROUND = (255, 255, 255)  # of pixels without a class


def usual_palette(count: int) -> Palette:
    """Return PASCAL VOC's colours: the bits of an id go to red, green and blue in turn, to their highest bits first."""
    return tuple(_voc(i) for i in range(1, count + 1))  # VOC's first is black, for its background


def _voc(index: int) -> tuple[int, int, int]:
    channels = [sum(((index >> 3 * bit + c) & 1) << (7 - bit) for bit in range(8)) for c in range(3)]
    return channels[0], channels[1], channels[2]


def palette_for(output: HeadSpec) -> Palette:
    """Return the colours of a head's classes: those of its data set, else the usual ones."""
    return output.palette or usual_palette(len(output.classes))


def paint(labels: Int[np.ndarray, "h w"], palette: Palette) -> Rgb:
    """Return each pixel in the colour of its class; white where it has none."""
    table = np.array([*palette, BACKGROUND], np.uint8)
    in_palette = (labels >= 0) & (labels < len(palette)) & (labels != IGNORE)
    return table[np.where(in_palette, labels, len(palette))]


def overlay(image: Rgb, labels: Int[np.ndarray, "h w"], palette: Palette, opacity: float = 0.6) -> Rgb:
    """Return the colours over the image; pixels without a class show the image alone."""
    mixed = (1 - opacity) * image + opacity * paint(labels, palette)
    unknown = (labels < 0) | (labels >= len(palette)) | (labels == IGNORE)
    return np.where(unknown[..., None], image, mixed.round()).astype(np.uint8)


LOCK = threading.Lock()  # threads that draw with one font at a time get each other's glyphs
NORMAL = 400  # of the font's weights


@cache
def font() -> cv2.FontFace:
    return cv2.FontFace("sans")


def text_width(text: str, size: int) -> int:
    """Return the width of a line of text in pixels. `size`: of its letters in pixels."""
    with LOCK:
        left, _, width, _ = cv2.getTextSize((0, 0), text, (0, 0), font(), size, NORMAL)
    return int(left + width)


def draw_text(
    image: UInt8[np.ndarray, "h w 3"], text: str, at: tuple[int, int], size: int, color: tuple[int, int, int]
) -> None:
    """Draw a line of text into an image, in place. `at`: column and row of the left end of its base line; `size`: of
    its letters in pixels."""
    with LOCK:
        cv2.putText(image, text, at, color, font(), size, NORMAL)
