"""What DINOv2's, DINOv3's and Depth Anything 3's published heads ask of our parts, by hand and by property."""

import pytest
import torch
from torch import Tensor, nn
from toy_models import toy_features, toy_specs

from densevit.models.decoders.base import DecoderOutput
from densevit.models.decoders.dpt import DPT
from densevit.models.heads.bins import BinsHead
from densevit.models.heads.sky import SkyDepthHead, fill_sky

SPECS = toy_specs(4)


def test_doubling_fusions_end_at_sixteen_times_the_deepest_level() -> None:
    # A strided 3x3 makes 2x3 of 3x5; four doublings make 32x48. Fusions by level end at eight times the grid, 24x40.
    given = toy_features(4, grid=(3, 5))
    assert DPT(SPECS, 1, channels=8, fusion_size="double")(given).shape[-2:] == (32, 48)
    assert DPT(SPECS, 1, channels=8)(given).shape[-2:] == (24, 40)


def test_doubling_changes_nothing_while_the_grid_is_even() -> None:
    torch.manual_seed(0)
    one, other = DPT(SPECS, 1, channels=8), DPT(SPECS, 1, channels=8, fusion_size="double")
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(toy_features(4, grid=(4, 6))), other(toy_features(4, grid=(4, 6))))
    assert one(toy_features(4, grid=(4, 5))).shape != other(toy_features(4, grid=(4, 5))).shape


def test_bins_without_metres_claim_none() -> None:
    output = BinsHead(3, kind="affine").output
    assert (output.kind, output.unit, output.range) == ("affine", "", None)


def test_sky_lies_at_the_99th_percentile_of_the_ground() -> None:
    # Ground 0 to 100 in 101 steps: its 99th percentile is 99.
    depth = torch.cat([torch.arange(101.0), torch.full((11,), 5.0)])[None, None, None]
    sky = torch.arange(112)[None, None, None] > 100
    found = fill_sky(depth, ~sky)
    assert torch.equal(found[~sky], depth[~sky])
    assert found[sky].tolist() == pytest.approx([99.0] * 11)


@pytest.mark.parametrize("few", [0, 10])
def test_hardly_any_sky_or_ground_is_taken_for_none(few: int) -> None:
    depth, mask = torch.rand(1, 1, 8, 8), torch.zeros(64, dtype=torch.bool)
    mask[:few] = True
    assert torch.equal(fill_sky(depth, mask.view(1, 1, 8, 8)), depth)
    assert torch.equal(fill_sky(depth, ~mask.view(1, 1, 8, 8)), depth)


def test_the_sky_is_an_extra_in_training_and_fills_nothing_there() -> None:
    torch.manual_seed(0)
    head, x = SkyDepthHead(8, hidden=4), torch.randn(1, 8, 4, 4)
    nn.init.constant_(head.sky[-1].bias, 0.3)  # type: ignore[index]
    answer = head.train()(x, (8, 8))
    assert isinstance(answer, DecoderOutput)
    seen: Tensor = head.eval()(x, (8, 8))  # type: ignore[assignment]
    assert answer.extras["sky"].shape == answer.map.shape
    ground = answer.extras["sky"] < 0.3
    assert 10 < int(ground.sum()) < 54
    assert torch.equal(seen[ground], answer.map[ground]) and not torch.equal(seen, answer.map)


def test_a_focal_length_makes_depth_metric() -> None:
    assert (SkyDepthHead(8).output.kind, SkyDepthHead(8).output.focal) == ("affine", None)
    assert (SkyDepthHead(8, focal=300.0).output.kind, SkyDepthHead(8, focal=300.0).output.focal) == ("metric", 300.0)
