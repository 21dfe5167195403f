"""Pooling and the classifier: one answer for the image, through the parts of dense prediction."""

import pytest
import torch

from densevit.errors import ConfigError
from densevit.inference.forward import forward
from densevit.models.decoders.pool import PoolTokens
from densevit.models.dense import DenseModel
from densevit.models.encoders.vit import ViTEncoder
from densevit.models.heads.image_level import Classifier
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import EncoderOutput, FeatureSpec


def features(prefix: int = 2) -> EncoderOutput:
    torch.manual_seed(0)
    return EncoderOutput((torch.randn(3, 8, 4, 5), torch.randn(3, 8, 4, 5)), (torch.randn(3, prefix, 8),) * 2, (64, 80))


def pool(how: str, prefix: int = 2) -> PoolTokens:
    return PoolTokens([FeatureSpec(8, 16)] * 2, prefix, pool=how)  # type: ignore[arg-type]


def test_pooling_takes_the_class_tokens_of_all_levels_the_mean_of_the_patches_or_both() -> None:
    f, decoder = features(), pool("token")
    tokens, mean = torch.cat([f.prefix[0][:, 0], f.prefix[1][:, 0]], 1), f.maps[0].flatten(2).mean(2)
    assert decoder(f).shape == (3, decoder.output.channels, 1, 1) == (3, 16, 1, 1)
    assert torch.equal(decoder(f)[:, :, 0, 0], tokens)
    torch.testing.assert_close(pool("average")(f)[:, :8, 0, 0], mean)
    both = pool("both")(f)[:, :, 0, 0]
    assert both.shape == (3, 32)
    torch.testing.assert_close(both[:, :16], torch.cat([f.prefix[0][:, 0], mean], 1))
    with pytest.raises(ConfigError, match="use 'average'"):
        pool("token", prefix=0)
    assert pool("average", prefix=0)(features(0)).shape == (3, 16, 1, 1)


def test_the_classifier_is_linear_in_the_mean_of_the_map() -> None:
    head = Classifier(8, classes=("cat", "dog", "fox"))
    x = torch.randn(2, 8, 4, 5)
    expected = x.mean((2, 3)) @ head.linear.weight.T + head.linear.bias
    torch.testing.assert_close(head(x, (64, 80))[:, :, 0, 0], expected)
    assert head.output.classes == ("cat", "dog", "fox") and head.output.kind == "class"
    assert Classifier(8, classes=3).output.classes == ("0", "1", "2")


def classifier() -> DenseModel:
    torch.manual_seed(0)
    encoder = ViTEncoder(dim=32, depth=2, heads=2, patch_size=16, image_size=48, out_indices=1)
    decoder = PoolTokens(encoder.features, encoder.prefix_tokens)
    return DenseModel(encoder, decoder, {"kind": Classifier(decoder.output.channels, classes=7)}).eval()


@pytest.mark.parametrize("rule", [PreprocessConfig(), PreprocessConfig(mode="fixed", size=(48, 48))])
def test_one_answer_per_image_whatever_its_size_window_or_mirror(rule: PreprocessConfig) -> None:
    model, image = classifier(), torch.rand(2, 3, 37, 50)
    with torch.inference_mode():
        plain = forward(model, image, rule, 16)["kind"]
        boxed = forward(model, image, rule, 16, box=(2, 30, 5, 45))["kind"]
        inside = forward(model, image[..., 2:30, 5:45], rule, 16)["kind"]
        flipped = forward(model, image, rule, 16, flip=True)["kind"]
        mirrored = forward(model, image.flip(-1), rule, 16)["kind"]
    assert plain.shape == (2, 7, 1, 1)
    assert torch.equal(boxed, inside)
    torch.testing.assert_close(flipped, (plain + mirrored) / 2)
