"""Validation of metric depth tells predictions that are off by one factor."""

import numpy as np
import pytest
import torch

from densevit.data.loading.collate import collate
from densevit.engine.monitors import Map, report_scale, with_scale
from densevit.evaluation.depth.metrics import depth_metrics
from densevit.evaluation.depth.scores import mean_row
from densevit.model_card import HeadSpec
from densevit.structures import Sample
from densevit.tasks.depth import DepthTask

DRAW = np.random.default_rng(0)
DEPTHS = [DRAW.uniform(1, 5, (24, 32)).astype(np.float32) for _ in range(6)]


def score(p: Map, d: Map, v: np.ndarray) -> dict[str, float]:
    return depth_metrics(p[v].astype(float), d[v].astype(float))


def told(maps: list[np.ndarray], capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, float]]:
    output = HeadSpec(kind="metric", range=(0.1, 20.0))
    task = DepthTask("depth", output, [], with_scale(score), lambda rows: mean_row(report_scale("depth", rows)))
    image = np.zeros((24, 32, 3), np.uint8)
    samples = [Sample(name=str(i), image=image, depth=d, valid=d > 0) for i, d in enumerate(DEPTHS)]
    rows = task.image_scores(torch.from_numpy(np.stack(maps)[:, None]), collate(samples, range(6)))
    scores = task.dataset_scores(rows)
    return capsys.readouterr().out, scores


def test_predictions_of_nearly_twice_the_ground_truth_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    noisy = [d * DRAW.normal(1.8, 0.09, d.shape).astype(np.float32) for d in DEPTHS]
    text, scores = told(noisy, capsys)
    assert text.startswith("warning: depth: predictions are 1.8 times the ground truth: AbsRel 0.8")
    assert "median scaling. Look for another depth_scale" in text
    assert scores.keys() == score(noisy[0], DEPTHS[0], DEPTHS[0] > 0).keys()


def test_good_untrained_and_constant_predictions_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    constant = [np.full_like(d, 9.0) for d in DEPTHS]
    scattered = [d * np.float32(factor) for d, factor in zip(DEPTHS, (0.3, 4, 1, 2, 0.5, 3), strict=True)]
    for maps in (DEPTHS, constant, scattered, [d * np.float32(1.1) for d in DEPTHS]):
        assert told(maps, capsys)[0] == ""
