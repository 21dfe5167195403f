"""What every registered loss owes on the inputs that break published ones: finite, exact, in any precision."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from densevit.losses.depth import DEPTH_LOSSES, DepthLoss

Maps = tuple[Tensor, Tensor, Tensor]
NAN, INF = float("nan"), float("inf")


def ordinary(dtype: torch.dtype = torch.float32, size: int = 12) -> Maps:
    g = torch.Generator().manual_seed(0)
    target = torch.rand(2, 1, size, size, generator=g, dtype=torch.float64) * 9 + 0.5
    pred = target * (1 + 0.3 * torch.randn(target.shape, generator=g, dtype=torch.float64)).clamp_min(0.2)
    valid = torch.rand(target.shape, generator=g) > 0.3
    return pred.to(dtype), target.to(dtype), valid


def _with(change: Callable[[Tensor, Tensor, Tensor], object]) -> Maps:
    pred, target, valid = ordinary()
    change(pred, target, valid)
    return pred, target, valid


# Each of these makes at least one published log loss, or its gradient, NaN.
EDGES: dict[str, Maps] = {
    "ordinary": ordinary(),
    "empty mask": _with(lambda p, t, v: v.fill_(False)),
    "one image empty": _with(lambda p, t, v: v[0].fill_(False)),
    "one pixel": _with(lambda p, t, v: (v.fill_(False), v[:, :, 3, 4].fill_(True))),
    "perfect": _with(lambda p, t, v: p.copy_(t)),
    "constant": _with(lambda p, t, v: (p.fill_(2.7), t.fill_(3.1))),
    "pred has zeros": _with(lambda p, t, v: p[..., :3].fill_(0)),
    "pred is negative": _with(lambda p, t, v: p[..., :3].fill_(-0.5)),
    "truth 0 inside mask": _with(lambda p, t, v: (t[..., :3].fill_(0), v[..., :3].fill_(True))),
    "truth NaN inside mask": _with(lambda p, t, v: (t[..., :3].fill_(NAN), v[..., :3].fill_(True))),
    "truth inf inside mask": _with(lambda p, t, v: (t[..., :3].fill_(INF), v[..., :3].fill_(True))),
    "truth NaN outside mask": _with(lambda p, t, v: (t[..., :3].fill_(NAN), v[..., :3].fill_(False))),
    "pred NaN outside mask": _with(lambda p, t, v: (p[..., :3].fill_(NAN), v[..., :3].fill_(False))),
}
VARIANTS: dict[str, dict[str, object]] = {
    **{name: {"type": name} for name in DEPTH_LOSSES.components},
    "SigLoss": {"type": "silog", "unbiased": True, "eps": 1e-3},
    "SigLoss warming up": {"type": "silog", "unbiased": True, "warmup": 1},
    "silog ignoring scale": {"type": "silog", "variance_focus": 1.0},
    "ssi lstsq mse": {"type": "ssi", "align": "lstsq", "error": "mse", "trim": 0},
    "ssi on depth": {"type": "ssi", "space": "depth"},
    "ssi_gradient lstsq": {"type": "ssi_gradient", "align": "lstsq"},
}


def build(variant: str, **options: object) -> DepthLoss:
    return DEPTH_LOSSES.check({**VARIANTS[variant], **options}, "loss").build()


POOLS = ("image", "batch")
every_variant = pytest.mark.parametrize("variant", VARIANTS)


@every_variant
def test_value_and_gradient_are_finite_on_every_edge(variant: str) -> None:
    for pool, dtype in product(POOLS, (torch.float32, torch.bfloat16, torch.float16)):
        loss = build(variant, pool=pool)
        for edge, (pred, target, valid) in EDGES.items():
            leaf, told = pred.to(dtype, copy=True).requires_grad_(), (pool, dtype, edge)
            value = loss(leaf, target, valid)
            value.backward()
            assert value.dtype == torch.float32 and value.isfinite() and value >= 0, (told, value)
            assert leaf.grad[valid].isfinite().all() and (leaf.grad[~valid] == 0).all(), told
            if edge == "empty mask":  # exactly zero, and attached to the graph
                assert value.item() == 0 and leaf.grad.count_nonzero() == 0, told


@every_variant
def test_an_image_weighs_the_same_in_any_batch(variant: str) -> None:
    loss = build(variant)
    pred, target, valid = EDGES["one image empty"]
    alone = [loss(pred[i : i + 1], target[i : i + 1], valid[i : i + 1]).item() for i in range(2)]
    assert loss(pred, target, valid).item() == pytest.approx(sum(alone) / 2, rel=1e-6)
    assert alone[0] == 0
    one = [m[:1] for m in ordinary()]
    assert build(variant, pool="batch")(*one).item() == pytest.approx(loss(*one).item(), rel=1e-6)


@every_variant
def test_fp32_equals_fp64_and_autocast_changes_no_bit(variant: str) -> None:
    for pool in POOLS:
        loss = build(variant, pool=pool)
        single, double = loss(*ordinary()), loss(*ordinary(torch.float64))
        assert double.dtype == torch.float64
        assert single.item() == pytest.approx(double.item(), rel=1e-6)
        with torch.autocast("cpu", torch.bfloat16):
            assert loss(*ordinary()).item() == single.item()


@every_variant
def test_the_gradient_is_the_derivative(variant: str) -> None:
    pred, target, valid = ordinary(torch.float64, size=5)
    worst = torch.where(valid, (pred - target).abs(), 0).flatten(1).argmax(1)
    free = torch.ones_like(valid).flatten(1)
    if variant == "berhu":  # its bend follows the worst pixel and is a constant to the gradient by design
        free[torch.arange(2), worst] = False
    free = free.view_as(valid)
    loss = build(variant)
    assert torch.autograd.gradcheck(
        lambda p: loss(torch.where(free, p, pred), target, valid), pred.clone().requires_grad_()
    )


@every_variant
def test_a_nan_prediction_is_not_hidden_and_millimetres_do_not_overflow(variant: str) -> None:
    pred, target, valid = ordinary()
    pred[valid] = NAN
    assert not build(variant)(pred, target, valid).isfinite()
    pred, target, valid = ordinary(size=64)
    assert build(variant)(pred.mul(60_000 / 30).half(), target * 2000, valid).isfinite()
