"""Colours for classes: label maps as images, over the image or alone. h x w pixels, k classes."""

import numpy as np
from jaxtyping import Int, UInt8

from densevit.model_card import HeadSpec, Palette
from densevit.structures import IGNORE

Rgb = UInt8[np.ndarray, "h w 3"]
BACKGROUND = (255, 255, 255)  # of pixels without a class


def usual_palette(count: int) -> Palette:
    """PASCAL VOC's colours: the bits of an id go to red, green and blue in turn, to their highest bits first."""
    return tuple(_voc(i) for i in range(1, count + 1))  # VOC's first is black, for its background


def _voc(index: int) -> tuple[int, int, int]:
    channels = [sum(((index >> 3 * bit + c) & 1) << (7 - bit) for bit in range(8)) for c in range(3)]
    return channels[0], channels[1], channels[2]


def palette_for(output: HeadSpec) -> Palette:
    """The colours of a head's classes: those of its data set, else the usual ones."""
    return output.palette or usual_palette(len(output.classes))


def paint(labels: Int[np.ndarray, "h w"], palette: Palette) -> Rgb:
    """Each pixel in the colour of its class; white where it has none."""
    table = np.array([*palette, BACKGROUND], np.uint8)
    known = (labels >= 0) & (labels < len(palette)) & (labels != IGNORE)
    return table[np.where(known, labels, len(palette))]


def overlay(image: Rgb, labels: Int[np.ndarray, "h w"], palette: Palette, opacity: float = 0.6) -> Rgb:
    """The colours over the image; pixels without a class show the image alone."""
    mixed = (1 - opacity) * image + opacity * paint(labels, palette)
    unknown = (labels < 0) | (labels >= len(palette)) | (labels == IGNORE)
    return np.where(unknown[..., None], image, mixed.round()).astype(np.uint8)
