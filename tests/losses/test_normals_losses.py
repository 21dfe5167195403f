"""Losses of normals against angles worked out by hand."""

import math

import pytest
import torch

from densevit.losses.normals import NORMAL_LOSSES, angular, l1


def turned(degrees: float, size: tuple[int, int] = (2, 3)) -> torch.Tensor:
    """(0, 0, -1) turned about the vertical axis."""
    angle = math.radians(degrees)
    vector = torch.tensor([math.sin(angle), 0.0, -math.cos(angle)])
    return vector[None, :, None, None].repeat(1, 1, *size)


ALL = torch.ones(1, 1, 2, 3, dtype=torch.bool)


@pytest.mark.parametrize("degrees", [0.0, 0.5, 40.0, 90.0, 180.0])
def test_the_angle_is_exact_at_both_ends_and_between(degrees: float) -> None:
    pred = turned(degrees).requires_grad_()
    loss = angular(pred, turned(0), ALL)
    assert loss.item() == pytest.approx(math.radians(degrees), abs=2e-6)
    loss.backward()
    assert pred.grad is not None and pred.grad.isfinite().all()


def test_l1_is_the_sum_over_components() -> None:
    # (0.6, 0, -0.8) and (0, 0, -1): 0.6 + 0.2.
    pred = torch.tensor([0.6, 0.0, -0.8])[None, :, None, None].repeat(1, 1, 2, 3)
    assert float(l1(pred, turned(0), ALL)) == pytest.approx(0.8)


@pytest.mark.parametrize("name", sorted(NORMAL_LOSSES.components))
def test_only_known_normals_count_and_none_give_zero_on_the_graph(name: str) -> None:
    loss = NORMAL_LOSSES.check({"type": name}, "loss").build()
    target, pred = turned(0), turned(30).requires_grad_()
    whole = loss(pred, target, ALL)
    target[..., 0, 0] = 0  # unknown
    target[..., 1, 1] = math.nan
    assert loss(pred, target, ALL).item() == pytest.approx(whole.item(), rel=1e-6)
    none = loss(pred, target, ~ALL)
    none.backward()
    assert none.item() == 0 and pred.grad is not None and not pred.grad.any()
    half = loss(turned(30).half(), turned(0).half(), ALL)
    assert half.dtype == torch.float32
