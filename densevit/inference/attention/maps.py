"""Attention maps of one image: per layer and head one query's row of the softmax, and attention rollout.

l layers, gh x gw patches of the padded input, h x w pixels of the network's input before padding.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from densevit.data.io.rgb import ImageLike, as_rgb
from densevit.errors import ConfigError
from densevit.inference.forward import preprocess
from densevit.inference.predictor import Predictor
from densevit.models.encoders.timm_vit import TimmEncoder
from densevit.models.encoders.vit import ViTEncoder
from densevit.models.vit.attention_rollout import rollout
from densevit.ops.resize import pad_to_multiple


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Attention of one query to the patches; what class and register tokens receive is missing from their sums.

    Attributes:
        query: the class token, or without one the mean of all patches.
        weights: the attention of each head of each layer to each patch.
        rollout: the contribution of each patch to the query after each layer (Abnar & Zuidema 2020).
        window: where the image lies in the padded one: top, left, h, w.
    """

    image: UInt8[np.ndarray, "h w 3"]
    query: str
    weights: Float32[np.ndarray, "l heads gh gw"]
    rollout: Float32[np.ndarray, "l gh gw"]
    patch_size: int
    window: tuple[int, int, int, int]

    def mean(self) -> Float32[np.ndarray, "l gh gw"]:
        """Over the heads of each layer."""
        return np.asarray(self.weights.mean(1))


class RolloutAccumulator:
    """Receives the attention weights of one layer after another and keeps the query's rows."""

    def __init__(self, prefix_tokens: int, has_class_token: bool, grid: tuple[int, int]) -> None:
        self.prefix, self.has_class_token, self.grid = prefix_tokens, has_class_token, grid
        self.weights: list[Tensor] = []
        self.rollout: list[Tensor] = []
        self.flow: Tensor | None = None

    def add(self, weights: Float[Tensor, "1 heads n n"]) -> None:
        weights = weights.float()
        mixed = rollout([weights])
        self.flow = mixed if self.flow is None else mixed @ self.flow
        self.weights.append(self.query_row(weights))
        self.rollout.append(self.query_row(self.flow[:, None])[0])

    def query_row(self, weights: Float[Tensor, "1 heads n n"]) -> Float[Tensor, "heads gh gw"]:
        """The attention of the query to the patches."""
        rows = weights[0, :, 0] if self.has_class_token else weights[0, :, self.prefix :].mean(1)
        return rows[:, self.prefix :].reshape(-1, *self.grid)


@torch.inference_mode()
def compute_attention(predictor: Predictor, image: ImageLike) -> Attention:
    """Runs one image through the encoder, in fp32, preprocessed as its card says.

    Layers after the last of the encoder's `out_indices` do not exist in a model and so are not shown.

    Raises:
        ConfigError: an encoder of another family than `vit` and `timm`.
        DataError: no such image.
    """
    encoder: Any = predictor.model.encoder
    if not isinstance(encoder, ViTEncoder | TimmEncoder):
        raise ConfigError(f"attention: shown for encoders `vit` and `timm`, not for a {type(encoder).__name__}.")
    card, x = predictor.card, predictor.to_tensor(as_rgb(image)[None])
    seen = preprocess(x, card.resize, card.multiple)
    x, offset = pad_to_multiple((seen - encoder.mean) / encoder.std, encoder.patch_size)
    grid = (x.shape[-2] // encoder.patch_size, x.shape[-1] // encoder.patch_size)
    has_class_token = getattr(encoder.vit, "cls_token", None) is not None
    accumulator = RolloutAccumulator(encoder.prefix_tokens, has_class_token, grid)
    collect_weights(encoder, x, accumulator)
    return Attention(
        image=as_bytes(seen),
        query="class token" if has_class_token else "mean patch",
        weights=torch.stack(accumulator.weights).cpu().numpy(),
        rollout=torch.stack(accumulator.rollout).cpu().numpy(),
        patch_size=encoder.patch_size,
        window=(*offset, *size_of(seen)),
    )


def collect_weights(encoder: Any, x: Float[Tensor, "1 3 h w"], accumulator: RolloutAccumulator) -> None:
    if isinstance(encoder, ViTEncoder):
        for weights in encoder.vit.attention(x.mean(1, keepdim=True) if encoder.grey else x):
            accumulator.add(weights)
    else:
        from densevit.models.timm_adapters.attention_weights import visit_attention_weights

        visit_attention_weights(encoder.vit, x, accumulator.add)


def size_of(x: Float[Tensor, "b c h w"]) -> tuple[int, int]:
    return x.shape[-2], x.shape[-1]


def as_bytes(image: Float[Tensor, "1 3 h w"]) -> UInt8[np.ndarray, "h w 3"]:
    pixels = (image[0].permute(1, 2, 0).clamp(0, 1) * 255).round()
    return pixels.to(torch.uint8).cpu().numpy()
