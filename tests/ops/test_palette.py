"""Colours of classes."""

import numpy as np

from densevit.ops.colors import BACKGROUND, overlay, paint, usual_palette
from densevit.structures import IGNORE


def test_the_usual_colours_are_pascal_vocs_after_its_black() -> None:
    # Aeroplane, bicycle, bird, boat, and the 20th, the television: from the VOC development kit's colour map.
    assert usual_palette(4) == ((128, 0, 0), (0, 128, 0), (128, 128, 0), (0, 0, 128))
    assert usual_palette(20)[-1] == (0, 64, 128)
    assert len(set(usual_palette(254))) == 254


def test_pixels_without_a_class_are_white_alone_and_clear_over_the_image() -> None:
    labels = np.array([[0, 1, IGNORE, 9, -1]])
    palette = ((10, 20, 30), (40, 50, 60))
    assert paint(labels, palette)[0].tolist() == [[10, 20, 30], [40, 50, 60], *[list(BACKGROUND)] * 3]
    image = np.full((1, 5, 3), 100, np.uint8)
    mixed = overlay(image, labels, palette, opacity=0.5)
    assert mixed[0].tolist() == [[55, 60, 65], [70, 75, 80], *[[100] * 3] * 3]
