"""Formulae, against numbers worked out by hand and the published programs' own expressions in float64."""

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

from densevit.errors import ConfigError
from densevit.losses.depth import DEPTH_LOSSES, berhu, gradient, l1, log_l1, mse, relative_l1, silog
from densevit.losses.ssi import ssi, ssi_gradient
from densevit.losses.temporal import temporal_gradient

E = math.e


def maps(pred: list[list[float]], target: list[list[float]]) -> tuple[Tensor, Tensor, Tensor]:
    p, t = (torch.tensor(m, dtype=torch.float64)[None, None] for m in (pred, target))
    return p, t, t > 0


@pytest.fixture
def noisy() -> tuple[Tensor, Tensor, Tensor]:
    rng = np.random.default_rng(1)
    target = rng.uniform(0.5, 10, (3, 1, 9, 11))
    pred = target * np.exp(rng.normal(0.1, 0.3, target.shape))
    return torch.tensor(pred), torch.tensor(target), torch.tensor(rng.random(target.shape) > 0.2)


# ln ratios 1, 3 of two pixels: mean 2, variance 1 (unbiased 2), mean square 5.
TWO = maps([[E, 2 * E**3]], [[1, 2]])


@pytest.mark.parametrize(
    ("options", "square"),
    [
        ({"variance_focus": 0.0}, 5),
        ({"variance_focus": 1.0}, 1),
        ({"variance_focus": 0.85}, 1 + 0.15 * 4),
        ({"unbiased": True}, 2 + 0.15 * 4),  # SigLoss
        ({"scale_only": True}, 0.15 * 4),  # SigLoss in its first steps
    ],
)
def test_silog_of_two_pixels_by_hand(options: dict[str, float], square: float) -> None:
    assert silog(*TWO, **options).item() == pytest.approx(math.sqrt(square), abs=1e-9)


def test_silog_is_the_published_expressions(noisy: tuple[Tensor, Tensor, Tensor]) -> None:
    pred, target, valid = (m.numpy() for m in noisy)
    d = np.log(pred[valid]) - np.log(target[valid])
    bts = math.sqrt((d**2).mean() - 0.85 * d.mean() ** 2)
    dav2 = math.sqrt((d**2).mean() - 0.5 * d.mean() ** 2)
    sigloss = math.sqrt(d.var(ddof=1) + 0.15 * d.mean() ** 2)
    assert silog(*noisy, pool="batch").item() == pytest.approx(bts, rel=1e-9)
    assert silog(*noisy, variance_focus=0.5, pool="batch").item() == pytest.approx(dav2, rel=1e-9)
    assert silog(*noisy, unbiased=True, pool="batch").item() == pytest.approx(sigloss, rel=1e-9)


def test_eps_is_added_inside_both_logarithms_as_in_sigloss_and_gradient_loss() -> None:
    """dinov2's and dinov3's formulae, in float64, at millimetres, where 1e-3 counts."""
    pred, target, valid = maps([[0.0, 0.004, 0.005, 0.01]], [[0.001, 0.002, 0.003, 0]])
    d = np.log(np.array([0.0, 0.004, 0.005]) + 1e-3) - np.log(np.array([0.001, 0.002, 0.003]) + 1e-3)
    sigloss = math.sqrt(d.var(ddof=1) + 0.15 * d.mean() ** 2)
    assert silog(pred, target, valid, unbiased=True, eps=1e-3).item() == pytest.approx(sigloss, rel=1e-9)
    two_apart = abs(d[2] - d[0]) / 3  # the other pair has an end without depth
    assert gradient(pred, target, valid, strides=(1,), eps=1e-3).item() == pytest.approx(two_apart, rel=1e-9)
    for name in ("silog", "gradient"):
        loss = DEPTH_LOSSES.check({"type": name, "eps": 1e-3, "pool": "batch"}, "loss").build()
        other = DEPTH_LOSSES.check({"type": name, "pool": "batch"}, "loss").build()
        assert abs(loss(pred, target, valid).item() - other(pred, target, valid).item()) > 0.01


def test_silog_keeps_its_variance_where_two_moments_lose_it() -> None:
    """Errors of 3 +- 1e-4 in fp32: mean square minus squared mean is off by more than the variance, 1e-8."""
    wave = torch.tensor([1e-4, -1e-4]).repeat(50_000).view(1, 1, 250, 400)
    target = torch.ones_like(wave)
    value = silog((3 + wave).exp(), target, target > 0, variance_focus=1.0)
    assert value.item() == pytest.approx(1e-4, rel=5e-3)


def test_silog_warms_up_by_the_trainers_step() -> None:
    loss = DEPTH_LOSSES.check({"type": "silog", "warmup": 100, "unbiased": True}, "loss").build()
    loss.step = 99
    assert loss(*TWO).item() == pytest.approx(math.sqrt(0.6), abs=1e-9)
    loss.step = 100
    assert loss(*TWO).item() == pytest.approx(math.sqrt(2.6), abs=1e-9)


def test_pixelwise_losses_by_hand() -> None:
    three = maps([[1.5, 3.0], [9.0, 8.0]], [[1, 1], [0, 10]])  # |r| 0.5, 2, 2; one pixel without truth
    assert relative_l1(*three).item() == pytest.approx((0.5 + 2 + 0.2) / 3)
    assert l1(*three).item() == pytest.approx(4.5 / 3)
    assert mse(*three).item() == pytest.approx((0.25 + 4 + 4) / 3)
    assert log_l1(*three).item() == pytest.approx((math.log(1.5) + math.log(3) + math.log(1.25)) / 3)
    # c = 0.2 * 2 = 0.4: all three lie above it.
    assert berhu(*three).item() == pytest.approx(sum((r * r + 0.16) / 0.8 for r in (0.5, 2, 2)) / 3)
    # c = 0.3 * 2 = 0.6: the first lies below it.
    assert berhu(*three, threshold=0.3).item() == pytest.approx((0.5 + 2 * (4 + 0.36) / 1.2) / 3)


