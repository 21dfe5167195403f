"""The head that classifies pixels."""

import pytest
import torch

from densevit.errors import ConfigError
from densevit.models.heads.segmentation import LabelsHead


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
    with pytest.raises(ConfigError, match="missing, and the data set names none"):
        LabelsHead(4)
