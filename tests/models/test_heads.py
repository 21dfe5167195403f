"""Heads keep their range, start where they are told, and never lose a gradient."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from toy_models import toy_features, toy_specs

from densevit.errors import ConfigError
from densevit.inference.forward import forward
from densevit.losses.ssi import laplace
from densevit.models.decoders.base import DecoderOutput
from densevit.models.decoders.linear import PoolTokens
from densevit.models.dense import DenseModel, as_decoder_output
from densevit.models.encoders.vit import ViTEncoder
from densevit.models.heads.base import HEADS
from densevit.models.heads.bins import BinsHead
from densevit.models.heads.depth import (
    ACTIVATIONS,
    AffineHead,
    DisparityHead,
    IdentityDepthHead,
    InverseHead,
    MetricHead,
    clamp_ste,
)
from densevit.models.heads.image_level import Classifier
from densevit.models.heads.segmentation import LabelsHead
from densevit.models.layers import ConvHead
from densevit.preprocess_config import PreprocessConfig
from densevit.registry import ComponentConfig

METRIC = ["sigmoid", "log", "exp", "softplus"]


def test_activations_equal_their_formulas_and_their_inverses_undo_them() -> None:
    # by hand, with x = ln 3 (sigmoid 3/4, exp 3, softplus ln 4), low 1, high 16
    x = torch.tensor(math.log(3))
    expected = {"sigmoid": 1 + 15 * 0.75, "log": 16**0.75, "exp": 3.0, "softplus": 1 + math.log(4)}
    for name, depth in expected.items():
        chosen = ACTIVATIONS[name]
        assert chosen.depth(x, 1.0, 16.0).item() == pytest.approx(depth, rel=1e-6)
        for depth in (0.02, 2.5, 9.9):
            logit = torch.tensor(chosen.inverse(depth, 0.01, 10.0))
            assert chosen.depth(logit, 0.01, 10.0).item() == pytest.approx(depth, rel=1e-4)


@pytest.mark.parametrize("activation", METRIC)
def test_metric_depth_stays_in_range_whatever_comes(activation: Any) -> None:
    head = MetricHead(4, activation=activation, min_depth=1e-3, max_depth=80.0, hidden=0)
    assert head.output.range == (1e-3, 80.0)
    for logit in (-1e4, -50.0, 0.0, 50.0, 1e4):
        nn.init.constant_(head.projection.last.bias, logit)
        depth = head(torch.randn(1, 4, 5, 6), (10, 12))
        assert depth.shape == (1, 1, 10, 12) and 1e-3 <= depth.min() <= depth.max() <= 80


def test_a_pixel_beyond_the_ceiling_still_has_a_gradient() -> None:
    for activation in ("exp", "softplus"):
        head = MetricHead(4, activation=activation, max_depth=10.0, hidden=0)
        nn.init.constant_(head.projection.last.bias, 100.0)
        head(torch.randn(1, 4, 5, 6), (5, 6)).log().sum().backward()
        assert 1 < head.projection.last.bias.grad.item() < math.inf
    x = torch.tensor([-3.0, 0.5, 1e9], requires_grad=True)
    y = clamp_ste(x, 0.0, 1.0)
    y.sum().backward()
    assert y.tolist() == [0, 0.5, 1] and x.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize("activation", METRIC)
def test_training_starts_at_the_depth_asked_for(activation: Any) -> None:
    x = torch.randn(2, 64, 12, 16)
    torch.manual_seed(0)
    for given, start in ((None, 2.5), (4.0, 4.0)):  # a quarter of max_depth unless given
        depth = MetricHead(64, activation=activation, initial_depth=given)(x, (48, 64))
        assert depth.median().item() == pytest.approx(start, rel=0.1)


@pytest.mark.parametrize("name", ["metric", "disparity", "affine", "bins"])
def test_predictions_are_float_under_bfloat16(name: str) -> None:
    head = HEADS.components[name](16)
    with torch.autocast("cpu", torch.bfloat16):
        assert head(torch.randn(1, 16, 4, 4), (8, 8)).dtype == torch.float32


def test_one_by_one_commutes_with_upsampling() -> None:
    projection, x = ConvHead(6, 1, hidden=0, align_corners=False), torch.randn(1, 6, 4, 5)
    grown = nn.functional.interpolate(x, size=(13, 17), mode="bilinear", align_corners=False)
    torch.testing.assert_close(projection(x, (13, 17)), projection.last(grown))


def test_linear_bins_are_dinov2s_expectation_and_log_bins_are_even_in_ratios() -> None:
    head, x = BinsHead(3, bins=4, min_depth=1.0, max_depth=10.0, upsample=1), torch.randn(1, 3, 1, 1)
    shares = head.projection(x, (1, 1)).flatten().relu() + 0.1
    expectation = (shares / shares.sum() * torch.tensor([1.0, 4.0, 7.0, 10.0])).sum()
    assert head(x, (1, 1)).item() == pytest.approx(expectation.item())
    # DINOv2 and MDET pass min and max to logspace as exponents; the centres must run from min to max.
    head = BinsHead(3, bins=4, spacing="log", weights="softmax", min_depth=0.01, max_depth=10.0)
    assert head.centres.tolist() == pytest.approx([0.01, 0.1, 1, 10]) and "centres" not in head.state_dict()


def test_relative_heads_claim_no_unit_and_disparity_is_never_negative_and_starts_alive() -> None:
    for head in (DisparityHead(8), DisparityHead(8, activation="softplus"), AffineHead(8)):
        assert head.output.kind in ("disparity", "affine") and head.output.unit == ""
    head = DisparityHead(8)
    assert (head(torch.randn(1, 8, 6, 6), (12, 12)) > 0).float().mean() > 0.95
    nn.init.constant_(head.projection.last.bias, -5.0)
    assert head(torch.randn(1, 8, 6, 6), (12, 12)).min() == 0


def test_ranges_that_make_no_sense_are_refused() -> None:
    for options, message in (
        ({"min_depth": 10.0, "max_depth": 10.0}, "not below max_depth"),
        ({"initial_depth": 11.0}, "not within"),
        ({"min_depth": 0.0, "activation": "exp"}, "above 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            MetricHead(8, **options)


def test_inverse_turns_disparity_into_metres_by_two_constants() -> None:
    # DPT's for NYU, run_monodepth.py: nothing is further than 1 / 0.1378 m.
    head = InverseHead(4, scale=0.000305, shift=0.1378, hidden=0)
    with torch.no_grad():
        head.projection.last.weight.zero_()
        head.projection.last.bias.fill_(1000.0)  # type: ignore[union-attr]
        assert head(torch.rand(1, 4, 2, 2), (4, 4)).mean().item() == pytest.approx(1 / (0.305 + 0.1378))
        head.projection.last.bias.fill_(-5.0)  # type: ignore[union-attr]
        furthest = head(torch.rand(1, 4, 2, 2), (4, 4)).max().item()
    assert head.output.range == (0.0, pytest.approx(furthest))


def test_metres_hands_one_map_on_as_it_is() -> None:
    x = torch.rand(1, 1, 4, 4)
    assert torch.equal(IdentityDepthHead(1)(x, (4, 4)), x)
    assert IdentityDepthHead(1).output.range is None
    assert IdentityDepthHead(1, max_depth=80.0).output.range == (0.0, 80.0)


def test_without_a_hidden_layer_it_is_a_linear_map_of_every_pixel_then_upsampled() -> None:
    torch.manual_seed(0)
    head, x = LabelsHead(8, classes=3).eval(), torch.randn(2, 8, 5, 6)
    by_hand = torch.einsum("kc,bchw->bkhw", head.logits.weight[:, :, 0, 0], x) + head.logits.bias[:, None, None]  # type: ignore[index]
    assert torch.allclose(head(x, (5, 6)), by_hand, atol=1e-6)
    assert head(x, (20, 24)).shape == (2, 3, 20, 24)
    assert head.output.kind == "labels" and head.output.classes == ("0", "1", "2")


def test_with_a_hidden_layer_it_is_dpts() -> None:
    # github.com/isl-org/DPT, dpt/models.py: Conv 3x3 without bias, BatchNorm, ReLU, Dropout 0.1, Conv 1x1, upsampling.
    head = LabelsHead(8, classes=("wall", "floor"), hidden=8, align_corners=True)
    kinds = [type(layer).__name__ for layer in head.before]
    assert kinds == ["Conv2d", "BatchNorm2d", "ReLU", "Dropout2d"]
    conv = head.before[0]
    assert conv.kernel_size == (3, 3) and conv.bias is None
    assert head(torch.randn(2, 8, 4, 4), (8, 8)).shape == (2, 2, 8, 8)


def test_whole_channels_are_dropped_in_training() -> None:
    torch.manual_seed(0)
    head = LabelsHead(4, classes=2, dropout=0.5)
    dropped = head.before(torch.ones(1, 4, 3, 3))
    assert {tuple(channel.unique().tolist()) for channel in dropped[0]} == {(0.0,), (2.0,)}


def test_classes_must_come_from_somewhere() -> None:
    with pytest.raises(ConfigError, match="missing, and the data set names none.* tasks.labels=null"):
        LabelsHead(4)


@pytest.mark.parametrize("head", ["segmentation", "classifier", "panoptic"])
def test_a_number_of_classes_that_fills_the_memory_with_names_is_refused(head: str) -> None:
    with pytest.raises(ConfigError, match="classes.*1048576"):
        HEADS.check({"type": head, "classes": 10**12}, "head")


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


def pool(how: str, prefix: int = 2) -> PoolTokens:
    return PoolTokens(toy_specs(2, 8), prefix, pool=how)  # type: ignore[arg-type]


def test_pooling_takes_the_class_tokens_of_all_levels_the_mean_of_the_patches_or_both() -> None:
    f, decoder = toy_features(2, 8, prefix=2), pool("token")
    tokens, mean = torch.cat([f.prefix[0][:, 0], f.prefix[1][:, 0]], 1), f.maps[0].flatten(2).mean(2)
    assert decoder(f).shape == (2, decoder.output.channels, 1, 1) == (2, 16, 1, 1)
    assert torch.equal(decoder(f)[:, :, 0, 0], tokens)
    torch.testing.assert_close(pool("average")(f)[:, :8, 0, 0], mean)
    both = pool("both")(f)[:, :, 0, 0]
    assert both.shape == (2, 32)
    torch.testing.assert_close(both[:, :16], torch.cat([f.prefix[0][:, 0], mean], 1))
    with pytest.raises(ConfigError, match="use 'average'"):
        pool("token", prefix=0)
    assert pool("average", prefix=0)(toy_features(2, 8, prefix=0)).shape == (2, 16, 1, 1)


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
