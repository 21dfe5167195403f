"""Segmenter's mask transformer (Strudel et al. 2021): class tokens attend to patches; their cosines are the masks.

b images, d channels, k classes, gh x gw cells, n = k + gh * gw tokens. Parameters and numbers are those of
github.com/rstrudel/segmenter, whose blocks are timm's.
"""

from typing import Annotated

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.models.decoders.base import DECODERS, Decoder
from densevit.models.layers import Classes, Fuse, class_names, fuse_maps, fused_spec
from densevit.models.vit.block import Block
from densevit.models.vit.vision_transformer import as_map
from densevit.structures import EncoderOutput, FeatureSpec

Positive = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]
EPS = 1e-5  # torch's, where the encoder has 1e-6
HEAD_WIDTH = 64  # channels of a head of attention, in every ViT that Segmenter was published with


@DECODERS.register("mask_transformer")
class MaskTransformer(Decoder):
    """Class tokens and patches go through a few blocks; a class's map is its cosine similarity to the patches."""

    def __init__(
        self,
        features: list[FeatureSpec],
        prefix_tokens: int,
        *,
        classes: Classes = None,
        channels: Positive | None = None,
        layers: Positive = 2,
        heads: Positive | None = None,
        dropout: Rate = 0.1,
        drop_path: Rate = 0.0,
        fuse: Fuse = "concat",
    ) -> None:
        """Raise ConfigError: channels not divisible by heads.

        Args:
            classes: their names in the order of their ids, or how many there are; None takes those of the data.
            channels: width of the tokens in the decoder; by default that of the encoder.
            heads: number of attention heads; one per 64 channels by default.
            dropout: rate in attention, its projection and the MLP.
            drop_path: stochastic depth rate of the last block; linear from 0 at the first.
            fuse: how several feature levels become one map; Segmenter has one, the normalised last block.
        """
        super().__init__()
        fused, count = fused_spec(features, fuse), len(class_names(classes))
        dim = channels or features[-1].channels
        self.fuse: Fuse = fuse
        self.proj_dec = nn.Linear(fused.channels, dim)
        self.cls_emb = nn.Parameter(torch.empty(1, count, dim))
        self.blocks = nn.ModuleList(
            Block(
                dim,
                heads or max(1, dim // HEAD_WIDTH),
                attn_drop=dropout,
                proj_drop=dropout,
                drop_path=drop_path * i / max(layers - 1, 1),
                eps=EPS,
            )
            for i in range(layers)
        )
        self.decoder_norm = nn.LayerNorm(dim)
        self.proj_patch = nn.Parameter(torch.randn(dim, dim) * dim**-0.5)
        self.proj_classes = nn.Parameter(torch.randn(dim, dim) * dim**-0.5)
        self.mask_norm = nn.LayerNorm(count)
        nn.init.trunc_normal_(self.cls_emb, std=0.02)
        self.apply(init_weights)
        self.output = FeatureSpec(count, fused.stride)

    def forward(self, features: EncoderOutput) -> Float[Tensor, "b k gh gw"]:
        x = fuse_maps(features, self.fuse)
        grid, count = (x.shape[-2], x.shape[-1]), self.cls_emb.shape[1]
        x = self.proj_dec(x.flatten(2).transpose(1, 2))
        x = torch.cat([x, self.cls_emb.expand(x.shape[0], -1, -1)], dim=1)
        for block in self.blocks:
            x = block(x)
        x = self.decoder_norm(x)
        patches = F.normalize(x[:, :-count] @ self.proj_patch, dim=-1)
        classes = F.normalize(x[:, -count:] @ self.proj_classes, dim=-1)
        return as_map(self.mask_norm(patches @ classes.transpose(1, 2)), grid)


def init_weights(layer: nn.Module) -> None:
    """Initialise as Segmenter does."""
    if isinstance(layer, nn.Linear):
        nn.init.trunc_normal_(layer.weight, std=0.02)
        nn.init.zeros_(layer.bias)
