"""The whole model: size in is size out, always the same way."""

import pytest
import torch

from densevit.models.decoders.conv_transpose import ConvTranspose
from densevit.models.dense import DenseModel
from densevit.models.encoders.vit import ViTEncoder
from densevit.models.heads.depth import DisparityHead, MetricHead


def small() -> DenseModel:
    torch.manual_seed(0)
    encoder = ViTEncoder(dim=32, depth=2, heads=2, image_size=32, patch_size=16)
    decoder = ConvTranspose(encoder.features, encoder.prefix_tokens)
    channels = decoder.output.channels
    return DenseModel(encoder, decoder, {"depth": MetricHead(channels), "disparity": DisparityHead(channels)})


@pytest.mark.parametrize("size", [(32, 48), (33, 47), (5, 100)])
def test_every_head_answers_at_the_size_of_the_image(size: tuple[int, int]) -> None:
    out = small()(torch.rand(2, 3, *size))
    assert {name: tuple(y.shape) for name, y in out.items()} == {"depth": (2, 1, *size), "disparity": (2, 1, *size)}


def test_training_and_evaluation_predict_alike() -> None:
    model, image = small(), torch.rand(1, 3, 40, 50)
    torch.testing.assert_close(model.train()(image)["depth"], model.eval()(image)["depth"])


def test_padding_is_cut_off_again_and_not_stretched_over() -> None:
    # Padded by hand on the normalised image (grey becomes 0), then cropped where the image lies.
    model, image = small(), torch.rand(1, 3, 40, 50)
    mean = model.encoder.mean.expand(1, 3, 48, 64).clone()  # normalises to zero
    mean[:, :, 4:44, 7:57] = image
    torch.testing.assert_close(model(image)["depth"], model(mean)["depth"][:, :, 4:44, 7:57])


def test_one_image_does_not_know_its_neighbours() -> None:
    model, images = small(), torch.rand(3, 3, 32, 48)
    torch.testing.assert_close(model(images)["depth"][1:2], model(images[1:2])["depth"], atol=1e-5, rtol=1e-5)


def test_state_survives_a_round_trip() -> None:
    model, other = small(), small()
    torch.nn.init.normal_(other.decoder.steps[0][0].weight)  # type: ignore[index]
    other.load_state_dict(model.state_dict())
    image = torch.rand(1, 3, 32, 32)
    torch.testing.assert_close(model(image)["depth"], other(image)["depth"])
    assert {"encoder.mean", "encoder.std"} <= set(model.state_dict())
