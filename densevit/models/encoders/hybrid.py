"""The hybrid encoder of DPT-Hybrid: a Vision Transformer on the cells of a ResNet's last feature map.

b images, h x w pixels.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from densevit.errors import ConfigError
from densevit.models.encoders.base import (
    ENCODERS,
    Encoder,
    OutIndices,
    layers_of_vit,
    load_encoder,
    resolve_out_indices,
    unwrap_vit,
)
from densevit.models.lora import Lora
from densevit.models.vit.checkpoints import convert
from densevit.models.vit.embeddings import Resampling
from densevit.models.vit.vision_transformer import VisionTransformer, as_map, choose_grid
from densevit.ops.resize import pad_to_multiple
from densevit.structures import EncoderOutput, FeatureSpec

Positive = Annotated[int, Field(gt=0)]
TIMM_BACKBONE_PREFIX = "patch_embed.backbone."  # of the ResNet in timm's names
GROUPS = 32  # of timm's group norm


@ENCODERS.register("hybrid")
class HybridEncoder(Encoder):
    """The "R50+ViT-B/16" of Dosovitskiy et al. (2021); the first ResNet stages are its finest feature levels."""

    def __init__(
        self,
        *,
        dim: Positive = 768,
        depth: Positive = 12,
        heads: Positive = 12,
        widths: tuple[Positive, ...] = (256, 512, 1024),
        depths: tuple[Positive, ...] = (3, 4, 9),
        stem: Positive = 64,
        stages: tuple[Annotated[int, Field(ge=0)], ...] = (0, 1),
        out_indices: OutIndices = None,
        norm: bool = False,
        image_size: Positive | tuple[Positive, Positive] = 384,
        pos_embed_interpolation: Resampling = "antialias",
        mean: tuple[float, float, float] = (0.5, 0.5, 0.5),
        std: tuple[float, float, float] = (0.5, 0.5, 0.5),
        weights: Path | None = None,
        lora: Lora | None = None,
    ) -> None:
        """Raise ConfigError: widths not divisible by groups or heads, or stages and blocks that do not exist.

        Args:
            dim, depth, heads: channels, blocks and heads of the Transformer.
            widths, depths: channels and blocks of the ResNet's stages.
            stem: channels before them.
            stages: ResNet stages whose maps are returned before those of the Transformer; may be empty.
            out_indices: blocks of the Transformer; by default at three quarters of its depth and the last, as in DPT.
            norm: apply the final LayerNorm to the feature maps.
            image_size: side, or (h, w), of the grid of the position embeddings; the encoder takes any size.
            pos_embed_interpolation: how these are resized for other grids (docs/vit.md).
            mean, std: of red, green and blue in [0, 1], by which images are normalised.
            weights: a local file, loaded when the model is built.
            lora: low-rank updates of attention and MLP, trained in place of the weights (models/lora.py).
        """
        super().__init__()
        check_widths([stem, *widths], len(depths))
        if any(stage >= len(widths) for stage in stages) or list(stages) != sorted(set(stages)):
            raise ConfigError(f"encoder.stages: {stages} are not increasing indices of {len(widths)} stages.")
        patch = 4 * 2 ** (len(widths) - 1)
        vit = VisionTransformer(
            dim,
            depth,
            heads,
            1,
            channels=widths[-1],
            grid=choose_grid(image_size, patch),
            pos_embed_interpolation=pos_embed_interpolation,
        )
        self.weights, self.lora, self.stages, self.norm = weights, lora, stages, norm
        self.set_normalisation(mean, std)
        self.backbone, self.vit = build_resnet(widths, depths, stem), vit
        self.patch_size, self.prefix_tokens = patch, vit.prefix_tokens
        self.out_indices = resolve_out_indices(
            (depth * 3 // 4 - 1, depth - 1) if out_indices is None and depth > 1 else out_indices, depth
        )
        self.unused = set(vit.state_dict())
        vit.blocks = vit.blocks[: self.out_indices[-1] + 1]
        if not norm:
            vit.norm = nn.Identity()
        self.unused -= set(vit.state_dict())
        early = [FeatureSpec(widths[stage], 4 * 2**stage, tokens=False) for stage in stages]
        self.features = [*early, *(FeatureSpec(dim, patch) for _ in self.out_indices)]

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> EncoderOutput:
        x, _ = pad_to_multiple((image - self.mean) / self.std, self.patch_size)
        stages = self.forward_backbone(x)
        outputs = self.vit.block_outputs(stages[-1], self.out_indices, norm=self.norm)
        grid = (stages[-1].shape[-2], stages[-1].shape[-1])
        early = tuple(stages[stage] for stage in self.stages)
        none = tuple(map_.new_zeros(map_.shape[0], 0, map_.shape[1]) for map_ in early)
        maps = tuple(as_map(output.patches, grid) for output in outputs)
        return EncoderOutput(
            (*early, *maps), (*none, *(output.prefix for output in outputs)), (x.shape[-2], x.shape[-1])
        )

    def forward_backbone(self, x: Float[Tensor, "b 3 h w"]) -> list[Float[Tensor, "b _ _ _"]]:
        if self.vit.checkpointing and torch.is_grad_enabled():
            return checkpoint(stage_maps, self.backbone, x, use_reentrant=False)
        return stage_maps(self.backbone, x)

    def load_weights(self, state: Mapping[str, Tensor], source: str) -> None:
        # Of a file of `convert`, which has the names of our modules, timm's names.
        state = {re.sub(r"^backbone\.(?=stem\.|stages\.)", TIMM_BACKBONE_PREFIX, name): x for name, x in state.items()}
        early = {
            name.partition(TIMM_BACKBONE_PREFIX)[2]: tensor
            for name, tensor in state.items()
            if TIMM_BACKBONE_PREFIX in name
        }
        tokens = unwrap_vit(
            {name: tensor for name, tensor in state.items() if TIMM_BACKBONE_PREFIX not in name}, source
        )
        load_encoder(self.backbone, early, source)
        load_encoder(self.vit, convert(tokens, self.vit), source, self.unused)

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return layers_of_vit(self, self.vit)

    def no_weight_decay(self) -> set[str]:
        return {f"vit.{name}" for name in self.vit.no_weight_decay()}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.vit.checkpointing = enable


def build_resnet(widths: Sequence[int], depths: Sequence[int], stem: int) -> Any:
    """Build timm's ResNetV2 with weight-standardised convolutions and TensorFlow's padding."""
    from timm.layers.std_conv import StdConv2dSame
    from timm.models.resnetv2 import ResNetV2

    # timm 0.4.5, which DPT used, added 1e-5 to the standard deviation.
    conv = partial(StdConv2dSame, eps=1e-8)
    return ResNetV2(
        list(depths), tuple(widths), 0, global_pool="", stem_chs=stem, stem_type="same", preact=False, conv_layer=conv
    )


def stage_maps(resnet: Any, x: Float[Tensor, "b 3 h w"]) -> list[Float[Tensor, "b _ _ _"]]:
    """Return the feature map of each stage, at strides 4, 8, 16, ..."""
    x, maps = resnet.stem(x), []
    for stage in resnet.stages:
        x = stage(x)
        maps.append(x)
    return maps


def check_widths(widths: Sequence[int], stages: int) -> None:
    """Raise ConfigError: channels not divisible by the groups of group norm, or not one depth for each width."""
    if len(widths) - 1 != stages:
        raise ConfigError(f"encoder: {len(widths) - 1} widths and {stages} depths; each stage has one of both.")
    odd = [width for width in widths[1:] if width % (4 * GROUPS)] + [width for width in widths[:1] if width % GROUPS]
    if odd:
        raise ConfigError(
            f"encoder.widths: {odd[0]} cannot be normalised in {GROUPS} groups; would fit: multiples "
            f"of {GROUPS} for the stem, of {4 * GROUPS} for stages."
        )
