"""Losses of clips, against numbers worked out by hand."""

import math
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from test_edges import EDGES
from torch import Tensor

from densevit.losses.depth import DEPTH_LOSSES
from densevit.losses.ssi import ssi, ssi_gradient
from densevit.losses.temporal import temporal_gradient


def clip(*frames: list[float]) -> Tensor:
    return torch.tensor(frames, dtype=torch.float64)[:, None, None]


ALL = torch.ones(2, 1, 1, 3, dtype=torch.bool)
TRUTH = clip([1, 2, 11], [1.2, 2, 3])  # a range of 10, then of 1.8: only changes below 0.05 * 1.8 = 0.09 count


def test_the_change_of_pixels_that_hardly_change_is_compared() -> None:
    moving, options = clip([1, 2, 4], [1, 3, 9]), {"space": "log_depth", "clip_length": 2}
    log = temporal_gradient(moving, TRUTH, ALL, **options)
    assert float(log) == pytest.approx(math.log(1.5))  # of the middle pixel alone
    wide = temporal_gradient(moving, TRUTH, ALL, threshold=0.2, **options)  # ln 1.2 = 0.182 counts, too
    assert float(wide) == pytest.approx((math.log(1.5) + math.log(1.2)) / 2)


def test_one_scale_and_shift_brings_a_clip_onto_its_ground_truth() -> None:
    exact = temporal_gradient(5 * TRUTH - 3, TRUTH, ALL, space="depth", clip_length=2)
    assert float(exact) == pytest.approx(0, abs=1e-6)
    inverse = temporal_gradient(0.2 / TRUTH + 1, TRUTH, ALL, space="disparity", clip_length=2)
    assert float(inverse) == pytest.approx(0, abs=1e-6)
    # By hand: p = 0, 0 | 0, 1 and g = 0, 10 | 0, 10; s = cov/var = 10/3, t = 5 - 10/3 / 4; so p2 changes by 10/3.
    p, g, valid = clip([0, 0], [0, 1]), clip([1, 11], [1, 11]), torch.ones(2, 1, 1, 2, dtype=torch.bool)
    assert float(temporal_gradient(p, g, valid, space="depth", clip_length=2)) == pytest.approx((0 + 20 / 3) / 2)


def test_a_pixel_must_be_measured_in_both_frames_and_single_images_have_no_change() -> None:
    valid = ALL.clone()
    valid[0, ..., 1] = False
    prediction = clip([1, 2, 4], [1, 3, 9])
    assert float(temporal_gradient(prediction, TRUTH, valid, space="log_depth", clip_length=2)) == 0
    assert float(temporal_gradient(prediction, TRUTH, ALL, clip_length=1)) == 0


def test_clips_of_a_batch_are_averaged() -> None:
    still, moving = torch.cat([TRUTH[1:], TRUTH[1:]]), clip([1, 2, 4], [1, 3, 9])
    options = {"space": "log_depth", "clip_length": 2}
    one = temporal_gradient(moving, TRUTH, ALL, **options)
    two = temporal_gradient(torch.cat([moving, still]), torch.cat([TRUTH, still]), torch.cat([ALL, ALL]), **options)
    assert float(two) == pytest.approx(float(one) / 2)


@pytest.mark.parametrize("loss", [ssi, ssi_gradient])
def test_a_scale_that_jumps_within_a_clip_is_no_error_of_images_but_of_the_clip(loss: object) -> None:
    torch.manual_seed(0)
    target = torch.rand(4, 1, 6, 7, dtype=torch.float64) + 1
    jumping = target * torch.tensor([1.0, 2, 1, 3])[:, None, None, None] + 0.5
    valid = torch.ones_like(target, dtype=torch.bool)
    options = {"space": "depth", "clip_length": 2}
    assert float(loss(jumping, target, valid, **options)) == pytest.approx(0, abs=1e-6)  # type: ignore[operator]
    assert float(loss(jumping, target, valid, per_clip=True, **options)) > 0.05  # type: ignore[operator]
    steady = target * torch.tensor([2.0, 2, 3, 3])[:, None, None, None] - 1
    assert float(loss(steady, target, valid, per_clip=True, **options)) == pytest.approx(0, abs=1e-6)  # type: ignore[operator]


def test_value_and_gradient_of_clips_are_finite() -> None:
    for spec, (edge, (image, target, valid)) in product((
        *({"type": "temporal_gradient", "space": space} for space in ("disparity", "depth", "log_depth")),
        {"type": "ssi", "per_clip": True},
        {"type": "ssi_gradient", "per_clip": True, "align": "lstsq"},
    ), EDGES.items()):  # fmt: skip
        loss, pred = DEPTH_LOSSES.check(spec, "loss").build(), image.clone().requires_grad_()
        loss.clip_length = 2
        value = loss(pred, target, valid)
        value.backward()
        assert value.isfinite() and pred.grad.isfinite().all(), (spec, edge)


def test_the_documented_losses_are_video_depth_anythings() -> None:
    """Its formula in NumPy, on a clip that is measured everywhere, without its epsilons."""
    draw = np.random.default_rng(0)
    depth = draw.uniform(1, 5, (1, 16, 24)) * (1 + 0.02 * draw.normal(size=(4, 16, 24)))
    prediction, truth = draw.uniform(0.1, 2, depth.shape), 1 / depth

    def normalised(frame: np.ndarray) -> np.ndarray:
        centred = frame - np.sort(frame.ravel())[(frame.size - 1) // 2]
        return centred / np.abs(centred).mean()

    errors = np.stack([normalised(p) - normalised(t) for p, t in zip(prediction, truth, strict=True)])
    expected = np.abs(errors).mean()
    for step in (1, 2, 4, 8):
        kept = errors[:, ::step, ::step]
        steps = [np.abs(np.diff(kept, axis=axis)).sum() for axis in (1, 2)]
        expected += 0.5 * sum(steps) / kept.size
    scale, _ = np.polyfit(prediction.ravel(), truth.ravel(), 1)
    change, moved = np.diff(truth, axis=0), scale * np.diff(prediction, axis=0)
    still = np.abs(change) < 0.05 * np.ptp(truth, axis=(1, 2))[1:, None, None]
    expected += 10 * np.abs(moved - change)[still].mean()

    page = (Path(__file__).parents[2] / "docs/video.md").read_text()
    line = next(line for line in page.splitlines() if "type: temporal_gradient, weight" in line)
    losses = yaml.safe_load(line[line.index("[") : line.index("]") + 1])
    maps = (torch.from_numpy(x)[:, None] for x in (prediction, depth))
    given = (*maps, torch.ones(4, 1, 16, 24, dtype=torch.bool))
    temporal = partial(temporal_gradient, clip_length=4)
    functions = {"ssi": ssi, "ssi_gradient": ssi_gradient, "temporal_gradient": temporal}
    total = sum(spec.pop("weight") * float(functions[spec.pop("type")](*given, **spec)) for spec in losses)
    assert still.any() and total == pytest.approx(expected, rel=1e-7)
