"""The whole model: size in is size out, always the same way."""

import torch

from densevit.models.decoders.conv_transpose import ConvTranspose
from densevit.models.dense import DenseModel
from densevit.models.encoders.vit import ViTEncoder
from densevit.models.heads.depth import DisparityHead, MetricHead


def small(stretch: bool = False) -> DenseModel:
    torch.manual_seed(0)
    encoder = ViTEncoder(dim=32, depth=2, heads=2, image_size=32, patch_size=16)
    decoder = ConvTranspose(encoder.features, encoder.prefix_tokens)
    channels = decoder.output.channels
    heads = {"depth": MetricHead(channels), "disparity": DisparityHead(channels)}
    return DenseModel(encoder, decoder, heads, stretch=stretch)


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


def test_a_model_that_stretches_answers_at_any_size_and_cuts_nothing() -> None:
    cuts, stretches, image, even = small(), small(stretch=True), torch.rand(1, 3, 40, 50), torch.rand(1, 3, 32, 48)
    assert stretches(image)["depth"].shape[-2:] == (40, 50)
    assert stretches(image, output_size=(11, 13))["depth"].shape[-2:] == (11, 13)
    assert not torch.allclose(stretches(image)["depth"], cuts(image)["depth"])
    assert torch.equal(stretches(even)["depth"], cuts(even)["depth"])


def test_the_normalisation_is_saved() -> None:
    assert {"encoder.mean", "encoder.std"} <= set(small().state_dict())
