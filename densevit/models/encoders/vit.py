"""densevit's own Vision Transformer as an encoder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.encoders.base import ENCODERS, OutIndices, TokenEncoder
from densevit.models.lora import Lora
from densevit.models.vit.block import EPS, MlpKind
from densevit.models.vit.checkpoints import check_config, convert
from densevit.models.vit.embeddings import ConvStem, Positions, Resampling
from densevit.models.vit.init_weights import Init
from densevit.models.vit.vision_transformer import (
    SIZES,
    BlockOutput,
    VisionTransformer,
    as_map,
    choose_grid,
    keep_patches,
)
from densevit.ops.resize import pad_to_multiple
from densevit.structures import BlockFunction, EncoderOutput, FeatureSpec

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
        stem_features: tuple[Annotated[int, Field(ge=2)], ...] = (),
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
        lora: Lora | None = None,
    ) -> None:
        """Raise ConfigError: channels not divisible by heads, an image smaller than a patch, out_indices beyond the
        depth, stem_features that the stem does not have.

        Args:
            size: sets channels, blocks and heads; `dim`, `depth` and `heads` override it one by one.
            dim, depth, heads: channels, blocks, and heads of each block's attention.
            patch_size: side of a patch in pixels.
            image_size: side, or (h, w), of the grid of the position embeddings; the encoder takes any size.
            channels: 1 for the mean of red, green and blue.
            mlp_ratio: hidden channels of each block's MLP over `dim`.
            mlp: its activation, or a gated MLP (DINOv2 ViT-g: swiglu).
            class_token: prepend a class token.
            registers: number of register tokens (Darcet et al. 2024).
            no_embed_class: only patches have positions (as in timm's DINOv2 with registers).
            positions: initialisation of the position embeddings, which are always learned.
            pos_embed_interpolation: how they are resized to other grids; differs between models (docs/vit.md).
            stem: patches by one strided convolution, or by a stack of small ones (Xiao et al. 2021).
            stem_features: strides of the maps of stem 'conv' that are returned before those of the blocks; [4, 8] gives
                a DPT two fine levels, whose edges tokens of 16 pixels do not keep.
            qkv_bias: queries, keys and values have biases.
            qk_norm: a LayerNorm over each head's queries and keys.
            layer_scale: initial value of a learned factor per channel after each branch (DINOv2: 1e-5).
            norm_pre: a LayerNorm before the first block, as in CLIP, and no bias in the patch embedding.
            eps: epsilon of every LayerNorm.
            pos_drop, attn_drop, proj_drop: rates of dropout on the embedded tokens, the attention and its output.
            drop_path: stochastic depth rate of the last block; linear from 0 at the first.
            init: weight initialisation, by timm's names; "" is its default.
            fix_init: divide the output weights of block i by sqrt(2 i), i from 1 (BEiT).
            out_indices: blocks to return, 0-based, or how many of the last; four evenly spaced by default.
            mean, std: of red, green and blue in [0, 1], by which images are normalised.
            norm: apply the final LayerNorm to the feature maps, as in Depth Anything.
            norm_eps: epsilon of the final LayerNorm, where it is not `eps` (Depth Anything 3: 1e-5).
            weights: a local file, loaded when the model is built.
            lora: low-rank updates of attention and MLP, trained in place of the weights (models/lora.py).
        """
        super().__init__()
        dim, depth, heads = (value or preset for value, preset in zip((dim, depth, heads), SIZES[size], strict=True))
        grid = choose_grid(image_size, patch_size)
        if dim % heads:
            raise ConfigError(f"encoder: dim {dim} is not a multiple of heads {heads}.")
        if positions == "sincos" and dim % 4:
            raise ConfigError(f"encoder: positions 'sincos' need a dim that is a multiple of 4, not {dim}.")
        self.weights, self.lora = weights, lora
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
        self.wrap_backbone(
            vit, dim=dim, patch_size=patch_size, prefix_tokens=prefix, out_indices=out_indices, norm=norm
        )
        self.stem_features = stem_features
        if stem_features:
            self.features = [*stem_feature_specs(vit.patch_embed, stem_features), *self.features]

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> EncoderOutput:
        if not self.stem_features:
            return super().forward(image)
        vit: VisionTransformer = self.vit
        x, _ = pad_to_multiple((image - self.mean) / self.std, self.patch_size)
        assert isinstance(vit.patch_embed, ConvStem)
        stages, patches = vit.patch_embed.forward_stages(x.mean(dim=1, keepdim=True) if self.grey else x)
        stem = tuple(stages[stride.bit_length() - 2] for stride in self.stem_features)
        outputs = vit.run_blocks(vit.embed_patches(patches), self.out_indices, self.norm)
        maps = (as_map(output.patches, (patches.shape[-2], patches.shape[-1])) for output in outputs)
        none = (x.new_zeros(x.shape[0], 0, stage.shape[1]) for stage in stem)  # len(x) is a constant in a graph
        return EncoderOutput(
            (*stem, *maps), (*none, *(output.prefix for output in outputs)), (x.shape[-2], x.shape[-1])
        )

    def detach_last_blocks(self, blocks: int, *, out_indices: bool) -> None:
        if self.stem_features:
            raise ConfigError("encoder.stem_features: a decoder that runs the last blocks reads tokens alone; use [].")
        super().detach_last_blocks(blocks, out_indices=out_indices)

    def block_outputs(
        self, image: Float[Tensor, "b 3 h w"], blocks: Sequence[int], norm: bool
    ) -> Sequence[BlockOutput]:
        vit: VisionTransformer = self.vit
        return vit.block_outputs(image.mean(dim=1, keepdim=True) if self.grey else image, blocks, norm=norm)

    def visible_tokens(
        self, image: Float[Tensor, "b 3 h w"], kept: Int64[Tensor, "b kept"]
    ) -> Float[Tensor, "b visible d"]:
        vit: VisionTransformer = self.vit
        x = keep_patches(vit.embed(image.mean(dim=1, keepdim=True) if self.grey else image), kept, self.prefix_tokens)
        for block in vit.blocks:
            x = vit.run_block(block, x)
        return vit.norm(x)

    def remaining_blocks(self, first: int, grid: tuple[int, int]) -> tuple[BlockFunction, ...]:
        vit: VisionTransformer = self.vit
        return tuple(
            lambda x, mask, num_queries, block=block: vit.run_block(block, x, mask) for block in vit.blocks[first:]
        )

    def load_weights(self, state: Mapping[str, Tensor], source: str) -> None:
        """See `TokenEncoder.load_weights`; and `check_config`."""
        check_config(self.vit, Path(source))
        super().load_weights(state, source)

    def convert(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Convert published layouts to our names and position embeddings to our grid."""
        return convert(state, self.vit)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.vit.checkpointing = enable


def stem_feature_specs(stem: nn.Module, strides: Sequence[int]) -> list[FeatureSpec]:
    """Raise ConfigError if the stem is no stack of convolutions, or has no maps of these strides."""
    if not isinstance(stem, ConvStem):
        raise ConfigError("encoder.stem_features: only stem 'conv' has maps of its own; use stem 'conv' or [].")
    channels = {2 ** (i + 1): width for i, width in enumerate(stem.stage_channels())}
    if list(strides) != sorted(set(strides) & set(channels)):
        raise ConfigError(f"encoder.stem_features: {list(strides)}; would fit: rising strides of {list(channels)}.")
    return [FeatureSpec(channels[stride], stride, tokens=False) for stride in strides]
