"""Heads keep their range, start where they are told, and never lose a gradient."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from densevit.errors import ConfigError
from densevit.models.heads.base import ACTIVATIONS, HEADS, clamp_ste
from densevit.models.heads.bins import BinsHead
from densevit.models.heads.depth import AffineHead, DisparityHead, IdentityDepthHead, InverseHead, MetricHead
from densevit.models.layers import ConvHead

METRIC = ["sigmoid", "log", "exp", "softplus"]


def test_activations_equal_their_formulas_and_their_inverses_undo_them() -> None:
    # by hand, with x = ln 3 (sigmoid 3/4, exp 3, softplus ln 4), low 1, high 16
    x = torch.tensor(math.log(3))
    expected = {"sigmoid": 1 + 15 * 0.75, "log": 16**0.75, "exp": 3.0, "softplus": 1 + math.log(4)}
    for name, depth in expected.items():
        chosen = ACTIVATIONS[name]
        assert chosen.depth(x, 1.0, 16.0).item() == pytest.approx(depth, rel=1e-6)
        for depth in (0.02, 2.5, 9.9):
            logit = torch.tensor(chosen.inverse(depth, 0.01, 10.0))
            assert chosen.depth(logit, 0.01, 10.0).item() == pytest.approx(depth, rel=1e-4)


@pytest.mark.parametrize("activation", METRIC)
def test_metric_depth_stays_in_range_whatever_comes(activation: Any) -> None:
    head = MetricHead(4, activation=activation, min_depth=1e-3, max_depth=80.0, hidden=0)
    assert head.output.range == (1e-3, 80.0)
    for logit in (-1e4, -50.0, 0.0, 50.0, 1e4):
        nn.init.constant_(head.projection.last.bias, logit)
        depth = head(torch.randn(1, 4, 5, 6), (10, 12))
        assert depth.shape == (1, 1, 10, 12) and 1e-3 <= depth.min() <= depth.max() <= 80


def test_a_pixel_beyond_the_ceiling_still_has_a_gradient() -> None:
    for activation in ("exp", "softplus"):
        head = MetricHead(4, activation=activation, max_depth=10.0, hidden=0)
        nn.init.constant_(head.projection.last.bias, 100.0)
        head(torch.randn(1, 4, 5, 6), (5, 6)).log().sum().backward()
        assert 1 < head.projection.last.bias.grad.item() < math.inf
    x = torch.tensor([-3.0, 0.5, 1e9], requires_grad=True)
    y = clamp_ste(x, 0.0, 1.0)
    y.sum().backward()
    assert y.tolist() == [0, 0.5, 1] and x.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize("activation", METRIC)
def test_training_starts_at_the_depth_asked_for(activation: Any) -> None:
    x = torch.randn(2, 64, 12, 16)
    torch.manual_seed(0)
    for given, start in ((None, 2.5), (4.0, 4.0)):  # a quarter of max_depth unless given
        depth = MetricHead(64, activation=activation, initial_depth=given)(x, (48, 64))
        assert depth.median().item() == pytest.approx(start, rel=0.1)


@pytest.mark.parametrize("name", ["metric", "disparity", "affine", "bins"])
def test_predictions_are_float_under_bfloat16(name: str) -> None:
    head = HEADS.components[name](16)
    with torch.autocast("cpu", torch.bfloat16):
        assert head(torch.randn(1, 16, 4, 4), (8, 8)).dtype == torch.float32


def test_one_by_one_commutes_with_upsampling() -> None:
    projection, x = ConvHead(6, 1, hidden=0, align_corners=False), torch.randn(1, 6, 4, 5)
    grown = nn.functional.interpolate(x, size=(13, 17), mode="bilinear", align_corners=False)
    torch.testing.assert_close(projection(x, (13, 17)), projection.last(grown))


def test_linear_bins_are_dinov2s_expectation_and_log_bins_are_even_in_ratios() -> None:
    head, x = BinsHead(3, bins=4, min_depth=1.0, max_depth=10.0, upsample=1), torch.randn(1, 3, 1, 1)
    shares = head.projection(x, (1, 1)).flatten().relu() + 0.1
    expectation = (shares / shares.sum() * torch.tensor([1.0, 4.0, 7.0, 10.0])).sum()
    assert head(x, (1, 1)).item() == pytest.approx(expectation.item())
    # DINOv2 and MDET pass min and max to logspace as exponents; the centres must run from min to max.
    head = BinsHead(3, bins=4, spacing="log", weights="softmax", min_depth=0.01, max_depth=10.0)
    assert head.centres.tolist() == pytest.approx([0.01, 0.1, 1, 10]) and "centres" not in head.state_dict()


def test_relative_heads_claim_no_unit_and_disparity_is_never_negative_and_starts_alive() -> None:
    for head in (DisparityHead(8), DisparityHead(8, activation="softplus"), AffineHead(8)):
        assert head.output.kind in ("disparity", "affine") and head.output.unit == ""
    head = DisparityHead(8)
    assert (head(torch.randn(1, 8, 6, 6), (12, 12)) > 0).float().mean() > 0.95
    nn.init.constant_(head.projection.last.bias, -5.0)
    assert head(torch.randn(1, 8, 6, 6), (12, 12)).min() == 0


def test_ranges_that_make_no_sense_are_refused() -> None:
    for options, message in (
        ({"min_depth": 10.0, "max_depth": 10.0}, "not below max_depth"),
        ({"initial_depth": 11.0}, "not within"),
        ({"min_depth": 0.0, "activation": "exp"}, "above 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            MetricHead(8, **options)


def test_inverse_turns_disparity_into_metres_by_two_constants() -> None:
    # DPT's for NYU, run_monodepth.py: nothing is further than 1 / 0.1378 m.
    head = InverseHead(4, scale=0.000305, shift=0.1378, hidden=0)
    with torch.no_grad():
        head.projection.last.weight.zero_()
        head.projection.last.bias.fill_(1000.0)  # type: ignore[union-attr]
        assert head(torch.rand(1, 4, 2, 2), (4, 4)).mean().item() == pytest.approx(1 / (0.305 + 0.1378))
        head.projection.last.bias.fill_(-5.0)  # type: ignore[union-attr]
        furthest = head(torch.rand(1, 4, 2, 2), (4, 4)).max().item()
    assert head.output.range == (0.0, pytest.approx(furthest))


def test_metres_hands_one_map_on_as_it_is() -> None:
    x = torch.rand(1, 1, 4, 4)
    assert torch.equal(IdentityDepthHead(1)(x, (4, 4)), x)
    assert IdentityDepthHead(1).output.range is None
    assert IdentityDepthHead(1, max_depth=80.0).output.range == (0.0, 80.0)
