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
from densevit.errors import ConfigError, DataError
from densevit.inference.forward import preprocess
from densevit.inference.predictor import Predictor
from densevit.models.encoders.timm_vit import TimmEncoder
from densevit.models.encoders.vit import ViTEncoder
from densevit.models.timm_adapters.attention_weights import rollout
from densevit.ops.resize import pad_to_multiple
from densevit.structures import Size


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Attention of one query to the patches; what class and register tokens receive is missing from their sums."""

    image: UInt8[np.ndarray, "h w 3"]
    query: str  # whose attention it is, in words: the class token, without one the mean of all patches, or one patch
    weights: Float32[np.ndarray, "l heads gh gw"]  # the attention of each head of each layer to each patch
    # the contribution of each patch to the query after each layer (Abnar & Zuidema 2020)
    rollout: Float32[np.ndarray, "l gh gw"]
    patch_size: int
    window: tuple[int, int, int, int]  # where the image lies in the padded one: top, left, h, w

    def mean(self) -> Float32[np.ndarray, "l gh gw"]:
        """Over the heads of each layer."""
        return np.asarray(self.weights.mean(1))


class RolloutAccumulator:
    """Receives the attention weights of one layer after another and keeps the query's rows."""

    def __init__(self, prefix_tokens: int, rows: slice, grid: tuple[int, int]) -> None:
        """
        Args:
            rows: the tokens whose attention is averaged.
        """
        self.prefix, self.rows, self.grid = prefix_tokens, rows, grid
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
        return weights[0, :, self.rows].mean(1)[:, self.prefix :].reshape(-1, *self.grid)


@torch.inference_mode()
def compute_attention(predictor: Predictor, image: ImageLike, at: tuple[float, float] | None = None) -> Attention:
    """Runs one image through the encoder, in fp32, preprocessed as its card says.

    Layers after the last of the encoder's `out_indices` do not exist in a model and so are not shown. Raises
    ConfigError: an encoder of another family than `vit` and `timm`. Raises DataError: no such image, or `at` lies
    outside it. `at`: x, y in pixels of the image: the query is the patch that this pixel lies in, not the class token.
    """
    require_attention(predictor)
    encoder: Any = predictor.model.encoder
    card, whole = predictor.card, predictor.to_tensor(as_rgb(image)[None])
    seen = preprocess(whole, card.resize, card.multiple).to(predictor.device)
    x, offset = pad_to_multiple((seen - encoder.mean) / encoder.std, encoder.patch_size)
    grid = (x.shape[-2] // encoder.patch_size, x.shape[-1] // encoder.patch_size)
    if at is not None:
        row, column = patch_at(at, size_of(whole), size_of(seen), offset, encoder.patch_size)
        index = encoder.prefix_tokens + row * grid[1] + column
        query, rows = f"patch in row {row}, column {column}", slice(index, index + 1)
    elif getattr(encoder.vit, "cls_token", None) is not None:
        query, rows = "class token", slice(1)
    else:
        query, rows = "mean patch", slice(encoder.prefix_tokens, None)
    accumulator = RolloutAccumulator(encoder.prefix_tokens, rows, grid)
    collect_weights(encoder, x, accumulator)
    return Attention(
        image=as_bytes(seen),
        query=query,
        weights=torch.stack(accumulator.weights).cpu().numpy(),
        rollout=torch.stack(accumulator.rollout).cpu().numpy(),
        patch_size=encoder.patch_size,
        window=(*offset, *size_of(seen)),
    )


def require_attention(predictor: Predictor) -> None:
    """Raises ConfigError: an encoder of another family than `vit` and `timm`."""
    encoder = getattr(predictor.model, "encoder", predictor.model)  # an ONNX file has none
    if not isinstance(encoder, ViTEncoder | TimmEncoder):
        raise ConfigError(f"attention: shown for encoders `vit` and `timm`, not for a {type(encoder).__name__}.")


def patch_at(
    at: tuple[float, float], size: Size, input_size: Size, offset: tuple[int, int], patch_size: int
) -> tuple[int, int]:
    """Row and column of the patch that a pixel lies in. Raises DataError: a pixel outside the image.

    Args:
        at: x, y in pixels of the image.
        size, input_size: h, w of the image and of the network's input before padding.
        offset: top and left padding.
    """
    (x, y), (h, w) = at, size
    if not (0 <= x < w and 0 <= y < h):
        raise DataError(f"attention: pixel {x:g}, {y:g} lies outside this image of {h}x{w}.")
    places = (y / h * input_size[0] + offset[0], x / w * input_size[1] + offset[1])
    return int(places[0] // patch_size), int(places[1] // patch_size)


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
