"""Measured points: an image without any is predicted as without blocks, and they teach a model to follow them."""

import pytest
import torch
from torch import Tensor
from toy_models import toy_conditioned

from densevit.errors import ConfigError
from densevit.models.conditioning.points import describe, spread_points
from densevit.models.dense import DenseModel


@pytest.fixture(scope="module")
def trained() -> DenseModel:
    """A model whose blocks do something."""
    model = toy_conditioned(points={"hidden": 8})
    for block in model.get_submodule("conditioning.points.blocks").children():
        torch.nn.init.normal_(block.out.weight, std=0.3)  # type: ignore[arg-type, union-attr]
    return model


def some_points(depth: Tensor, every: int = 5) -> Tensor:
    points = torch.zeros_like(depth)
    points[..., 2::every, 1::every] = depth[..., 2::every, 1::every]
    return points


def test_a_started_model_gives_with_points_what_it_gives_without_and_a_trained_one_does_not(
    trained: DenseModel,
) -> None:
    images = torch.rand(2, 3, 40, 48)
    points = some_points(torch.full((2, 1, 40, 48), 4.0))
    started = toy_conditioned(points={"hidden": 8})
    with torch.inference_mode():
        assert torch.equal(started(images, {"points": points})["depth"], started(images)["depth"])
        assert not torch.allclose(trained(images, {"points": points})["depth"], trained(images)["depth"], atol=1e-3)


def test_an_image_without_points_is_predicted_as_by_the_model_without_blocks_whatever_the_others_have(
    trained: DenseModel,
) -> None:
    images = torch.rand(3, 3, 40, 48)
    points = some_points(torch.full((3, 1, 40, 48), 4.0))
    points[1] = 0
    plain = toy_conditioned()
    plain.load_state_dict({k: v for k, v in trained.state_dict().items() if not k.startswith("conditioning")})
    with torch.inference_mode():
        expected = plain(images)["depth"]
        assert torch.equal(trained(images)["depth"], expected)
        assert torch.equal(trained(images, {"points": points})["depth"][1], expected[1])


@pytest.mark.slow
def test_blocks_alone_learn_to_follow_the_points_in_a_few_steps() -> None:
    model = toy_conditioned(points={"hidden": 16})
    model.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.conditioning.requires_grad_(True).parameters(), 3e-3)
    generator = torch.Generator().manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        images = torch.rand(4, 3, 32, 32, generator=generator)
        metres = 1.0 + 6 * torch.rand(4, 1, 1, 1, generator=generator)
        return images, metres.expand(4, 1, 32, 32).clone()

    for _ in range(40):
        images, truth = batch()
        loss = (model(images, {"points": some_points(truth)})["depth"].log() - truth.log()).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    images, truth = batch()
    with torch.inference_mode():
        without, given = model(images)["depth"], model(images, {"points": some_points(truth)})["depth"]
    assert (given / truth - 1).abs().mean() < 0.5 * (without / truth - 1).abs().mean()


def test_spread_points_keeps_the_points_and_a_plane_between_them_and_is_nothing_without_any() -> None:
    rows, columns = torch.meshgrid(torch.arange(33.0), torch.arange(47.0), indexing="ij")
    plane = (1 + 0.02 * rows + 0.01 * columns)[None, None]
    known = torch.zeros(2, 1, 33, 47, dtype=torch.bool)
    known[0, :, ::4, ::4] = True
    spread = spread_points(plane.expand(2, 1, 33, 47), known)
    assert torch.allclose(spread[0][known[0]], plane[0][known[0]], atol=0.02)
    assert (spread[0] - plane[0]).abs().mean() < 0.03
    assert not spread[1].any()


def test_the_description_tells_how_far_the_prediction_is_off() -> None:
    depth = torch.full((1, 1, 32, 32), 2.0)
    maps = describe(some_points(1.5 * depth), depth).maps[0]
    for found, expected, atol in ((maps[0], 1.5, 1e-4), (maps[1], 1.5, 1e-4), (maps[2], 2.0, 1e-6)):
        assert torch.allclose(found, torch.tensor(expected).log().expand(32, 32), atol=atol)


@pytest.mark.parametrize(
    ("decoder", "head", "said"), [("linear", "metric", "'dpt' has"), ("dpt", "disparity", "'metric' does")]
)
def test_refused_where_there_is_nothing_to_fuse_into_or_no_metres(decoder: str, head: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        toy_conditioned({"type": decoder}, head, points={"hidden": 32})
