"""Our own Vision Transformer as an encoder, by size."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.encoders.base import ENCODERS
from densevit.models.encoders.vit_base import OutIndices, TokenEncoder
from densevit.models.vit.attention import EPS
from densevit.models.vit.checkpoint_filter import convert
from densevit.models.vit.configs import SIZES, choose_grid
from densevit.models.vit.init_weights import Init
from densevit.models.vit.mlp import MlpKind
from densevit.models.vit.pos_embed import Positions, Resampling
from densevit.models.vit.vision_transformer import BlockOutput, VisionTransformer
from densevit.structures import Step

Positive = Annotated[int, Field(gt=0, le=65536)]
Rate = Annotated[float, Field(ge=0, lt=1)]


@ENCODERS.register("vit")
class ViTEncoder(TokenEncoder):
    """A readable ViT that trains from scratch, and takes the weights of timm, DINOv2, CLIP, Hugging Face and Google."""

    def __init__(
        self,
        *,
        size: Literal["nano", "mini", "tiny", "small", "base", "large", "huge", "giant"] = "small",
        dim: Positive | None = None,
        depth: Annotated[int, Field(gt=0, le=1024)] | None = None,
        heads: Positive | None = None,
        patch_size: Positive = 16,
        image_size: Positive | tuple[Positive, Positive] = 224,
        channels: Literal[1, 3] = 3,
        mlp_ratio: Annotated[float, Field(gt=0)] = 4.0,
        mlp: MlpKind = "gelu",
        class_token: bool = True,
        registers: Annotated[int, Field(ge=0)] = 0,
        no_embed_class: bool = False,
        positions: Positions = "learned",
        pos_embed_interpolation: Resampling = "antialias",
        stem: Literal["patch", "conv"] = "patch",
        qkv_bias: bool = True,
        qk_norm: bool = False,
        layer_scale: Annotated[float, Field(gt=0)] | None = None,
        norm_pre: bool = False,
        eps: Annotated[float, Field(gt=0)] = EPS,
        norm_eps: Annotated[float, Field(gt=0)] | None = None,
        pos_drop: Rate = 0.0,
        attn_drop: Rate = 0.0,
        proj_drop: Rate = 0.0,
        drop_path: Rate = 0.0,
        init: Init = "",
        fix_init: bool = False,
        out_indices: OutIndices = None,
        norm: bool = True,
        mean: tuple[float, float, float] = (0.485, 0.456, 0.406),
        std: tuple[float, float, float] = (0.229, 0.224, 0.225),
        weights: Path | None = None,
    ) -> None:
        """
        Args:
            size: sets channels, blocks and heads; `dim`, `depth` and `heads` override it one by one.
            dim, depth, heads: channels, blocks, and heads of each block's attention.
            patch_size: side of a patch in pixels.
            image_size: side, or (h, w), whose grid holds the position embeddings; any size can be fed.
            channels: 1 to see the mean of red, green and blue alone.
            mlp_ratio: hidden channels of each block's MLP over `dim`.
            mlp: its activation, or a gated form (DINOv2 ViT-g: swiglu).
            class_token: a token before the patches that stands for the whole image.
            registers: spare tokens that keep global thoughts out of the patches (Darcet et al. 2024).
            no_embed_class: only patches have positions (as in timm's DINOv2 with registers).
            positions: what the embeddings are at first; they learn either way.
            pos_embed_interpolation: how they are resized for other grids, which differs between models (docs/vit.md).
            stem: patches by one strided convolution, or by a stack of small ones (Xiao et al. 2021).
            qkv_bias: queries, keys and values have biases.
            qk_norm: a LayerNorm over each head's queries and keys.
            layer_scale: a factor learned per channel behind each branch, and where it starts (DINOv2: 1e-5).
            norm_pre: a LayerNorm before the first block, as CLIP's, in place of the patch embedding's bias.
            eps: of every LayerNorm.
            pos_drop, attn_drop, proj_drop: rates of dropout on the embedded tokens, the attention and its output.
            drop_path: rate of skipped branches at the last block; it grows linearly from 0 at the first.
            init: how layers start, by timm's names; "" is its default.
            fix_init: what block i adds starts smaller by sqrt(2 i), i from 1 (BEiT).
            out_indices: blocks to hand on, 0-based, or how many of the last; four at even distances unless given.
            mean, std: of red, green and blue in [0, 1], by which images are normalised.
            norm: taps pass the final LayerNorm, as in Depth Anything; residual streams grow with depth.
            norm_eps: of that one, where it is not `eps` (Depth Anything 3: 1e-5).
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
            pos_embed_interpolation=pos_embed_interpolation,
            stem=stem,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            layer_scale=layer_scale,
            channels=channels,
            mlp=mlp,
            norm_pre=norm_pre,
            eps=eps,
            pos_drop=pos_drop,
            attn_drop=attn_drop,
            proj_drop=proj_drop,
            drop_path=drop_path,
            init=init,
            fix_init=fix_init,
        )
        if norm_eps is not None:
            vit.norm = nn.LayerNorm(dim, eps=norm_eps)
        self.grey = channels == 1
        prefix = vit.prefix_tokens
        self.adopt(vit, dim=dim, patch_size=patch_size, prefix_tokens=prefix, out_indices=out_indices, norm=norm)

    def tap(self, image: Float[Tensor, "b 3 h w"], blocks: Sequence[int], norm: bool) -> Sequence[BlockOutput]:
        vit: VisionTransformer = self.vit
        return vit.tap(image.mean(dim=1, keepdim=True) if self.grey else image, blocks, norm=norm)

    def steps(self, first: int, grid: tuple[int, int]) -> tuple[Step, ...]:
        vit: VisionTransformer = self.vit
        return tuple(lambda x, mask, guests, block=block: vit.run(block, x, mask) for block in vit.blocks[first:])

    def convert(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Other published layouts to our names, and their positions to our grid; see `vit_weights`."""
        return convert(state, self.vit)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.vit.checkpointing = enable
