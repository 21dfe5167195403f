"""The network that is timed: Depth Anything V2's, by size, in our parts."""

from typing import Any

import torch

from densevit.builder.checkpoint import parse_model
from densevit.builder.model import build_card, build_model
from densevit.model_card import ModelCard, PreprocessConfig
from densevit.models.dense import DenseModel

DECODERS: dict[str, dict[str, Any]] = {
    "small": {"channels": 64, "hidden": [48, 96, 192, 384]},
    "base": {"channels": 128, "hidden": [96, 192, 384, 768]},
    "large": {"channels": 256, "hidden": [256, 512, 1024, 1024]},
}
RESIZE = PreprocessConfig(mode="lower_bound", size=(518, 518), interpolation="bicubic")


def network(size: str) -> tuple[DenseModel, ModelCard]:
    """With random weights, where no peer is there to have the same."""
    torch.manual_seed(0)
    encoder = {"type": "vit", "size": size, "patch_size": 14, "image_size": 518, "layer_scale": 0.1}
    heads = {"depth": {"type": "disparity", "align_corners": True}}
    decoder = {"type": "dpt", **DECODERS[size]}
    spec = parse_model({"encoder": encoder, "decoder": decoder, "heads": heads}, "benchmark", RESIZE)
    model = build_model(spec).eval()
    return model, build_card(model, spec)
