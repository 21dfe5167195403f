"""Motion blocks: an image model begins as it was, frames see their clip and no other, and places only themselves."""

import pytest
import torch
from torch import Tensor
from toy_models import toy_conditioned

from densevit.errors import ConfigError
from densevit.models.conditioning.motion import MotionBlock, frames_of_clips, sinusoids
from densevit.models.dense import DenseModel


def clips_of_3(images: Tensor) -> dict[str, Tensor]:
    return {"clips": frames_of_clips(len(images), 3, images.device)}


@pytest.fixture(scope="module")
def trained() -> DenseModel:
    """A model whose motion blocks do something."""
    model = toy_conditioned(motion={"heads": 8})
    for block in model.get_submodule("conditioning.motion.blocks").children():
        torch.nn.init.normal_(block.proj_out.weight, std=0.3)  # type: ignore[arg-type, union-attr]
    return model


def test_a_started_model_and_a_clip_of_one_frame_give_what_the_image_model_gives(trained: DenseModel) -> None:
    images = torch.rand(6, 3, 40, 48)
    image_model, started = toy_conditioned(), toy_conditioned(motion={"heads": 8})
    started.load_state_dict(image_model.state_dict(), strict=False)
    with torch.inference_mode():
        expected = image_model(images)["depth"]
        assert torch.equal(started(images, clips_of_3(images))["depth"], expected)
        alone = trained(images)["depth"]
        assert not torch.allclose(trained(images, clips_of_3(images))["depth"], alone, atol=1e-3)
        trained_rest = toy_conditioned()
        trained_rest.load_state_dict(
            {k: v for k, v in trained.state_dict().items() if not k.startswith("conditioning")}
        )
        assert torch.equal(trained_rest(images)["depth"], alone)


def test_frames_see_their_clip_and_no_other(trained: DenseModel) -> None:
    images = torch.rand(6, 3, 32, 32)
    changed = images.clone()
    changed[4] = torch.rand(3, 32, 32)
    with torch.inference_mode():
        before, after = (trained(x, clips_of_3(x))["depth"] for x in (images, changed))
    assert torch.equal(before[:3], after[:3])
    assert all(not torch.allclose(before[i], after[i]) for i in (3, 4, 5))


def test_known_features_take_the_place_of_the_images(trained: DenseModel) -> None:
    images = torch.rand(3, 3, 32, 32)
    with torch.inference_mode():
        features = trained.encoder(images)
        again = trained(images[:1], clips_of_3(images), features=features)["depth"]
        torch.testing.assert_close(again, trained(images, clips_of_3(images))["depth"])


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
