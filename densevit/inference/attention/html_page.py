"""Attention as pictures: a PNG for every map, and one HTML page that holds them all. gh x gw cells, h x w pixels."""

import base64
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from jaxtyping import Float32, UInt8

from densevit.data.io.writers import ImageFormat, encode
from densevit.errors import StorageError
from densevit.inference.attention.maps import Attention
from densevit.ops.colormap import colorize
from densevit.reporting.html_page import STYLE
from densevit.utils.atomic_io import atomic_path, write_text

SHEET = "attention.html"
LARGE, SMALL = 512, 176  # longer side in pixels of a PNG, and of a picture in the page
COLORS = "inferno"

PAGE_STYLE = """
main { max-width: none; }
.layer { display: flex; gap: 8px; overflow-x: auto; padding-bottom: 8px; }
.layer img { display: block; width: 176px; border-radius: 4px; }
.layer figure.apart { margin-right: 16px; }
"""


class Shown(NamedTuple):
    """One map: what it is called in a file name, and what it is."""

    name: str
    caption: str
    map: Float32[np.ndarray, "gh gw"]


def write_sheet(folder: Path, attention: Attention, *, title: str) -> list[Path]:
    """Writes the page, the picture as the network saw it, and a PNG of every map, making the folder.

    Returns:
        their paths, the page first.

    Raises:
        StorageError: the folder cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made ({error.strerror}).") from error
    pictures = {"image": fitted(attention.image, LARGE)}
    pictures |= {
        shown.name: overlay(attention, shown.map, LARGE)
        for layer in range(len(attention.weights))
        for shown in maps(attention, layer)
    }
    for name, pixels in pictures.items():
        with atomic_path(folder / f"{name}.png") as path:
            path.write_bytes(encode(".png", pixels))
    write_text(folder / SHEET, page(attention, title))
    return [folder / SHEET, *(folder / f"{name}.png" for name in pictures)]


def maps(attention: Attention, layer: int) -> Iterator[Shown]:
    """A layer's mean, its rollout, then its heads."""
    stem = f"layer{layer:02d}"
    yield Shown(f"{stem}_mean", "mean of heads", attention.mean()[layer])
    yield Shown(f"{stem}_rollout", "rollout", attention.rollout[layer])
    for head, weights in enumerate(attention.weights[layer]):
        yield Shown(f"{stem}_head{head:02d}", f"head {head}", weights)


def overlay(attention: Attention, map_: Float32[np.ndarray, "gh gw"], side: int) -> UInt8[np.ndarray, "height width 3"]:
    """The picture in grey under the map's colours, each square one token; the brightest is the map's largest value."""
    top, left, h, w = attention.window
    cells = map_.repeat(attention.patch, 0).repeat(attention.patch, 1)[top : top + h, left : left + w]
    share = fitted(cells / max(float(map_.max()), 1e-12), side)
    grey = cv2.cvtColor(fitted(attention.image, side), cv2.COLOR_RGB2GRAY)[..., None]
    mixed = 0.45 * grey + 0.55 * colorize(share, 0.0, 1.0, COLORS)
    return np.rint(mixed).astype(np.uint8)


def fitted(pixels: np.ndarray, side: int) -> np.ndarray:
    """Its longer side near `side`: small pictures grow by whole factors, so that pixels stay squares."""
    h, w = pixels.shape[:2]
    if max(h, w) <= side:
        factor = side // max(h, w)
        return pixels.repeat(factor, 0).repeat(factor, 1)
    size = (max(1, round(w * side / max(h, w))), max(1, round(h * side / max(h, w))))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA))


def page(attention: Attention, title: str) -> str:
    layers, heads, gh, gw = attention.weights.shape
    h, w = attention.image.shape[:2]
    about = (
        f"What the {attention.asker} takes from each patch: {layers} layers of {heads} heads, {gh} x {gw} tokens of "
        f"{attention.patch} x {attention.patch} pixels over a picture that met the network at {h} x {w} pixels. "
        "Colours run from 0 to the largest value of each map, which its caption tells; an even look would give every "
        f"token {1 / (gh * gw):.4f}. Rollout is the product of the layers so far, skip connections counted as half."
    )
    rows = "".join(section(attention, layer) for layer in range(layers))
    picture = figure("the picture", fitted(attention.image, SMALL), ".jpg")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{PAGE_STYLE}</style></head><body><main>"
        f'<h1>{escape(title)}</h1><p>{escape(about)}</p><div class="layer">{picture}</div>{rows}</main></body></html>\n'
    )


def section(attention: Attention, layer: int) -> str:
    on_patches = float(attention.mean()[layer].sum())
    figures = "".join(
        figure(f"{shown.caption}, to {shown.map.max():.4f}", overlay(attention, shown.map, SMALL), ".jpg", i == 1)
        for i, shown in enumerate(maps(attention, layer))
    )
    return f'<h2>layer {layer}, {on_patches:.0%} of its attention on patches</h2><div class="layer">{figures}</div>'


def figure(caption: str, pixels: UInt8[np.ndarray, "h w 3"], form: ImageFormat, apart: bool = False) -> str:
    kind = {".jpg": "jpeg", ".png": "png"}[form]
    source = f"data:image/{kind};base64,{base64.b64encode(encode(form, pixels)).decode()}"
    text, extra = escape(caption), ' class="apart"' if apart else ""
    return f'<figure{extra}><img src="{source}" alt="{text}"><figcaption>{text}</figcaption></figure>'
