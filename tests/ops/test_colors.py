"""Colours of depth and of classes: the ends of the map at the ends of the range, grey for what is unknown."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from densevit.errors import ConfigError
from densevit.ops.colors import (
    BACKGROUND,
    UNKNOWN,
    colorize,
    draw_text,
    overlay,
    paint,
    table,
    text_width,
    usual_palette,
)
from densevit.structures import IGNORE

MAPS = ("turbo", "magma", "inferno", "viridis", "spectral")


@pytest.mark.parametrize("cmap", MAPS)
def test_the_range_spans_the_map_and_the_rest_is_clamped(cmap: str) -> None:
    values = np.array([[1.0, 3.0, 0.0, 99.0, 2.0]], np.float32)
    first, last, below, above, middle = colorize(values, 1.0, 3.0, cmap)[0]
    np.testing.assert_array_equal(first, table(cmap)[0])
    np.testing.assert_array_equal(last, table(cmap)[255])
    np.testing.assert_array_equal(below, first)
    np.testing.assert_array_equal(above, last)
    np.testing.assert_array_equal(middle, table(cmap)[128])
    ends = np.array([[-3e38, 3e38]], np.float32)  # whose difference is no float32
    np.testing.assert_array_equal(colorize(ends, -3e38, 3e38, cmap)[0], table(cmap)[[0, 255]])


@pytest.mark.parametrize("cmap", MAPS)
def test_what_is_unknown_is_grey_and_nothing_else_is(cmap: str) -> None:
    values = np.array([[np.nan, np.inf, -np.inf, 1.0]])
    np.testing.assert_array_equal(colorize(values, 0.0, 2.0, cmap)[0, :3], [UNKNOWN] * 3)
    assert UNKNOWN not in {tuple(color) for color in table(cmap).tolist()}


def test_known_colours_are_the_published_ones() -> None:
    """Ends of magma and viridis as their authors give them: #000004, #440154; Spectral's #9e0142 and #5e4fa2."""
    assert table("magma")[0].tolist() == [0x00, 0x00, 0x04] and table("viridis")[0].tolist() == [0x44, 0x01, 0x54]
    assert table("spectral")[[0, 255]].tolist() == [[0x9E, 0x01, 0x42], [0x5E, 0x4F, 0xA2]]


def test_without_a_range_it_is_the_2nd_to_the_98th_percentile() -> None:
    values = np.arange(101.0)[None]
    np.testing.assert_array_equal(colorize(values), colorize(values, 2.0, 98.0))


@pytest.mark.parametrize("value", [3.0, 0.0, np.nan])
def test_a_map_of_one_value_has_one_colour(value: float) -> None:
    assert len(np.unique(colorize(np.full((4, 4), value)).reshape(-1, 3), axis=0)) == 1


def test_an_unknown_map_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"jett.*turbo"):
        colorize(np.ones((2, 2)), 0.0, 1.0, "jett")


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


def drawn(text: str, size: int = 14) -> np.ndarray:
    image = np.full((32, 160, 3), 255, np.uint8)
    draw_text(image, text, (4, 22), size, (0, 0, 0))
    return image


def test_letters_of_many_scripts_are_drawn_and_fill_their_width() -> None:
    names = ["Straße", "Stra?e", "škola", "дом", "???", "道路", "路道"]
    images = [drawn(name) for name in names]
    assert len({image.tobytes() for image in images}) == len(names)
    for name, image in zip(names, images, strict=True):
        columns = np.flatnonzero((image < 255).any((0, 2)))
        assert columns[0] >= 4 and 4 + text_width(name, 14) - 3 <= columns[-1] <= 4 + text_width(name, 14)


def test_threads_draw_what_one_draws() -> None:
    jobs = [(f"{k} stuhl 道路", 9 + k % 11) for k in range(400)]
    alone = [drawn(*job) for job in jobs]
    with ThreadPoolExecutor(8) as threads:
        assert all(map(np.array_equal, threads.map(lambda job: drawn(*job), jobs), alone))
