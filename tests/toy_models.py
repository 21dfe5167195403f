"""Networks small enough for a test, built of a config as those of checkpoints are."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.builder.checkpoint import parse_model
from densevit.builder.model import build_card, build_model
from densevit.inference.predictor import Predictor
from densevit.model_card import HeadSpec, Kind, ModelCard
from densevit.models.dense import DenseModel
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import EncoderOutput, FeatureSpec
from densevit.weights.hub import save_pretrained

VIT = {"type": "vit", "dim": 24, "depth": 2, "heads": 2, "patch_size": 14, "image_size": 56, "out_indices": 2}
DEPTH = {"depth": {"type": "metric"}}
DEPTH_AND_LABELS = {**DEPTH, "labels": {"type": "segmentation", "classes": 3}}
SMALL_DPT = {"type": "dpt", "channels": 8}


def toy_network(
    heads: Mapping[str, Any] = DEPTH,
    decoder: Mapping[str, Any] | None = None,
    rule: PreprocessConfig | None = None,
    *,
    std: float | None = 0.1,
    encoder: Mapping[str, Any] | None = None,
    classes: tuple[str, ...] = (),
    **model: Any,
) -> tuple[DenseModel, ModelCard]:
    """Matrices are drawn with `std`, far from the calm start, so that every block and token counts; None keeps it."""
    torch.manual_seed(0)
    encoder = encoder if encoder and "type" in encoder else {**VIT, **(encoder or {})}
    parts = {"encoder": encoder, "decoder": decoder or {"type": "linear"}, "heads": heads, **model}
    spec = parse_model(parts, "test", rule)
    spec = spec.for_classes(classes) if classes else spec
    network = build_model(spec).eval()
    for parameter in network.parameters():
        if std is not None and parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=std)
    return network, build_card(network, spec)


def toy_conditioned(
    decoder: Mapping[str, Any] = MappingProxyType({"type": "dpt", "channels": 16}),
    head: str = "metric",
    **conditioning: Mapping[str, Any],
) -> DenseModel:
    """A model at its start, with blocks of `conditioning` beside its decoder."""
    encoder = {"type": "vit", "dim": 32, "depth": 4, "heads": 2, "patch_size": 16, "image_size": 32}
    heads = {"depth": {"type": head, "hidden": 8}}
    return toy_network(heads, decoder, std=None, encoder=encoder, conditioning=conditioning)[0]


def toy_specs(levels: int, channels: int = 16, stride: int = 16) -> list[FeatureSpec]:
    return [FeatureSpec(channels, stride)] * levels


def toy_features(
    levels: int, channels: int = 16, stride: int = 16, grid: tuple[int, int] = (3, 5), prefix: int = 1
) -> EncoderOutput:
    """Random maps and prefix tokens of two images."""
    torch.manual_seed(0)
    maps = tuple(torch.randn(2, channels, *grid) for _ in range(levels))
    tokens = tuple(torch.randn(2, prefix, channels) for _ in range(levels))
    return EncoderOutput(maps, tokens, (grid[0] * stride, grid[1] * stride))


class MeanColour(nn.Module):
    """Depth is `nearest` + `gain` x the mean of red, green and blue, of a further head 1 more; keeps what it saw."""

    def __init__(self, *heads: str, nearest: float = 1.0, gain: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("nearest", torch.tensor(nearest))
        self.heads, self.gain = heads or ("depth",), gain
        self.seen: list[Tensor] = []

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        self.seen.append(image)
        depth = self.nearest + self.gain * image.mean(1, keepdim=True)
        return {name: depth + i for i, name in enumerate(self.heads)}


def toy_predictor(
    model: nn.Module | None = None,
    kind: Kind = "metric",
    resize: PreprocessConfig | None = None,
    **options: Any,
) -> Predictor:
    """Return a predictor of any module of one head `depth`, with `MeanColour` where none is given."""
    metric = kind == "metric"
    head = HeadSpec(kind=kind, unit="m" if metric else "", range=(1e-3, 10.0) if metric else None)
    return fp32(
        (model or MeanColour(), ModelCard(outputs={"depth": head}, multiple=1, resize=resize or PreprocessConfig())),
        **options,
    )


def fp32(network: tuple[torch.nn.Module, ModelCard], **options: Any) -> Predictor:
    return Predictor(*network, **{"device": "cpu", "precision": "fp32", **options})


def save_network(folder: Path, network: tuple[DenseModel, ModelCard]) -> Path:
    save_pretrained(folder, network[0].state_dict(), network[1])
    return folder
