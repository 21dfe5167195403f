"""Predictions are NumPy arrays, and pictures in a notebook."""

import pickle
import re

import numpy as np
import pytest
import torch

from densevit.model_card import HeadSpec
from densevit.reporting.figures import PredictedArray

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
