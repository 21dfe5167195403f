"""Predictions are NumPy arrays, and pictures in a notebook."""

import pickle
import re

import numpy as np
import pytest
import torch

from densevit.model_card import HeadSpec
from densevit.ops.colors import table
from densevit.reporting.figures import LINE, SIDE, ColorBar, PredictedArray, panel

DEPTH = HeadSpec(kind="metric", range=(0.1, 10.0))


def depth() -> PredictedArray:
    return PredictedArray(np.linspace(1, 3, 24, dtype=np.float32).reshape(4, 6), DEPTH)


def test_it_is_an_array_to_all_that_take_arrays() -> None:
    array = depth()
    assert isinstance(array, np.ndarray) and repr(array) == repr(np.asarray(array)) and str(array).startswith("[[")
    assert torch.from_numpy(array).shape == (4, 6)
    for computed in (array * 2, 1 / array, np.sqrt(array), array > 2, np.where(array > 2, array, 0), np.array(array)):
        assert type(computed) is np.ndarray
    assert array.max() == np.float32(3) and not isinstance(array.mean(), PredictedArray)
    assert array.sum(0).shape == (6,) and float(np.median(array)) == pytest.approx(2)
    again = pickle.loads(pickle.dumps(array))
    assert type(again) is np.ndarray and np.array_equal(again, array)
    array *= 2
    assert array.max() == 6


def test_a_window_of_it_is_shown_and_a_row_is_not() -> None:
    array = depth()
    shown = array._repr_html_()
    assert shown is not None and "4 x 6, depth in metres" in shown and shown.count("data:image/webp") == 2
    low, high = np.quantile(array, (0.02, 0.98))
    assert f"{low:.3g} m" in shown and f"{high:.3g} m" in shown
    assert "2 x 3" in str(array[:2, :3]._repr_html_())
    assert array[0]._repr_html_() is None and array[:0]._repr_html_() is None


def test_classes_have_a_legend_of_those_that_occur() -> None:
    spec = HeadSpec(kind="labels", classes=("sky", "<road>", "car"))
    ids = np.array([[0, 1], [1, 255]])
    logits = np.stack([np.where(ids == i, 1.0, 0.0) for i in range(3)])
    for array in (PredictedArray(ids, spec), PredictedArray(logits, spec)):
        shown = array._repr_html_()
        assert shown is not None and "sky" in shown and "&lt;road&gt;" in shown and "car" not in shown
    shown = PredictedArray(np.log([0.5, 0.3, 0.2]), HeadSpec(kind="class", classes=("a", "b", "c")))._repr_html_()
    assert re.findall(r"<td>(.*?)</td>", str(shown)) == ["a", "50.0%", "b", "30.0%", "c", "20.0%"]


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
