"""Accuracy, top-5, confusion and their report, by hand."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from densevit.errors import DataError, StorageError
from densevit.evaluation.classification import ClassScores, mean_row, score, summarise

NAMES = ("cat", "dog", "fox")


def test_a_row_says_hit_top_5_and_how_sure() -> None:
    logits = np.log(np.array([0.3, 0.2, 0.15, 0.14, 0.11, 0.1]))
    best, fifth, last = (score(logits, i) for i in (0, 4, 5))
    expected = {"accuracy": 1, "top5": 1, "nll": -math.log(0.3), "confidence": 0.3, "label": 0, "predicted": 0}
    assert best == pytest.approx(expected)
    assert (fifth["accuracy"], fifth["top5"]) == (0, 1) and (last["accuracy"], last["top5"]) == (0, 0)
    assert last["nll"] == pytest.approx(-math.log(0.1))
    # Equal logits are no hit for all but the first; few classes have no top 5.
    assert [score(np.zeros(8), i)["accuracy"] for i in range(8)] == [1] + [0] * 7
    assert sum(score(np.zeros(8), i)["top5"] for i in range(8)) == 5 and "top5" not in score(np.zeros(5), 0)


def test_logits_that_are_huge_or_not_finite_and_unknown_classes() -> None:
    row = score(np.array([1e4, -1e4], np.float32), 1)
    assert row["nll"] == pytest.approx(2e4) and row["confidence"] == 1
    for bad in (math.nan, math.inf, -math.inf):
        row = score(np.array([bad, 1, 2.0]), 0)
        assert (row["accuracy"], row["predicted"], row["nll"]) == (0, -1, math.inf)
    with pytest.raises(DataError, match="class 3 is not among the 3"):
        score(np.zeros(3), 3)


def scores() -> ClassScores:
    """Truth cat cat dog dog, taken for cat dog dog (no finite logits); one image has no class."""
    sure = {0: [9.0, 0, 0], 1: [0, 9.0, 0], -1: [math.nan, 0, 0]}
    pairs = [(0, 0), (0, 1), (1, 1), (1, -1)]
    rows = [(f"image/{i}", score(np.array(sure[taken]), truth)) for i, (truth, taken) in enumerate(pairs)]
    return summarise([*rows, ("unknown", {})], NAMES)


def test_the_confusion_matrix_and_what_follows_from_it() -> None:
    found = scores()
    assert found.confusion.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]
    assert found.mean["accuracy"] == 0.5 and found.mean["class_accuracy"] == 0.5
    per_class = found.per_class()
    assert per_class["cat"] == pytest.approx({"images": 2, "recall": 0.5, "precision": 1, "f1": 2 / 3})
    assert per_class["dog"] == pytest.approx({"images": 2, "recall": 0.5, "precision": 0.5, "f1": 0.5})
    assert math.isnan(per_class["fox"]["recall"])
    assert found.skipped == ["unknown"] and found.invalid() == 1


def test_class_accuracy_weighs_rare_classes_as_common_ones() -> None:
    rows = [score(np.array([1.0, 0]), 0)] * 9 + [score(np.array([1.0, 0]), 1)]
    assert mean_row(rows)["accuracy"] == 0.9 and mean_row(rows)["class_accuracy"] == 0.5
    with pytest.raises(DataError, match="comes twice"):
        summarise([("a", rows[0]), ("a", rows[0])], NAMES)
    with pytest.raises(DataError, match="none of 1 images has a class"):
        summarise([("a", {})], NAMES)


def test_the_report_repeats_the_scores(tmp_path: Path) -> None:
    paths = scores().write(tmp_path / "new", source={"data": "pets"})
    assert [path.name for path in paths] == ["metrics.json", "per_image.csv", "confusion.csv"]
    tree = json.loads(paths[0].read_text())
    assert tree["metrics"]["accuracy"] == 0.5 and tree["metrics"]["nll"] is None
    assert tree["counts"] == {"images": 5, "scored": 4, "skipped": 1, "invalid_predictions": 1}
    assert tree["source"] == {"data": "pets"} and tree["per_class"]["fox"]["recall"] is None
    lines = list(csv.DictReader(paths[1].read_text().splitlines()))
    assert [(line["label"], line["predicted"]) for line in lines] == [
        ("cat", "cat"), ("cat", "dog"), ("dog", "dog"), ("dog", ""), ("", ""),
    ]  # fmt: skip
    assert list(csv.reader(paths[2].read_text().splitlines()))[1] == ["cat", "1", "1", "0"]


def test_the_table_names_the_hardest_class_and_the_confusions(tmp_path: Path) -> None:
    text = scores().table()
    for said in ("hardest class: cat, 50.0% of 2 images", "cat as dog 1x",
                 "4 of 5 images scored; 1 without a class; 1 without finite logits"):  # fmt: skip
        assert said in text
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be made"):
        scores().write(tmp_path / "file")
