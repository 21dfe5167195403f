"""Formulae, against numbers worked out by hand and the published programs' own expressions in float64."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from densevit.errors import ConfigError
from densevit.losses.depth import DEPTH_LOSSES, berhu, gradient, l1, log_l1, mse, relative_l1, silog
from densevit.losses.ssi import ssi, ssi_gradient

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
