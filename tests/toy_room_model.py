"""A toy in place of the model that comes with the package."""

from dataclasses import replace
from pathlib import Path

from toy_models import toy_network

from densevit.weights import checkpoint

HEADS = {
    "depth": {"type": "metric", "activation": "log", "min_depth": 0.05, "max_depth": 40, "hidden": 0},
    "labels": {"type": "segmentation", "classes": ["wall", "floor", "table"]},
    "normals": {"type": "normals"},
}


def write_toy(folder: Path) -> Path:
    """Write a model that needs the lens and knows fields of view of 50 to 70 degrees; return its folder."""
    decoders = {"labels": {"type": "linear"}}
    model, card = toy_network(HEADS, std=None, decoders=decoders, camera="canonical", canonical_focal=100.0)
    folder.mkdir()
    checkpoint.write_weights(folder / "model.safetensors", model.state_dict(), replace(card, fov=(50, 70)))
    return folder
