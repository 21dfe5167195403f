"""Scores of segmentation: by hand, by obvious definitions on random maps, and against torchmetrics and scikit-learn."""

from collections.abc import Sequence

import cv2
import numpy as np
import pytest
import torch

from densevit.errors import DataError
from densevit.evaluation.segmentation import metrics
from densevit.evaluation.segmentation.boundary_iou import boundary_areas, boundary_mask
from densevit.evaluation.segmentation.metrics import areas, as_row, confusion, iou, pooled_scores, scores
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


def total(pairs: Pairs, classes: int = 6) -> np.ndarray:
    return np.sum([confusion(p, t, classes) for p, t in pairs], axis=0)


def obvious(pairs: Pairs, classes: int = 6) -> dict[str, float]:
    """The definitions, with one set of pixels a class over all images at once."""
    predicted, labels = (np.concatenate([pair[i].ravel() for pair in pairs]) for i in (0, 1))
    predicted, labels = predicted[labels != IGNORE], labels[labels != IGNORE]
    ious, recalls, weighted = [], [], 0.0
    for c in range(classes):
        p, t = predicted == c, labels == c
        if (p | t).any():
            ious.append((p & t).sum() / (p | t).sum())
        if t.any():
            recalls.append((p & t).sum() / t.sum())
            weighted += t.mean() * (p & t).sum() / (p | t).sum()
    hits = (predicted == labels).mean()
    return {"miou": np.mean(ious), "pixel_accuracy": hits, "mean_accuracy": np.mean(recalls), "fwiou": weighted}  # type: ignore[dict-item]


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


def test_scores_are_those_of_the_definitions_on_random_maps() -> None:
    found = scores(areas(total(random_maps())))
    assert {name: float(value) for name, value in found.items()} == pytest.approx(obvious(random_maps()), abs=1e-12)


def test_pixels_are_pooled_so_that_batches_do_not_matter() -> None:
    pairs = [*random_maps(), *random_maps(1, size=(90, 120))]
    rows = [as_row(p, t, 6) for p, t in pairs]
    together = pooled_scores(rows)
    assert together == pytest.approx(obvious(pairs), abs=1e-12)
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


def test_scores_equal_scikit_learns() -> None:
    sklearn = pytest.importorskip("sklearn.metrics", reason="comes with the extra `test`")
    pairs = random_maps()
    predicted, labels = (np.concatenate([pair[i].ravel() for pair in pairs]) for i in (0, 1))
    known = labels != IGNORE
    truth, taken = labels[known], predicted[known]
    occurring = np.union1d(truth, taken)
    found = scores(areas(total(pairs)))
    assert found["miou"] == pytest.approx(
        sklearn.jaccard_score(truth, taken, average="macro", labels=occurring), abs=1e-9
    )
    assert found["fwiou"] == pytest.approx(sklearn.jaccard_score(truth, taken, average="weighted"), abs=1e-9)
    assert found["pixel_accuracy"] == pytest.approx(sklearn.accuracy_score(truth, taken), abs=1e-9)
    assert found["mean_accuracy"] == pytest.approx(
        sklearn.recall_score(truth, taken, average="macro", labels=np.unique(truth)), abs=1e-9
    )


def test_scores_equal_torchmetrics() -> None:
    classification = pytest.importorskip("torchmetrics.classification", reason="a peer to compare with")
    pairs = random_maps()
    taken, truth = (torch.from_numpy(np.concatenate([pair[i].ravel() for pair in pairs])) for i in (0, 1))
    given = {"num_classes": 6, "ignore_index": IGNORE}
    found = scores(areas(total(pairs)))
    theirs = {
        "miou": classification.MulticlassJaccardIndex(**given),
        "pixel_accuracy": classification.MulticlassAccuracy(**given, average="micro"),
        "fwiou": classification.MulticlassJaccardIndex(**given, average="weighted"),
    }
    for name, metric in theirs.items():
        assert found[name] == pytest.approx(metric(taken, truth).item(), abs=1e-6), name


def mmseg_scores(pairs: Pairs, classes: int) -> dict[str, float]:
    """mmseg's IoUMetric by its definition: histograms of intersection, prediction and label, summed over images."""
    sums = np.zeros((3, classes))
    for predicted, labels in pairs:
        p, t = predicted[labels != IGNORE], labels[labels != IGNORE]
        for row, values in enumerate((p[p == t], p, t)):
            sums[row] += np.histogram(values, bins=classes, range=(0, classes - 1))[0]
    intersect, pred, label = sums
    with np.errstate(invalid="ignore"):
        ious, accuracies = intersect / (pred + label - intersect), intersect / label
    return {
        "miou": float(np.nanmean(ious)),
        "mean_accuracy": float(np.nanmean(accuracies)),
        "pixel_accuracy": float(intersect.sum() / label.sum()),
    }


def test_scores_equal_mmsegs_definition() -> None:
    found = scores(areas(total(random_maps())))
    for name, value in mmseg_scores(random_maps(), 6).items():
        assert found[name] == pytest.approx(value, abs=1e-9), name


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
    assert set(metrics.FORMULAE) == {*scores(areas(total(random_maps()))), "boundary_iou"}
