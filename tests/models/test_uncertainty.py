"""The uncertainty of depth heads: beside the same depth, without a gradient to it."""

import pytest
import torch

from densevit.losses.ssi import laplace
from densevit.models.decoders.base import DecoderOutput
from densevit.models.dense import as_decoder_output
from densevit.models.heads.base import HEADS
from densevit.registry import ComponentConfig

DEPTH_HEADS: list[ComponentConfig] = [
    {"type": "metric"},
    {"type": "disparity"},
    {"type": "affine"},
    {"type": "inverse_depth"},
    {"type": "identity_depth"},
    {"type": "bins", "bins": 16},
    {"type": "sky_depth"},
]


@pytest.mark.parametrize("spec", DEPTH_HEADS, ids=lambda spec: str(spec["type"]))
@pytest.mark.parametrize("training", [False, True])
def test_every_depth_head_gives_it_beside_the_same_depth(spec: ComponentConfig, training: bool) -> None:
    with_it = HEADS.check({**spec, "uncertainty": "laplace"}, "head").build(16).train(training)
    without = HEADS.check(spec, "head").build(16).train(training)
    without.load_state_dict({k: v for k, v in with_it.state_dict().items() if not k.startswith("uncertainty.")})
    x = torch.randn(2, 16, 6, 8, requires_grad=True)
    output, plain = with_it(x, (24, 32)), as_decoder_output(without(x, (24, 32)))
    assert isinstance(output, DecoderOutput)
    torch.testing.assert_close(output.map, plain.map)
    scale = output.extras["uncertainty"]
    assert scale.shape == (2, 1, 24, 32) and scale.dtype == torch.float32 and (scale > 0).all()
    scale.sum().backward()
    assert x.grad is None  # the features, and so the depth, learn nothing from it
    assert all(p.grad is not None for name, p in with_it.named_parameters() if name.startswith("uncertainty."))


def test_the_loss_is_least_where_the_scale_is_the_mean_error() -> None:
    target = torch.full((1, 1, 20, 20), 2.0)
    pred = target * torch.linspace(-0.5, 0.5, 400).exp().view_as(target)  # errors of ln d: 0.25 on average
    valid = torch.ones_like(target, dtype=torch.bool)
    losses = {
        b: laplace(pred, torch.full_like(target, b), target, valid, kind="metric").item() for b in (0.2, 0.25, 0.3)
    }
    assert min(losses, key=losses.__getitem__) == 0.25
    assert losses[0.25] == pytest.approx(1 + torch.tensor(0.25).log().item() + 7, abs=5e-3)
    assert laplace(pred, pred, target, ~valid, kind="metric").item() == 0


@pytest.mark.parametrize("kind", ["affine", "disparity"])
def test_without_unit_the_error_is_that_after_alignment(kind: str) -> None:
    target = 1 + torch.rand(1, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    valid = torch.ones_like(target, dtype=torch.bool)
    exact = 1 / target if kind == "disparity" else target
    b = torch.full_like(target, 0.1)
    perfect = laplace(3 * exact + 2, b, target, valid, kind=kind)  # type: ignore[arg-type]
    assert perfect.item() == pytest.approx(torch.tensor(0.1).log().item() + 7, abs=1e-4)
    off = laplace(3 * exact + 0.5 * torch.rand_like(exact), b, target, valid, kind=kind)  # type: ignore[arg-type]
    assert off > perfect
