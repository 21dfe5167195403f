"""Attention maps as PNG files, and one HTML page that shows them all. gh x gw patches, h x w pixels."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from jaxtyping import Float32, UInt8

from densevit.data.io.writers import encode
from densevit.inference.attention.maps import Attention
from densevit.ops.colors import colorize
from densevit.reporting.figures import jpeg
from densevit.reporting.html_page import write_page
from densevit.utils.atomic_io import make_folder, write_bytes

PAGE = "attention.html"
LARGE, SMALL = 512, 176  # longer side in pixels of a PNG, and of an image in the page
CMAP = "inferno"


class NamedMap(NamedTuple):
    name: str  # of its file
    caption: str
    map: Float32[np.ndarray, "gh gw"]


def write_attention_page(folder: Path, attention: Attention, *, title: str) -> list[Path]:
    """Writes the page, the network's input image, and a PNG of every map, making the folder. Raises StorageError if the
    folder cannot be made or written to. Returns their paths, the page first."""
    make_folder(folder)
    layers = range(len(attention.weights))
    images = {"image": scale_to(attention.image, LARGE)}
    images |= {m.name: overlay(attention, m.map, LARGE) for layer in layers for m in named_maps(attention, layer)}
    for name, pixels in images.items():
        content = encode(".png", pixels)
        write_bytes(folder / f"{name}.png", content)
    page = write_page(
        folder / PAGE,
        "attention.html",
        title=title,
        subtitle=description(attention),
        image=jpeg(scale_to(attention.image, SMALL)),
        layers=[(heading(attention, layer), figures(attention, layer)) for layer in layers],
    )
    return [page, *(folder / f"{name}.png" for name in images)]


def named_maps(attention: Attention, layer: int) -> Iterator[NamedMap]:
    """The mean of a layer's heads, its rollout, then each head."""
    stem = f"layer{layer:02d}"
    yield NamedMap(f"{stem}_mean", "mean of heads", attention.mean()[layer])
    yield NamedMap(f"{stem}_rollout", "rollout", attention.rollout[layer])
    for head, weights in enumerate(attention.weights[layer]):
        yield NamedMap(f"{stem}_head{head:02d}", f"head {head}", weights)


def overlay(attention: Attention, map_: Float32[np.ndarray, "gh gw"], side: int) -> UInt8[np.ndarray, "height width 3"]:
    """The image in grey under the map's colours, each square one patch; the map's largest value is the brightest."""
    top, left, h, w = attention.window
    patches = map_.repeat(attention.patch_size, 0).repeat(attention.patch_size, 1)[top : top + h, left : left + w]
    share = scale_to(patches / max(float(map_.max()), 1e-12), side)
    grey = cv2.cvtColor(scale_to(attention.image, side), cv2.COLOR_RGB2GRAY)[..., None]
    mixed = 0.45 * grey + 0.55 * colorize(share, 0.0, 1.0, CMAP)
    return np.rint(mixed).astype(np.uint8)


def scale_to(pixels: np.ndarray, side: int) -> np.ndarray:
    """Its longer side near `side`: small images are enlarged by whole factors, so that pixels stay squares."""
    h, w = pixels.shape[:2]
    if max(h, w) <= side:
        factor = side // max(h, w)
        return pixels.repeat(factor, 0).repeat(factor, 1)
    size = (max(1, round(w * side / max(h, w))), max(1, round(h * side / max(h, w))))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA))


def description(attention: Attention) -> str:
    layers, heads, gh, gw = attention.weights.shape
    h, w = attention.image.shape[:2]
    return (
        f"Attention of the {attention.query} to each patch: {layers} layers of {heads} heads, {gh} x {gw} patches of "
        f"{attention.patch_size} x {attention.patch_size} pixels over the network's input of {h} x {w} pixels. "
        "Colours run from 0 to the largest value of each map, which its caption gives; uniform attention is "
        f"{1 / (gh * gw):.4f}. Rollout is the product of the layers so far, with half the weight on skip connections."
    )


def heading(attention: Attention, layer: int) -> str:
    return f"layer {layer}, {float(attention.mean()[layer].sum()):.0%} of its attention on patches"


def figures(attention: Attention, layer: int) -> list[tuple[str, str]]:
    """Caption and image address of each map of a layer."""
    return [
        (f"{m.caption}, to {m.map.max():.4f}", jpeg(overlay(attention, m.map, SMALL)))
        for m in named_maps(attention, layer)
    ]
