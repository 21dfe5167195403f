"""Panels of TensorBoard: captions, names, colour bars and classes stand around the pixels, which stay as they are."""

import numpy as np

from densevit.ops.colors import table
from densevit.reporting.figures import LINE, SIDE, ColorBar, panel

PIXELS = np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3)).astype(np.uint8)


def test_each_row_has_its_name_each_column_its_caption_and_below_are_bars_and_classes() -> None:
    bar = ColorBar(range(1, 2), "0", "magma", "30%")
    names = [f"class {i}" for i in range(8)]
    legend = [((9, i, 0), name) for i, name in enumerate(names)]
    made = panel([("a", [PIXELS] * 2), ("b", [PIXELS] * 2)], ["image", "error"], [bar], legend)
    end = LINE + 2 * (LINE + SIDE)
    captions, rows = made[:LINE], made[LINE:end]
    colours, *classes = np.split(made[end:], (len(made) - end) // LINE)
    assert all((captions[:, x : x + SIDE] < 128).any() for x in (0, SIDE))
    for row in np.split(rows, 2):
        assert (row[:LINE, :30] < 128).any() and np.array_equal(row[LINE:], np.concatenate([PIXELS] * 2, axis=1))
    assert (colours[:, :SIDE] == 255).all()
    ramp = colours[LINE // 2, SIDE + 18 : 2 * SIDE - 32].astype(int)
    assert np.abs(ramp[0] - table("magma")[5]).max() < 30 and np.abs(ramp[-1] - table("magma")[250]).max() < 30
    found = {tuple(pixel) for pixel in np.concatenate(classes).reshape(-1, 3).tolist()}
    assert len(classes) > 1 and {(9, i, 0) for i in range(8)} <= found


def test_small_images_are_repeated_until_their_captions_fit() -> None:
    made = panel([("a", [np.full((2, 3, 3), 7, np.uint8)])], ["image"])
    assert made.shape[1] >= SIDE and made.shape[1] % 3 == 0 and (made[-1] == 7).all()
