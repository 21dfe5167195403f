"""Motion blocks: attention over the frames of a clip, between the levels of a decoder (Video Depth Anything, Chen et
al. 2025, after AnimateDiff).

frames = clips x t, c channels, h x w cells of a map.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor, nn

from densevit.config.schema import TrainConfig
from densevit.errors import ConfigError
from densevit.model_inputs import InputKind, ModelInputs, register_input
from densevit.models.conditioning.base import CONDITIONINGS, ConditionedParts, Conditioning, FirstPass
from densevit.models.layers import build_norm
from densevit.models.vit.block import Attention
from densevit.structures import Batch, EncoderOutput, MapAdapter

RESIDUALS = 2  # attentions in a block
DEEPEST = 2  # levels, and fusions, with motion blocks (Video Depth Anything)


class ClipInput(InputKind):
    """The rows of each clip's frames in the batch, which are consecutive: clips x t; none where images stand alone."""

    def of_batch(self, batch: Batch) -> Int64[Tensor, "clips t"] | None:
        if batch.clip_length == 1:
            return None
        return frames_of_clips(len(batch), batch.clip_length, batch.image.device)


register_input(ClipInput("clips"))


def frames_of_clips(count: int, length: int, device: torch.device) -> Int64[Tensor, "clips {length}"]:
    """Return the rows of the frames of each clip among `count` frames."""
    return torch.arange(count, device=device).view(-1, length)


@CONDITIONINGS.register("motion")
class Motion(Conditioning):
    """Motion blocks on the deepest levels and fusions of `model.decoder`: attention over the frames of a clip.

    A clip of one frame does not run them.
    """

    input = "clips"
    run_options = ("frames",)

    def __init__(
        self,
        parts: ConditionedParts,
        *,
        heads: Annotated[int, Field(ge=1, lt=2**32)] = 8,
        frames: Annotated[int, Field(ge=2, le=1024)] | None = None,
    ) -> None:
        """Raise ConfigError if the decoder has no levels, or their channels are not divisible by the heads.

        Args:
            heads: number of attention heads.
            frames: length of a window over a video; `data.clip` by default.
        """
        super().__init__()
        levels = parts.decoder.level_channels
        channels = [*levels[-DEEPEST:], *parts.decoder.fusion_channels[:DEEPEST]]
        if not channels:
            raise ConfigError("conditioning: model.decoder has no levels to put motion blocks between; 'dpt' has.")
        if any(width % heads for width in channels):
            raise ConfigError(
                f"conditioning.heads: {heads} do not divide the channels of the decoder's levels, "
                f"{', '.join(map(str, channels))}; {gcd(*channels)} would."
            )
        self.first = len(levels) - DEEPEST
        self.blocks = nn.ModuleList(MotionBlock(width, heads) for width in channels)

    @classmethod
    def resolved(cls, options: Mapping[str, Any], run: TrainConfig) -> Mapping[str, Any]:
        return {**options, "frames": options.get("frames") or run.data.clip}

    @classmethod
    def incompatible(cls, run: TrainConfig) -> Iterator[str]:
        if run.data.clip == 1:
            yield "learns from clips; set data.clip to their number of frames, or leave it out by `motion: null`."
        if run.parallel == "fsdp":
            yield "needs parallel ddp; clips of several lengths would not run in step."

    def forward(self, features: EncoderOutput, inputs: ModelInputs, first_pass: FirstPass) -> EncoderOutput:
        clip_length = inputs[self.input].shape[1]
        if clip_length == 1:
            return features
        adapter = ClipAdapter(self.blocks, self.first, clip_length)
        return replace(features, adapters=(*features.adapters, adapter))


@dataclass(frozen=True)
class ClipAdapter(MapAdapter):
    """Applies motion blocks to the levels from `first` on, then to as many fusions."""

    blocks: nn.ModuleList
    first: int
    clip_length: int

    def level(self, index: int, x: Tensor) -> Tensor:
        return x if index < self.first else self._apply(index - self.first, x)

    def fusion(self, index: int, x: Tensor) -> Tensor:
        return x if index >= DEEPEST else self._apply(DEEPEST + index, x)

    def _apply(self, block: int, x: Tensor) -> Tensor:
        y: Tensor = self.blocks[block](x, self.clip_length)
        return y


class MotionBlock(nn.Module):
    """Each cell of a map attends to the same cell in the other frames of its clip.

    GroupNorm, linear, two attentions over time and a gated feed-forward layer, each with a LayerNorm before and added
    to its input, linear; all of it added to the map. The last layer begins at zero, so that an image model begins as it
    was.
    """

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.norm = build_norm("group", channels)
        self.proj_in = nn.Linear(channels, channels)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(RESIDUALS))
        self.attentions = nn.ModuleList(Attention(channels, heads, qkv_bias=False) for _ in range(RESIDUALS))
        self.mlp_norm = nn.LayerNorm(channels)
        self.mlp_in = nn.Linear(channels, 8 * channels)  # values and gates of GEGLU (Shazeer 2020)
        self.mlp_out = nn.Linear(4 * channels, channels)
        self.proj_out = nn.Linear(channels, channels)
        nn.init.zeros_(self.proj_out.weight)
        nn.init.zeros_(self.proj_out.bias)

    def forward(self, x: Float[Tensor, "frames c h w"], clip_length: int) -> Float[Tensor, "frames c h w"]:
        """Return `clip_length`: t; each clip's frames are consecutive."""
        frames, channels, h, w = x.shape
        tokens = self.norm(x).unflatten(0, (-1, clip_length)).permute(0, 3, 4, 1, 2).reshape(-1, clip_length, channels)
        tokens = self.proj_in(tokens)
        positions = sinusoids(clip_length, channels).to(tokens)
        for norm, attention in zip(self.norms, self.attentions, strict=True):
            tokens = tokens + attention(norm(tokens) + positions)
        values, gates = self.mlp_in(self.mlp_norm(tokens)).chunk(2, dim=-1)
        tokens = self.proj_out(tokens + self.mlp_out(values * F.gelu(gates)))
        return x + tokens.reshape(-1, h, w, clip_length, channels).permute(0, 3, 4, 1, 2).reshape(
            frames, channels, h, w
        )


def sinusoids(length: int, channels: int) -> Float[Tensor, "t c"]:
    """Return the positions in time: sine and cosine in turn, wavelengths from 2 pi to 10000 * 2 pi (Vaswani et al.
    2017)."""
    rates = torch.exp(torch.arange(0, channels, 2) * (-math.log(10000.0) / channels))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :channels]
