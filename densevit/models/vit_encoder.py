"""Our own Vision Transformer as an encoder, by size."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from densevit.errors import ConfigError
from densevit.models.encoder import ENCODERS
from densevit.models.positions import Resampling, resample
from densevit.models.token_encoder import Taps, TokenEncoder
from densevit.models.vit import Tap, VisionTransformer

# channels, blocks, heads
SIZES = {
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
    "giant": (1536, 40, 24),
}
Positive = Annotated[int, Field(gt=0)]


@ENCODERS.register("vit")
class ViTEncoder(TokenEncoder):
    """A readable ViT that trains from scratch, and takes timm's plain ViT weights by name."""

    def __init__(
        self,
        *,
        size: Literal["tiny", "small", "base", "large", "huge", "giant"] = "small",
        dim: Positive | None = None,
        depth: Positive | None = None,
        heads: Positive | None = None,
        patch_size: Positive = 16,
        image_size: Positive | tuple[Positive, Positive] = 224,
        mlp_ratio: Annotated[float, Field(gt=0)] = 4.0,
        class_token: bool = True,
        registers: Annotated[int, Field(ge=0)] = 0,
        no_embed_class: bool = False,
        positions: Literal["learned", "sincos"] = "learned",
        resampling: Resampling = "antialias",
        stem: Literal["patch", "conv"] = "patch",
        qkv_bias: bool = True,
        qk_norm: bool = False,
        layer_scale: Annotated[float, Field(gt=0)] | None = None,
        drop_path: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        taps: Taps = None,
        norm: bool = True,
        mean: tuple[float, float, float] = (0.485, 0.456, 0.406),
        std: tuple[float, float, float] = (0.229, 0.224, 0.225),
        weights: Path | None = None,
    ) -> None:
        """
        Args:
            size: sets channels, blocks and heads; `dim`, `depth` and `heads` override it one by one.
            image_size: side, or (h, w), whose grid holds the position embeddings; any size can be fed.
            norm: taps pass the final LayerNorm, as in Depth Anything; residual streams grow with depth.
            weights: a local file; whoever builds the encoder reads it and calls `load_weights`.

        Raises:
            ConfigError: heads that do not divide the channels, a size without a patch, taps beyond the depth.
        """
        super().__init__()
        dim, depth, heads = (given or preset for given, preset in zip((dim, depth, heads), SIZES[size], strict=True))
        grid = choose_grid(image_size, patch_size)
        if dim % heads:
            raise ConfigError(f"encoder: dim {dim} is not a multiple of heads {heads}.")
        if positions == "sincos" and dim % 4:
            raise ConfigError(f"encoder: positions 'sincos' need a dim that is a multiple of 4, not {dim}.")
        self.weights = weights
        self.set_normalisation(mean, std)
        vit = VisionTransformer(
            dim,
            depth,
            heads,
            patch_size,
            grid=grid,
            mlp_ratio=mlp_ratio,
            class_token=class_token,
            registers=registers,
            no_embed_class=no_embed_class,
            positions=positions,
            resampling=resampling,
            stem=stem,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            layer_scale=layer_scale,
            drop_path=drop_path,
        )
        prefix = vit.prefix_tokens
        self.adopt(vit, dim=dim, patch_size=patch_size, prefix_tokens=prefix, taps=taps, norm=norm)

    def tap(self, image: Float[Tensor, "b 3 h w"]) -> Sequence[Tap]:
        vit: VisionTransformer = self.vit
        return vit.forward_intermediates(image, self.taps, norm=self.norm)

    def convert(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Resamples the position embeddings of a square grid to ours."""
        vit: VisionTransformer = self.vit
        positions = state.get("pos_embed")
        if positions is None or positions.shape == vit.pos_embed.shape:
            return state
        prefix, cells = positions[:, : vit.placed_prefix], positions[:, vit.placed_prefix :]
        side = round(cells.shape[1] ** 0.5)
        if side**2 != cells.shape[1]:
            return state  # not a square: `load` reports the shapes
        moved = resample(cells, (side, side), vit.grid, vit.resampling)
        return {**state, "pos_embed": torch.cat([prefix, moved], dim=1)}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.vit.checkpointing = enable


def choose_grid(image_size: int | tuple[int, int], patch_size: int) -> tuple[int, int]:
    h, w = (image_size, image_size) if isinstance(image_size, int) else image_size
    if min(h, w) < patch_size:
        raise ConfigError(f"encoder.image_size: {h}x{w} holds no patch of {patch_size}x{patch_size}.")
    return -(-h // patch_size), -(-w // patch_size)
