"""What published segmentation heads are made of: DINOv2's and DINOv3's probes, SETR-PUP, DPT on ADE20K."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from toy_models import toy_features, toy_specs

from densevit.errors import ConfigError
from densevit.losses.segmentation import Auxiliary, CrossEntropy
from densevit.models.decoders.base import DecoderOutput
from densevit.models.decoders.conv_transpose import ConvTranspose
from densevit.models.decoders.dpt import DPT
from densevit.models.decoders.linear import Linear
from densevit.models.heads.segmentation import LabelsHead
from densevit.structures import IGNORE, EncoderOutput, FeatureSpec


def test_dinov3s_probe_drops_whole_channels_before_the_norm() -> None:
    decoder = Linear(toy_specs(1, channels=400), 1, norm="batch", dropout=0.1).train()
    x = decoder(toy_features(1, channels=400))
    # In a channel that was dropped for one image, all its pixels come out of the norm as one value.
    flat = x.flatten(2).std(2) < 1e-6
    assert 0.06 < flat.float().mean() < 0.14  # 800 channels: 10 % give or take four standard deviations
    assert x.mean((2, 3))[flat].abs().mean() > 1e-3  # the norm moved what was zero
    assert not (decoder.eval()(toy_features(1, channels=400)).flatten(2).std(2) < 1e-6).any()


def test_maps_of_other_sizes_meet_at_that_of_the_first() -> None:
    # mmseg's `resize_concat`
    fine, coarse = torch.randn(2, 8, 6, 10), torch.randn(2, 16, 3, 5)
    given = EncoderOutput((fine, coarse), (torch.randn(2, 1, 8), torch.randn(2, 1, 16)), (48, 80))
    both = [FeatureSpec(8, 8), FeatureSpec(16, 16)]
    decoder = Linear(both, 1)
    assert decoder.output == FeatureSpec(24, 8)
    expected = torch.cat([fine, F.interpolate(coarse, (6, 10), mode="bilinear")], 1)
    torch.testing.assert_close(decoder(given), expected)
    assert ConvTranspose(both, 1)(given).shape[-2:] == (12, 20)


def test_setr_pup_is_four_times_convolution_norm_relu_and_doubling() -> None:
    decoder = ConvTranspose(toy_specs(1), 1, upsample="bilinear", channels=24, norm="batch", stride=1).eval()
    assert len(decoder.steps) == 4
    x = toy_features(1).maps[0]
    for step in decoder.steps:
        conv, norm, *_ = step  # type: ignore[misc]
        assert conv.weight.shape[2:] == (3, 3) and conv.bias is None
        norm.running_mean.normal_()
        x = F.relu(norm(F.conv2d(x, conv.weight, padding=1)))
        x = F.interpolate(x, scale_factor=2, mode="bilinear")
    torch.testing.assert_close(decoder(toy_features(1)), x)
    assert x.shape == (2, 24, 48, 80)
    assert decoder.output == FeatureSpec(24, 1)


def dpt(**options: Any) -> tuple[DPT, LabelsHead]:
    torch.manual_seed(0)
    decoder = DPT(toy_specs(4), 1, channels=8, norm="batch", readout="project", **options)
    return decoder, LabelsHead(8, classes=5, hidden=8, dropout=0.1, align_corners=True)


def test_the_auxiliary_classifier_reads_the_last_fusion_but_one_and_speaks_in_training_only() -> None:
    decoder, _ = dpt(auxiliary=5)
    given = toy_features(4, grid=(4, 6))
    *_, coarser, finest = decoder.eval().fuse_levels(decoder.levels(given))
    assert torch.equal(decoder(given), finest)  # type: ignore[arg-type]
    decoder.train()
    for module in decoder.modules():  # so that training computes what evaluation does
        if isinstance(module, nn.BatchNorm2d | nn.Dropout2d):
            module.eval()
    found = decoder(given)
    assert isinstance(found, DecoderOutput)
    assert decoder.auxiliary is not None
    torch.testing.assert_close(found.extras["auxiliary"], decoder.auxiliary(coarser, (64, 96)))
    assert found.extras["auxiliary"].shape == (2, 5, 64, 96)
    torch.testing.assert_close(found.map, finest)


def test_the_auxiliary_loss_is_cross_entropy_of_the_extra_and_zero_without_labels() -> None:
    logits, extra = torch.randn(2, 5, 6, 8), torch.randn(2, 5, 6, 8, requires_grad=True)
    labels = torch.randint(0, 5, (2, 6, 8))
    found = Auxiliary(label_smoothing=0.1)(logits, labels, {"auxiliary": extra})
    torch.testing.assert_close(found, CrossEntropy(label_smoothing=0.1)(extra, labels, {}))
    nothing = Auxiliary()(logits, torch.full_like(labels, IGNORE), {"auxiliary": extra})
    nothing.backward()
    assert nothing.item() == 0
    assert extra.grad is not None and not extra.grad.any()
    with pytest.raises(ConfigError, match="needs a decoder with such a classifier"):
        Auxiliary()(logits, labels, {})
