"""The whole model: size in is size out; what a part hands to the losses of training reaches them, and nobody else."""

import torch
from torch import Tensor, nn

from densevit.models.decoders.base import Decoder, DecoderOutput
from densevit.models.decoders.conv_transpose import ConvTranspose
from densevit.models.dense import DenseModel
from densevit.models.encoders.vit import ViTEncoder
from densevit.models.heads.depth import DisparityHead, MetricHead
from densevit.models.heads.segmentation import LabelsHead
from densevit.structures import EncoderOutput
from densevit.tasks.base import extras_of


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


class Talking(Decoder):
    """Brings a map at image size, a coarse one, and a row per query; in training only."""

    def __init__(self, inner: Decoder) -> None:
        super().__init__()
        self.inner, self.output = inner, inner.output
        self.calls = 0

    def forward(self, features: EncoderOutput) -> Tensor | DecoderOutput:
        self.calls += 1
        x = self.inner(features)
        assert isinstance(x, Tensor)
        if not self.training:
            return x
        h, w = features.image_size
        extras = {"auxiliary": torch.arange(w).expand(1, 2, h, w).float(), "coarse": x[..., :2, :2]}
        return DecoderOutput(x, {**extras, "queries": x.mean((2, 3))[:, None]})


class Chatty(LabelsHead):
    def forward(self, x: Tensor, size: tuple[int, int]) -> Tensor | DecoderOutput:
        return DecoderOutput(super().forward(x, size), {"own": x.sum()[None]})


def model() -> tuple[DenseModel, Talking]:
    encoder = ViTEncoder(dim=32, depth=2, heads=2, image_size=32, patch_size=16)
    decoder = Talking(ConvTranspose(encoder.features, encoder.prefix_tokens))
    plain = ConvTranspose(encoder.features, encoder.prefix_tokens)
    channels = decoder.output.channels
    heads = {name: Chatty(channels, classes=3) if name == "c" else LabelsHead(channels, classes=3) for name in "abc"}
    return DenseModel(encoder, decoder, heads, {"b": plain}), decoder


def test_extras_bear_the_name_of_every_head_behind_them() -> None:
    whole, decoder = model()
    answers = whole.train()(torch.rand(1, 3, 20, 30))
    told = {"auxiliary", "coarse", "queries"}
    expected = {"a", "b", "c", "c/own"} | {f"{head}/{name}" for head in "ac" for name in told}
    assert set(answers) == expected and decoder.calls == 1  # b has a decoder of its own, which is silent
    assert extras_of("a", answers).keys() == told and extras_of("b", answers) == {}
    assert extras_of("c", answers).keys() == {*told, "own"}


def test_only_maps_at_image_size_lose_the_padding() -> None:
    answers = model()[0].train()(torch.rand(1, 3, 20, 30))
    # 20 x 30 lies in the middle of 32 x 32: columns 1 to 30.
    assert answers["a/auxiliary"].shape == (1, 2, 20, 30)
    assert answers["a/auxiliary"][0, 0, 0].tolist() == list(range(1, 31))
    assert answers["a/coarse"].shape[-2:] == (2, 2) and answers["a/queries"].ndim == 3


def test_evaluation_has_answers_only() -> None:
    assert set(model()[0].eval()(torch.rand(1, 3, 32, 32))) == {"a", "b", "c", "c/own"}


def test_a_head_of_its_own_decoder_learns_with_that_alone() -> None:
    whole, decoder = model()
    whole.train()(torch.rand(1, 3, 32, 32))["b"].sum().backward()
    assert all(p.grad is None for p in decoder.parameters())
    own: nn.Module = whole.decoders["b"]
    assert all(p.grad is not None for p in own.parameters())