def test_the_optimum_of_relative_l1_over_several_possible_depths_lies_below_the_median() -> None:
    """Of 1, 4 and 9 m: each weighs 1 / depth, so that 1 m outweighs the other two."""
    target = torch.tensor([1.0, 4.0, 9.0]).view(1, 1, 1, 3)
    best = {
        loss: min((0.5, 1.0, 2.0, 4.0, 9.0), key=lambda depth: loss(torch.full_like(target, depth), target, target > 0))
        for loss in (relative_l1, log_l1)
    }
    assert best == {relative_l1: 1.0, log_l1: 4.0}


def test_the_worst_pixel_of_berhu_is_pulled_in_not_pushed_out() -> None:
    pred = torch.full((1, 1, 10, 10), 5.0)
    pred[0, 0, 0, 0] = 6.0
    target = torch.ones_like(pred)
    berhu(pred.requires_grad_(), target, target > 0).backward()
    assert pred.grad is not None and (pred.grad > 0).all()


def test_gradient_by_hand() -> None:
    """Log errors 0 1 0 2 / 0 0 0 0, all measured: |across by 2| 0 1 0 0; no row is 2 below; 8 pixels."""
    image = maps([[1, E, 1, E**2], [1, 1, 1, 1]], [[1] * 4] * 2)
    assert gradient(*image, strides=(1,)).item() == pytest.approx(1 / 8)
    # By 1: across 1 1 2, down 0 1 0 2. At stride 2 the pixels 0 0 are left, and differ by nothing.
    assert gradient(*image, strides=(1,), reach=1).item() == pytest.approx(7 / 8)
    assert gradient(*image, strides=(1, 2), reach=1).item() == pytest.approx(7 / 8)


def test_gradient_leaves_out_pairs_with_an_end_unmeasured() -> None:
    """Log errors 0 1 - 2 above 0 0 0 0: across 1, down 0 1 2; 7 pixels."""
    image = maps([[1, E, 1, E**2], [1, 1, 1, 1]], [[1, 1, 0, 1], [1, 1, 1, 1]])
    assert gradient(*image, strides=(1,), reach=1).item() == pytest.approx((2 + 2) / 7)


def test_gradient_of_an_image_smaller_than_its_reach_is_zero() -> None:
    assert gradient(*maps([[2.0]], [[1.0]])).item() == 0


@pytest.mark.parametrize("align", ["median", "lstsq"])
@pytest.mark.parametrize("space", ["disparity", "depth"])
def test_ssi_losses_ignore_scale_and_shift(align: str, space: str, noisy: tuple[Tensor, Tensor, Tensor]) -> None:
    pred, target, valid = noisy
    for loss in (ssi, ssi_gradient):
        once = loss(pred, target, valid, align=align, space=space).item()
        twice = loss(3 * pred - 20, target, valid, align=align, space=space).item()
        assert twice == pytest.approx(once, rel=1e-9)
    perfect = 0.4 / target - 3 if space == "disparity" else 0.4 * target - 3
    assert ssi(perfect, target, valid, align=align, space=space).item() == pytest.approx(0, abs=1e-12)


def test_ssi_least_squares_is_numpys(noisy: tuple[Tensor, Tensor, Tensor]) -> None:
    expected = []
    for pred, target, valid in zip(*(m.numpy() for m in noisy), strict=True):
        x, y = pred[valid], 1 / target[valid]
        scale, shift = np.polyfit(x, y, 1)
        expected.append(((scale * x + shift - y) ** 2).mean() / 2)
    assert ssi(*noisy, align="lstsq", error="mse", trim=0.0).item() == pytest.approx(np.mean(expected), rel=1e-9)


def test_ssi_median_by_hand() -> None:
    """Predictions 0 1 2 3 8: median 2, mean deviation 2. Depths 1 2 3 4 5: median 3, mean deviation 1.2.

    Normalised: -1 -.5 0 .5 3 against -5/3 -5/6 0 5/6 5/3: errors 2/3 1/3 0 1/3 4/3. A trim of a fifth leaves 4/3.
    """
    five = maps([[0, 1, 2, 3, 8]], [[1, 2, 3, 4, 5]])
    assert ssi(*five, space="depth").item() == pytest.approx(4 / 3 / 10)
    assert ssi(*five, space="depth", trim=0.0).item() == pytest.approx(8 / 3 / 10)
    # Differences of the signed errors 2/3 1/3 0 -1/3 4/3 are 1/3 1/3 1/3 5/3.
    assert ssi_gradient(*five, space="depth", strides=(1,)).item() == pytest.approx((1 + 5 / 3) / 5)


def test_pooling_by_image_and_by_batch_differ_as_told() -> None:
    """An image with errors 1 1 and one with error 4: 2.5 by image, 2 by batch."""
    pred = torch.tensor([[2.0, 2.0], [5.0, 5.0]]).view(2, 1, 1, 2)
    valid = torch.tensor([[True, True], [True, False]]).view(2, 1, 1, 2)
    assert l1(pred, torch.ones_like(pred), valid).item() == 2.5
    assert l1(pred, torch.ones_like(pred), valid, pool="batch").item() == 2.0


@pytest.mark.parametrize("option", [{"variance_focus": 1.5}, {"focus": 0.5}, {"pool": "pixel"}, {"warmup": -1}])
def test_options_that_cannot_be_are_refused_by_name(option: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(option))):
        DEPTH_LOSSES.check({"type": "silog", **option}, "loss")


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
