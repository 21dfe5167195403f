"""Semantic segmentation as a task."""

import numpy as np
import pytest
import torch

from densevit.data.loading.collate import collate
from densevit.evaluation.segmentation import metrics
from densevit.losses.segmentation import CrossEntropy
from densevit.model_card import HeadSpec
from densevit.reporting.figures import LINE
from densevit.structures import IGNORE, Batch, Sample
from densevit.tasks.segmentation import RIGHT, UNKNOWN, WRONG, SegmentationTask


def task(**options: object) -> SegmentationTask:
    output = HeadSpec(kind="labels", unit="", classes=("a", "b", "c"))
    losses = [("cross_entropy", 2.0, CrossEntropy(**options))]  # type: ignore[arg-type]
    return SegmentationTask("labels", output, losses, metrics.as_row, metrics.pooled_scores)


def batch(*labels: list[list[int]] | None) -> Batch:
    image, maps = np.full((2, 3, 3), 100, np.uint8), [None if ids is None else np.array(ids) for ids in labels]
    samples = [Sample(name=str(i), image=image, labels=ids) for i, ids in enumerate(maps)]
    return collate(samples, range(len(samples))).to(torch.device("cpu"))


TRUTH = [[0, 0, 1], [1, 2, IGNORE]]


def certain(ids: list[list[int]]) -> torch.Tensor:
    """Logits that are sure of these classes."""
    return 50.0 * torch.nn.functional.one_hot(torch.tensor(ids), 3).movedim(-1, 0).float()


def test_images_without_labels_add_exactly_nothing_and_take_nothing_away() -> None:
    torch.manual_seed(0)
    prediction = torch.randn(2, 3, 2, 3, requires_grad=True)
    alone = task().losses(prediction[:1], batch(TRUTH), 0)["cross_entropy"]
    among = task().losses(prediction, batch(TRUTH, None), 0)["cross_entropy"]
    assert torch.equal(alone, among)
    among.backward()
    assert prediction.grad is not None and prediction.grad[0].any() and not prediction.grad[1].any()
    nothing = task().losses(prediction, batch(None, None), 0)["cross_entropy"]
    assert nothing.item() == 0 and nothing.requires_grad


def test_rows_are_counts_and_the_summary_pools_them() -> None:
    prediction = torch.stack([certain([[0, 0, 1], [1, 1, 0]]), certain([[2, 2, 2], [2, 2, 2]])])
    rows = task().image_scores(prediction, batch(TRUTH, [[2, 2, 2], [2, 0, IGNORE]]))
    assert rows[0] == {
        "hits/0": 2,
        "hits/1": 2,
        "true/0": 2,
        "true/1": 2,
        "true/2": 1,
        "predicted/0": 2,
        "predicted/1": 3,
    }
    # Both images: class 0: 2 of 3; class 1: 2 of 3; class 2: 4 of 6.
    assert task().dataset_scores(rows)["miou"] == pytest.approx(2 / 3)
    assert task().dataset_scores([rows[0], {}, rows[1]]) == task().dataset_scores(rows)
    assert task().image_scores(prediction, batch(None, None)) == [{}, {}] and task().dataset_scores([{}, {}]) == {}


def test_logits_that_are_not_finite_predict_no_class() -> None:
    prediction = certain([[0, 0, 1], [1, 2, 0]])[None]
    prediction[0, :, 0, 0] = float("nan")
    assert task().classes(prediction)[0].tolist() == [[IGNORE, 0, 1], [1, 2, 0]]
    assert task().image_scores(prediction, batch(TRUTH))[0]["hits/0"] == 1


def test_the_panel_shows_image_truth_prediction_and_verdict() -> None:
    panel = task().panel(certain([[0, 1, 1], [1, 2, 0]])[None], batch(TRUTH))
    factor = panel.shape[1] // 12
    pixels = panel[2 * LINE :: factor][:2, ::factor]  # below the captions and the name; above the classes
    assert [tuple(pixel) for pixel in pixels[0, 9:]] == [RIGHT, WRONG, RIGHT]
    assert tuple(pixels[1, 11]) == UNKNOWN
    assert tuple(pixels[0, 3]) == (128, 0, 0)  # class 0 in VOC's first colour
    assert (panel[-LINE:] == (128, 0, 0)).all(-1).any() and (panel[:LINE] < 128).any()
    assert task().panel(torch.zeros(1, 3, 2, 3), batch(None)).shape[1] == 12 * factor
