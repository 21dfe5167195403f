"""scikit-learn's digits as a data set."""

import sys

import numpy as np
import pytest

from densevit.data.datasets.classification.digits import Digits
from densevit.errors import DataError


def test_every_picture_is_in_one_part_and_is_scikit_learns() -> None:
    found = pytest.importorskip("sklearn.datasets").load_digits()
    parts = [Digits(split=split) for split in ("train", "val", "test")]  # type: ignore[arg-type]
    assert sorted(name for part in parts for name in part.names) == [f"{i:04d}" for i in range(1797)]
    assert [len(part) for part in parts] == [1199, 299, 299]
    for part in parts:
        sample = part.read(7)
        i = int(sample.name)
        assert sample.label == found.target[i]
        np.testing.assert_array_equal(sample.image[..., 1], np.rint(found.images[i] * 255 / 16))


def test_without_scikit_learn_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match=r"pip install 'densevit\[digits\]'"):
        Digits()
