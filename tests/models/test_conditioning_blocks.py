"""Blocks for measured points and for motion: a model begins as without them; what they do heeds only what it may."""

import pytest
import torch
from torch import Tensor
from toy_models import toy_conditioned

from densevit.errors import ConfigError
from densevit.models.conditioning.motion import MotionBlock, frames_of_clips, sinusoids
from densevit.models.conditioning.points import describe, spread_points
from densevit.models.dense import DenseModel


def lively(kind: str, last: str, **options: int) -> DenseModel:
    """A model whose blocks do something; `last` is their last layer, whose weights begin as zeros."""
    model = toy_conditioned(**{kind: options})
    for block in model.get_submodule(f"conditioning.{kind}.blocks").children():
        torch.nn.init.normal_(block.get_submodule(last).weight, std=0.3)  # type: ignore[arg-type]
    return model


@pytest.fixture(scope="module")
def following() -> DenseModel:
    return lively("points", "out", hidden=8)


@pytest.fixture(scope="module")
def moving() -> DenseModel:
    return lively("motion", "proj_out", heads=8)


def without_blocks(model: DenseModel) -> DenseModel:
    plain = toy_conditioned()
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("conditioning")})
    return plain


def some_points(depth: Tensor, every: int = 5) -> Tensor:
    points = torch.zeros_like(depth)
    points[..., 2::every, 1::every] = depth[..., 2::every, 1::every]
    return points


def test_a_started_model_gives_with_points_what_it_gives_without_and_a_trained_one_does_not(
    following: DenseModel,
) -> None:
    images = torch.rand(2, 3, 40, 48)
    points = some_points(torch.full((2, 1, 40, 48), 4.0))
    started = toy_conditioned(points={"hidden": 8})
    with torch.inference_mode():
        assert torch.equal(started(images, {"points": points})["depth"], started(images)["depth"])
        assert not torch.allclose(following(images, {"points": points})["depth"], following(images)["depth"], atol=1e-3)


def test_an_image_without_points_is_predicted_as_by_the_model_without_blocks_whatever_the_others_have(
    following: DenseModel,
) -> None:
    images = torch.rand(3, 3, 40, 48)
    points = some_points(torch.full((3, 1, 40, 48), 4.0))
    points[1] = 0
    with torch.inference_mode():
        expected = without_blocks(following)(images)["depth"]
        assert torch.equal(following(images)["depth"], expected)
        assert torch.equal(following(images, {"points": points})["depth"][1], expected[1])


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


def clips_of_3(images: Tensor) -> dict[str, Tensor]:
    return {"clips": frames_of_clips(len(images), 3, images.device)}


def test_a_started_model_and_a_clip_of_one_frame_give_what_the_image_model_gives(moving: DenseModel) -> None:
    images = torch.rand(6, 3, 40, 48)
    image_model, started = toy_conditioned(), toy_conditioned(motion={"heads": 8})
    started.load_state_dict(image_model.state_dict(), strict=False)
    with torch.inference_mode():
        expected = image_model(images)["depth"]
        assert torch.equal(started(images, clips_of_3(images))["depth"], expected)
        alone = moving(images)["depth"]
        assert not torch.allclose(moving(images, clips_of_3(images))["depth"], alone, atol=1e-3)
        assert torch.equal(without_blocks(moving)(images)["depth"], alone)


def test_frames_see_their_clip_and_no_other(moving: DenseModel) -> None:
    images = torch.rand(6, 3, 32, 32)
    changed = images.clone()
    changed[4] = torch.rand(3, 32, 32)
    with torch.inference_mode():
        before, after = (moving(x, clips_of_3(x))["depth"] for x in (images, changed))
    assert torch.equal(before[:3], after[:3])
    assert all(not torch.allclose(before[i], after[i]) for i in (3, 4, 5))


def test_known_features_take_the_place_of_the_images(moving: DenseModel) -> None:
    images = torch.rand(3, 3, 32, 32)
    with torch.inference_mode():
        features = moving.encoder(images)
        again = moving(images[:1], clips_of_3(images), features=features)["depth"]
        torch.testing.assert_close(again, moving(images, clips_of_3(images))["depth"])


def test_a_cell_attends_to_itself_over_time_and_the_order_of_frames_counts() -> None:
    torch.manual_seed(0)
    block = MotionBlock(16, 4).eval()
    torch.nn.init.normal_(block.proj_out.weight)
    block.norm = torch.nn.Identity()  # whose statistics are of a whole frame
    x = torch.randn(4, 16, 3, 5)
    changed = x.clone()
    changed[2, :, 1, 2] += 1
    moved = (block(x, 4) - block(changed, 4)).abs().amax(1) > 1e-6
    assert moved[:, 1, 2].all() and moved.sum() == 4
    swapped = block(x[[1, 0, 2, 3]], 4)[[1, 0, 2, 3]]
    assert not torch.allclose(swapped, block(x, 4), atol=1e-3)


def test_positions_are_the_sines_and_cosines_of_the_transformer() -> None:
    found = sinusoids(3, 4)
    expected = torch.tensor([[2.0]]).mul(torch.tensor([1.0, 0.01]))
    torch.testing.assert_close(found[2], torch.stack([expected.sin(), expected.cos()], -1).flatten())


def test_a_decoder_without_levels_and_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.conditioning\.motion: model\.decoder has no levels"):
        toy_conditioned({"type": "linear"}, motion={"heads": 8})
    with pytest.raises(ConfigError, match=r"conditioning\.motion\.heads: 3 do not divide .* 16, 32, 16, 16; 16 would"):
        toy_conditioned(motion={"heads": 3})
