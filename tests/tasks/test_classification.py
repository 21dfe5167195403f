"""Image classification as a task: loss, rows, panel."""

import json

import numpy as np
import pytest
import torch

from densevit.data.loading.collate import collate
from densevit.errors import DataError
from densevit.evaluation import classification as metrics
from densevit.losses.image_level import CrossEntropy
from densevit.model_card import HeadSpec, ModelCard
from densevit.reporting.figures import LINE
from densevit.structures import NO_LABEL, Sample
from densevit.tasks.classification import RIGHT, WRONG, ClassificationTask, bars


def sample(label: int | None, shade: int = 0) -> Sample:
    return Sample(name=f"{label}-{shade}", image=np.full((8, 8, 3), shade, np.uint8), label=label)


def task() -> ClassificationTask:
    output = HeadSpec(kind="class", unit="", classes=("cat", "dog"))
    return ClassificationTask("pet", output, [("cross_entropy", 2.0, CrossEntropy())], metrics.score, metrics.mean_row)


def logits(*rows: tuple[float, float]) -> torch.Tensor:
    return torch.tensor(rows)[:, :, None, None]


def test_a_batch_knows_which_images_have_no_class() -> None:
    batch = collate([sample(1), sample(None), sample(0)], range(3)).to(torch.device("cpu"))
    assert batch.label is not None and batch.label.tolist() == [1, NO_LABEL, 0]
    assert collate([sample(None)], [0]).label is None


def test_the_loss_and_the_rows_are_those_of_the_images_with_a_class() -> None:
    batch = collate([sample(1), sample(None)], range(2)).to(torch.device("cpu"))
    prediction = logits((0.0, 0.0), (5.0, 0.0))
    assert task().losses(prediction, batch, 0)["cross_entropy"].item() == pytest.approx(2 * np.log(2))
    rows = task().image_scores(prediction, batch)
    assert rows[1] == {} and rows[0]["label"] == 1 and rows[0]["accuracy"] == 0
    assert task().dataset_scores(rows)["accuracy"] == 0
    assert task().dataset_scores([{}]) == {}


def test_a_batch_without_classes_teaches_nothing() -> None:
    batch = collate([sample(None)], [0]).to(torch.device("cpu"))
    assert task().losses(logits((1.0, 0.0)), batch, 0)["cross_entropy"].item() == 0
    assert task().image_scores(logits((1.0, 0.0)), batch) == [{}]


def test_bars_are_as_long_as_probabilities_and_coloured_by_what_is_true() -> None:
    drawn = bars(np.array([0.25, 0.75]), 0, (20, 40))
    assert (drawn == RIGHT).all(-1).sum(1)[4] == 10
    assert (drawn == WRONG).all(-1).sum(1)[14] == 30


def test_the_panel_shows_small_images_large() -> None:
    batch = collate([sample(0, 10 * i) for i in range(10)], range(10)).to(torch.device("cpu"))
    panel = task().panel(logits(*[(1.0, 0.0)] * 10), batch)
    side = panel.shape[1] // 2
    assert panel.shape == (LINE + 8 * (LINE + side), 2 * side, 3) and side >= 96
    assert tuple(panel[3 * LINE + side, 0]) == (10, 10, 10)


def test_the_classes_of_a_card_survive_the_checkpoint() -> None:
    card = ModelCard(outputs={"pet": task().output}, multiple=4)
    again = ModelCard.from_dict(json.loads(json.dumps(card.to_dict())))
    assert again.outputs["pet"] == task().output
    old = card.to_dict()
    del old["outputs"]["pet"]["classes"]  # of a card written before there were classes
    assert ModelCard.from_dict(old).outputs["pet"].classes == ()


def test_a_class_that_the_model_does_not_know_is_named() -> None:
    with pytest.raises(DataError, match="class 2"):
        task().image_scores(logits((0.0, 1.0)), collate([sample(2)], [0]).to(torch.device("cpu")))
