"""Files of Segmenter and EoMT, written under their authors' names, are told, built and loaded."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from densevit.builder.checkpoint import restore
from densevit.errors import CheckpointError
from densevit.models.decoders.base import DECODERS
from densevit.models.dense import DenseModel
from densevit.models.encoders.base import ENCODERS
from densevit.models.heads.segmentation import MasksHead
from densevit.registry import ComponentConfig

VIT: ComponentConfig = {
    "type": "vit",
    "dim": 64,
    "depth": 3,
    "heads": 1,
    "patch_size": 8,
    "image_size": 32,
    "out_indices": 1,
}


def model(encoder: ComponentConfig, decoder: ComponentConfig) -> DenseModel:
    torch.manual_seed(0)
    vit = ENCODERS.check({**VIT, **encoder}, "encoder").build()
    part = DECODERS.check({"classes": 5, **decoder}, "decoder").build(vit.features, vit.prefix_tokens)
    whole = DenseModel(vit, part, {"labels": MasksHead(5, classes=5)})
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter += 0.03 * torch.randn_like(parameter)
    return whole.eval()


def theirs(whole: DenseModel, *rules: tuple[str, str]) -> dict[str, Tensor]:
    named = {}
    for name, tensor in whole.state_dict().items():
        for ours, other in rules:
            name = name.replace(ours, other)
        named[name] = tensor.clone()
    return {name: tensor for name, tensor in named.items() if not name.endswith(("encoder.mean", "encoder.std"))}


def answers(path: Path, image: Tensor, family: str | None = None, **options: Any) -> tuple[Tensor, Any]:
    found, card = restore(path, family, **options)
    return found.eval()(image)["labels"], card


@pytest.mark.parametrize("distilled", [False, True])
def test_segmenters_file_gives_segmenters_masks(tmp_path: Path, distilled: bool) -> None:
    half = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    encoder = {"eps": 1e-5, "pos_embed_interpolation": "bilinear", **({"registers": 1} if distilled else half)}
    whole, image = model(encoder, {"type": "mask_transformer", "layers": 2}), torch.rand(1, 3, 40, 48)
    state = theirs(whole, ("encoder.vit.reg_token", "encoder.vit.dist_token"), ("encoder.vit.", "encoder."))
    state |= {"encoder.head.weight": torch.zeros(1000, 64), "encoder.head.bias": torch.zeros(1000)}
    path = tmp_path / "checkpoint.pth"
    torch.save({"model": state, "optimizer": {}, "epoch": 63}, path)
    found, card = answers(path, image)
    torch.testing.assert_close(found, whole(image)["labels"])
    assert card.resize.window == card.resize.size == card.resize.stride == (32, 32)
    assert "Segmenter" in card.source
    assert card.outputs["labels"].classes == tuple("01234")  # so many classes no published model has
    _, card = answers(path, image, family="segmenter", short_side=64, stride=16)
    assert (card.resize.size, card.resize.stride) == ((64, 64), (16, 16))


@pytest.mark.parametrize("registers", [0, 4])
def test_eomts_file_gives_eomts_scores(tmp_path: Path, registers: int) -> None:
    encoder = {"registers": registers, "no_embed_class": bool(registers), "layer_scale": 1.0}
    whole, image = model(encoder, {"type": "eomt", "queries": 6, "blocks": 2}), torch.rand(1, 3, 40, 48)
    state = theirs(whole, ("encoder.vit.", "network.encoder.backbone."), ("decoder.", "network."))
    state |= {"network.encoder.pixel_mean": torch.zeros(1, 3, 1, 1), "network.attn_mask_probs": torch.zeros(2)}
    state |= {"criterion.empty_weight": torch.ones(6)}
    path = tmp_path / "pytorch_model.bin"
    torch.save(state, path)
    found, card = answers(path, image)
    torch.testing.assert_close(found, whole(image)["labels"])
    assert card.resize.window == (32, 32)
    assert card.outputs["labels"].kind == "labels"
    del state["network.class_head.bias"]
    torch.save(state, path)
    with pytest.raises(CheckpointError, match="class_head"):
        answers(path, image)
