"""Where a model looks, in one picture: per layer and head the asker's row of the softmax, and its rollout.

l layers, gh x gw cells of `patch` pixels over the padded picture, h x w pixels of the picture as the network saw it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor

from densevit.errors import ConfigError
from densevit.inference.forward import preprocess
from densevit.inference.images import ImageLike, as_rgb
from densevit.inference.predictor import Predictor
from densevit.models.encoders.timm_vit import TimmEncoder
from densevit.models.encoders.vit import ViTEncoder
from densevit.models.vit.attention_rollout import rollout
from densevit.ops.resize import pad_to_multiple


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Shares of attention; what class and register tokens receive is missing from their sums.

    Attributes:
        asker: whose attention it is: the class token's, or without one the mean patch's.
        weights: what each head of each layer takes from each patch.
        rollout: how much of each patch has reached the asker after each layer (Abnar & Zuidema 2020).
        window: where the picture lies in the padded one: top, left, h, w.
    """

    image: UInt8[np.ndarray, "h w 3"]
    asker: str
    weights: Float32[np.ndarray, "l heads gh gw"]
    rollout: Float32[np.ndarray, "l gh gw"]
    patch: int
    window: tuple[int, int, int, int]

    def mean(self) -> Float32[np.ndarray, "l gh gw"]:
        """Over the heads of each layer."""
        return np.asarray(self.weights.mean(1))


class RolloutAccumulator:
    """Takes one layer's weights after another and keeps what a picture needs of them."""

    def __init__(self, prefix_tokens: int, has_class_token: bool, grid: tuple[int, int]) -> None:
        self.prefix, self.has_class_token, self.grid = prefix_tokens, has_class_token, grid
        self.weights: list[Tensor] = []
        self.rollout: list[Tensor] = []
        self.flow: Tensor | None = None

    def see(self, weights: Float[Tensor, "1 heads n n"]) -> None:
        weights = weights.float()
        mixed = rollout([weights])
        self.flow = mixed if self.flow is None else mixed @ self.flow
        self.weights.append(self.asked(weights))
        self.rollout.append(self.asked(self.flow[:, None])[0])

    def asked(self, weights: Float[Tensor, "1 heads n n"]) -> Float[Tensor, "heads gh gw"]:
        """The asker's row over the patches."""
        rows = weights[0, :, 0] if self.has_class_token else weights[0, :, self.prefix :].mean(1)
        return rows[:, self.prefix :].reshape(-1, *self.grid)


@torch.inference_mode()
def compute_attention(predictor: Predictor, image: ImageLike) -> Attention:
    """Runs one picture through the encoder, in fp32, as its card says images meet the network.

    Layers behind the encoder's last tap do not exist in a model and so are not shown.

    Raises:
        ConfigError: an encoder of another family than `vit` and `timm`.
        DataError: no such picture.
    """
    encoder: Any = predictor.model.encoder
    if not isinstance(encoder, ViTEncoder | TimmEncoder):
        raise ConfigError(f"attention: shown for encoders `vit` and `timm`, not for a {type(encoder).__name__}.")
    card, x = predictor.card, predictor.to_tensor(as_rgb(image)[None])
    seen = preprocess(x, card.resize, card.multiple)
    x, offset = pad_to_multiple((seen - encoder.mean) / encoder.std, encoder.patch_size)
    grid = (x.shape[-2] // encoder.patch_size, x.shape[-1] // encoder.patch_size)
    has_class_token = getattr(encoder.vit, "cls_token", None) is not None
    watching = RolloutAccumulator(encoder.prefix_tokens, has_class_token, grid)
    show(encoder, x, watching)
    return Attention(
        image=as_bytes(seen),
        asker="class token" if has_class_token else "mean patch",
        weights=torch.stack(watching.weights).cpu().numpy(),
        rollout=torch.stack(watching.rollout).cpu().numpy(),
        patch=encoder.patch_size,
        window=(*offset, *size_of(seen)),
    )


def show(encoder: Any, x: Float[Tensor, "1 3 h w"], watching: RolloutAccumulator) -> None:
    if isinstance(encoder, ViTEncoder):
        for weights in encoder.vit.attention(x.mean(1, keepdim=True) if encoder.grey else x):
            watching.see(weights)
    else:
        from densevit.models.timm_adapters.attention_weights import visit_attention_weights

        visit_attention_weights(encoder.vit, x, watching.see)


def size_of(x: Float[Tensor, "b c h w"]) -> tuple[int, int]:
    return x.shape[-2], x.shape[-1]


def as_bytes(image: Float[Tensor, "1 3 h w"]) -> UInt8[np.ndarray, "h w 3"]:
    pixels = (image[0].permute(1, 2, 0).clamp(0, 1) * 255).round()
    return pixels.to(torch.uint8).cpu().numpy()
