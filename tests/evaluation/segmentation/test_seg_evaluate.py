"""Scores of a data set of label maps: pooled, by image, by class, with intervals, as a table and a picture."""

import json

import numpy as np
import pytest

from densevit.errors import DataError
from densevit.evaluation.segmentation.metrics import as_row as row_of
from densevit.evaluation.segmentation.metrics import pooled_scores
from densevit.evaluation.segmentation.scores import ALL, EMPTY, MAX_CELL, SegScores, count, draw_confusion, summarise
from densevit.structures import IGNORE

CLASSES = ("wall", "floor", "box", "lamp")


def pairs(images: int = 12) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Predictions that are right in three pixels of four, two images a scene; lamps occur nowhere."""
    draw = np.random.default_rng(0)
    found = []
    for i in range(images):
        labels = draw.integers(0, 3, (20, 30))
        predicted = np.where(draw.random((20, 30)) < 0.75, labels, draw.integers(0, 3, (20, 30)))
        found.append((f"scene{i // 2}/{i:02d}", predicted, labels))
    return found


def scores(images: int = 12, *, boundary: bool = True) -> SegScores:
    found = ((name, count(p, t, len(CLASSES), boundary=boundary)) for name, p, t in pairs(images))
    return summarise(found, CLASSES)


def test_the_scores_are_those_of_the_validation_in_training() -> None:
    rows = [row_of(p, t, len(CLASSES)) for _, p, t in pairs()]
    found = dict(scores().mean)
    assert found.pop("boundary_iou") > 0
    assert found == pytest.approx(pooled_scores(rows), abs=1e-12)


def test_every_image_has_its_own_scores() -> None:
    found = dict(scores().rows)
    name, predicted, labels = pairs()[5]
    own = pooled_scores([row_of(predicted, labels, len(CLASSES))])
    assert {key: found[name][key] for key in own} == pytest.approx(own, abs=1e-12)
    assert found[name]["pixels"] == 600
    ranked = sorted(found, key=lambda name: -found[name]["pixel_accuracy"])
    examples = scores().examples()
    assert (examples["best"], examples["worst"]) == (ranked[0], ranked[-1])


def test_classes_have_recall_precision_and_share() -> None:
    found = scores().per_class()
    predicted, labels = (np.concatenate([pair[i].ravel() for pair in pairs()]) for i in (1, 2))
    box = found["box"]
    assert box["accuracy"] == pytest.approx((predicted == 2)[labels == 2].mean())
    assert box["precision"] == pytest.approx((labels == 2)[predicted == 2].mean())
    assert box["share"] == pytest.approx((labels == 2).mean())
    assert np.isnan(found["lamp"]["iou"]) and found["lamp"]["share"] == 0


def test_intervals_hold_the_score_are_wider_over_scenes_and_depend_on_no_order() -> None:
    found = scores()
    low, high = found.intervals["miou"]
    assert low < found.mean["miou"] < high and high - low < 0.1
    assert {"iou/0", "iou/1", "iou/2", "boundary_iou"} <= found.intervals.keys() and "iou/3" not in found.intervals
    assert set(found.scene_intervals) == set(found.intervals)
    turned = summarise(((n, count(p, t, 4)) for n, p, t in pairs()[::-1]), CLASSES)
    assert turned.intervals == found.intervals and turned.mean == found.mean


def test_an_interval_is_the_percentiles_of_scores_of_resampled_images() -> None:
    """Written out: draw images, pool their pixels, score; of 12, as far out as Student's t lies outside of the normal:

    Phi(-sqrt(12 / 11) * 2.201) = 0.01076, with 2.201 the 97.5th percentile of t with 11 degrees of freedom.
    """
    found = scores(12, boundary=False)
    rows = [row_of(p, t, len(CLASSES)) for _, p, t in pairs(12)]
    drawn = np.random.default_rng(0).multinomial(12, np.full(12, 1 / 12), size=2000)
    values = [
        pooled_scores([row for row, n in zip(rows, times, strict=True) for _ in range(n)]) for times in drawn[:400]
    ]
    ours = found.intervals["fwiou"]
    assert ours == pytest.approx(np.quantile([value["fwiou"] for value in values], (0.01076, 0.98924)), abs=0.006)


def test_one_image_has_no_interval_and_one_without_labels_is_left_out() -> None:
    name, predicted, labels = pairs()[0]
    blank = ("blank", count(predicted, np.full_like(labels, IGNORE), 4))
    found = summarise([(name, count(predicted, labels, 4)), blank], CLASSES)
    assert found.intervals == {} and found.scene_intervals == {} and found.skipped == ["blank"]
    assert "1 of 2 images scored, 600 labelled pixels; 1 without labels" in found.summary_sentence()
    with pytest.raises(DataError, match="none of 1 images has a labelled pixel"):
        summarise([blank], CLASSES)
    with pytest.raises(DataError, match="blank: comes twice"):
        summarise([blank, blank], CLASSES)


def test_the_table_names_what_is_confused_and_json_has_no_nan() -> None:
    found = scores()
    table = found.table()
    assert "95% over images" in table and "95% over scenes" in table and "lamp" not in table
    assert f"{found.mean['miou']:.4f}" in table
    truth, taken, part = found.confused()[0]
    assert f"{truth} as {taken} ({part:.0%} of it)" in table
    tree = json.loads(json.dumps(found.tree({}), allow_nan=False))
    assert tree["per_class"]["lamp"]["iou"] is None and "lamp" not in tree["class_intervals"]


def test_the_picture_shows_shares_of_the_true_class() -> None:
    confusion = np.zeros((3, 4), np.int64)
    confusion[0, 0], confusion[1, :2] = 50, (10, 30)
    picture = draw_confusion(confusion, ("a", "b", "c"))
    cell = MAX_CELL
    body = picture[-3 * cell :, -3 * cell :]

    def corner(i: int, j: int) -> list[int]:
        return body[i * cell + 4, j * cell + 4].tolist()

    assert corner(0, 0) == ALL.tolist()
    assert corner(0, 1) == [255, 255, 255]
    assert corner(2, 1) == list(EMPTY)  # c does not occur
    assert corner(1, 0)[0] > corner(1, 1)[0] > corner(0, 0)[0]  # a quarter, three quarters, all
    confusion[0, 3] = 1
    assert draw_confusion(confusion, ("a", "b", "c")).shape[1] == picture.shape[1] + cell


def test_many_classes_still_make_a_picture() -> None:
    confusion = np.eye(171, 172, dtype=np.int64)
    assert draw_confusion(confusion, [str(i) for i in range(171)]).shape == (684, 684, 3)
