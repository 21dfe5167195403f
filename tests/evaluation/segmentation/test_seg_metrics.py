"""Scores of segmentation: by hand, by obvious definitions on random maps, and against scikit-learn."""

from collections.abc import Sequence

import cv2
import numpy as np
import pytest

from densevit.errors import DataError
from densevit.evaluation.segmentation import metrics
from densevit.evaluation.segmentation.metrics import (
    areas,
    as_row,
    boundary_areas,
    boundary_mask,
    confusion,
    iou,
    pooled_scores,
    scores,
)
from densevit.structures import IGNORE

Pairs = Sequence[tuple[np.ndarray, np.ndarray]]


def random_maps(images: int = 4, classes: int = 6, size: tuple[int, int] = (23, 31)) -> Pairs:
    """Predicted and true ids, half of them equal; some pixels unlabelled, class 4 nowhere true, class 5 nowhere."""
    draw = np.random.default_rng(0)
    found = []
    for _ in range(images):
        labels = draw.integers(0, classes - 2, size)
        predicted = np.where(draw.random(size) < 0.5, labels, draw.integers(0, classes - 1, size))
        found.append((predicted, np.where(draw.random(size) < 0.1, IGNORE, labels)))
    return found


def reference(pairs: Pairs) -> dict[str, float]:
    """scikit-learn's scores of all pixels at once."""
    sklearn = pytest.importorskip("sklearn.metrics", reason="comes with the extra `test`")
    taken, truth = (np.concatenate([pair[i].ravel() for pair in pairs]) for i in (0, 1))
    taken, truth = taken[truth != IGNORE], truth[truth != IGNORE]
    return {
        "miou": sklearn.jaccard_score(truth, taken, average="macro", labels=np.union1d(truth, taken)),
        "pixel_accuracy": sklearn.accuracy_score(truth, taken),
        "mean_accuracy": sklearn.recall_score(truth, taken, average="macro", labels=np.unique(truth)),
        "fwiou": sklearn.jaccard_score(truth, taken, average="weighted"),
    }


def test_scores_by_hand() -> None:
    # Truth 0 0 0 1 1 and one unknown; predicted 0 0 1 1 2: IoU 2/3, 1/3, 0.
    labels, predicted = np.array([[0, 0, 0], [1, 1, IGNORE]]), np.array([[0, 0, 1], [1, 2, 0]])
    counts = confusion(predicted, labels, 4)
    assert counts.tolist() == [[2, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0] * 5, [0] * 5]
    found = {name: float(value) for name, value in scores(areas(counts)).items()}
    assert found == pytest.approx(
        {
            "miou": (2 / 3 + 1 / 3 + 0) / 3,  # class 2 is predicted, never true: it counts; class 3 is neither
            "pixel_accuracy": 3 / 5,
            "mean_accuracy": (2 / 3 + 1 / 2) / 2,
            "fwiou": 3 / 5 * 2 / 3 + 2 / 5 * 1 / 3,
        }
    )
    np.testing.assert_allclose(iou(areas(counts)), [2 / 3, 1 / 3, 0, np.nan])


def test_pixels_are_pooled_as_by_scikit_learn_so_that_batches_do_not_matter() -> None:
    pairs = [*random_maps(), *random_maps(1, size=(90, 120))]
    rows = [as_row(p, t, 6) for p, t in pairs]
    together = pooled_scores(rows)
    assert together == pytest.approx(reference(pairs), abs=1e-9)
    assert together == pooled_scores(rows[::-1])
    assert together != pytest.approx(np.mean([pooled_scores([row])["miou"] for row in rows]), abs=1e-3)


def test_an_image_without_labels_gives_no_row() -> None:
    assert as_row(np.zeros((2, 3), int), np.full((2, 3), IGNORE), 4) == {}


def test_a_prediction_beyond_the_classes_is_a_miss_and_no_false_alarm() -> None:
    labels = np.zeros((1, 4), int)
    counts = confusion(np.array([[0, 0, 255, 7]]), labels, 2)
    assert counts.tolist() == [[2, 0, 2], [0, 0, 0]]
    assert float(scores(areas(counts))["miou"]) == 0.5


def test_what_cannot_be_scored_is_told() -> None:
    with pytest.raises(DataError, match="a label map of 2x3 cannot be scored against labels of 3x2"):
        confusion(np.zeros((2, 3), int), np.zeros((3, 2), int), 2)
    with pytest.raises(DataError, match="label 7 is not among the 2 classes; the one to ignore is 255"):
        confusion(np.zeros((1, 2), int), np.array([[7, 0]]), 2)


def published_boundary(mask: np.ndarray) -> np.ndarray:
    """Cheng et al.'s: the mask less itself eroded by so many single pixels, zero around the image."""
    h, w = mask.shape
    distance = max(1, round(0.02 * np.sqrt(h**2 + w**2)))
    padded = cv2.copyMakeBorder(mask.astype(np.uint8), 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    eroded = cv2.erode(padded, np.ones((3, 3), np.uint8), iterations=distance)
    return mask & ~eroded[1:-1, 1:-1].astype(bool)


def blobs(seed: int, size: tuple[int, int] = (120, 160)) -> np.ndarray:
    """Four classes in patches."""
    coarse = np.random.default_rng(seed).integers(0, 4, (6, 8)).astype(np.uint8)
    return cv2.resize(coarse, size[::-1], interpolation=cv2.INTER_NEAREST).astype(int)


@pytest.mark.parametrize("size", [(120, 160), (9, 40), (200, 31)])
def test_the_band_of_every_class_is_the_published_one(size: tuple[int, int]) -> None:
    labels = blobs(0, size)
    near = boundary_mask(labels)
    for c in range(4):
        np.testing.assert_array_equal(near & (labels == c), published_boundary(labels == c))


def test_boundary_iou_is_that_of_the_published_masks() -> None:
    labels, predicted = blobs(0), np.roll(blobs(0), (3, -2), (0, 1))
    found = iou(boundary_areas(predicted, labels, 5))
    for c in range(4):
        truth, taken = published_boundary(labels == c), published_boundary(predicted == c)
        assert found[c] == pytest.approx((truth & taken).sum() / (truth | taken).sum())
    assert np.isnan(found[4])
    plain = iou(areas(confusion(predicted, labels, 5)))
    assert np.nanmean(found) < np.nanmean(plain)  # what a shift costs, borders tell more plainly


def test_boundary_iou_is_1_for_the_truth_whatever_is_ignored() -> None:
    labels = blobs(1)
    holes = np.where(np.random.default_rng(2).random(labels.shape) < 0.001, IGNORE, labels)
    holes[40:60, 50:90] = IGNORE
    found = iou(boundary_areas(labels, holes, 4))
    np.testing.assert_array_equal(found, 1.0)
    # Nothing that is ignored is counted, whatever was predicted there.
    other = np.where(holes == IGNORE, 3, labels)
    np.testing.assert_array_equal(boundary_areas(other, holes, 4), boundary_areas(labels, holes, 4))


def test_every_score_has_its_formula() -> None:
    assert set(metrics.FORMULAE) == {*scores(np.ones((3, 1), np.int64)), "boundary_iou"}
