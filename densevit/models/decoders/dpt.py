"""The Dense Prediction Transformer's decoder (Ranftl et al. 2021): taps become a pyramid, fused from deep to shallow.

b images, c channels, h x w cells of a level, gh x gw tokens.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Literal

import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.decoders.base import DECODERS, Decoder, DecoderOutput
from densevit.models.decoders.readout import READOUTS, Readout, ReadoutKind
from densevit.models.heads.segmentation import LabelsHead
from densevit.models.layers.class_names import Classes
from densevit.models.layers.conv_head import upsample
from densevit.models.layers.norms import Norm, build_norm
from densevit.structures import EncoderOutput, FeatureSpec

Positive = Annotated[int, Field(gt=0)]
LEVELS = 4


@DECODERS.register("dpt")
class DPT(Decoder):
    """Reassembles taps at 1/4, 1/2, 1 and 2 patches per cell, and fuses them into one map of half the finest.

    With fewer taps than levels, neighbouring levels share one (the deepest serve first), as in ViTDet's pyramid.
    """

    def __init__(
        self,
        features: list[FeatureSpec],
        prefix_tokens: int,
        *,
        channels: Positive = 256,
        hidden: tuple[Positive, Positive, Positive, Positive] | None = None,
        readout: ReadoutKind = "ignore",
        norm: Norm = "none",
        deepest_unit: bool = False,
        align_corners: bool = True,
        tap_norm: Norm = "none",
        unit_bias: bool | None = None,
        fusion_size: Literal["next_level", "double"] = "next_level",
        mix: bool = False,
        auxiliary: Classes = None,
    ) -> None:
        """
        Args:
            channels: of every fusion and of the output; Depth Anything has 64, 128, 256 for ViT-S, B, L.
            hidden: channels of the four levels before fusion; D/8, D/4, D/2, D unless given.
            readout: what becomes of the class token: dropped, added to every patch (`average`: with the registers, as
                the mean of all), or mixed in by a projection.
            norm: inside the residual units; none in published depth models, batch in DPT's segmentation.
            deepest_unit: the deepest level, too, passes a residual unit of its own before fusion, as in
                segmentation-models-pytorch; DPT and MiDaS store one that never runs.
            align_corners: of all upsampling here, as published.
            tap_norm: of each tap before its 1x1; batch in DINOv3's.
            unit_bias: whether the residual units' convolutions have biases; unless given, where they have no norm.
            fusion_size: each fusion resizes its map to the next level, or doubles it and resizes that level to it
                (DINOv2, DINOv3). Both are the same while the grid's sides are even.
            mix: a 3x3 convolution with ReLU behind the last fusion (DINOv2, DINOv3).
            auxiliary: classes of a second classifier in training, behind the last fusion but one; it needs the loss
                `auxiliary`.

        Raises:
            ConfigError: more than four taps, or a class token asked of an encoder that has none.
        """
        super().__init__()
        if not 1 <= len(features) <= LEVELS:
            raise ConfigError(f"decoder 'dpt' takes 1 to {LEVELS} taps, not {len(features)}.")
        self.sources = [level * len(features) // LEVELS for level in range(LEVELS)]
        specs = [features[source] for source in self.sources]
        hidden = hidden or tuple(max(spec.channels // 2 ** (3 - i), 1) for i, spec in enumerate(specs))
        # A hierarchical encoder's finest map may be finer than a quarter of its deepest.
        finest = min(Fraction(features[-1].stride, 4), Fraction(features[0].stride))
        self.reassemble = nn.ModuleList(
            Reassemble(spec, finest * 2**i, width, channels, READOUTS[readout](spec.channels, prefix_tokens), tap_norm)
            if spec.tokens
            else Level(spec, finest * 2**i, channels)
            for i, (spec, width) in enumerate(zip(specs, hidden, strict=True))
        )
        self.fusions = nn.ModuleList(
            Fusion(channels, norm, align_corners, unit=deepest_unit or i < LEVELS - 1, bias=unit_bias)
            for i in range(LEVELS)
        )
        self.doubling = fusion_size == "double"
        self.mix = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()) if mix else nn.Identity()
        self.auxiliary: LabelsHead | None = None
        if auxiliary is not None:
            self.auxiliary = LabelsHead(channels, classes=auxiliary, hidden=channels, align_corners=align_corners)
        self.output = FeatureSpec(channels, max(1, round(finest / 2)))

    def forward(self, features: EncoderOutput) -> Float[Tensor, "b channels h w"] | DecoderOutput:
        *_, coarser, finest = self.climb(self.levels(features))
        if self.auxiliary is None or not self.training:
            return self.mix(finest)
        return DecoderOutput(self.mix(finest), {"auxiliary": self.auxiliary(coarser, features.image_size)})

    def levels(self, features: EncoderOutput) -> list[Tensor]:
        """The pyramid, finest first."""
        return [
            reassemble(features.maps[source], features.prefix[source])
            for source, reassemble in zip(self.sources, self.reassemble, strict=True)
        ]

    def climb(self, levels: list[Tensor]) -> Iterator[Float[Tensor, "b channels h w"]]:
        """What each fusion gives, from the deepest to the finest."""
        finest = levels[0].shape[-2:]
        # Each fusion leaves the map at the next level's own size: odd grids do not survive halving and doubling.
        sizes = [(finest[0] * 2, finest[1] * 2), *((level.shape[-2], level.shape[-1]) for level in levels[:-1])]
        x = None
        for fusion, level, size in zip(self.fusions[::-1], levels[::-1], sizes[::-1], strict=True):
            x = fusion(level, x, None if self.doubling else size)
            yield x


class Reassemble(nn.Module):
    """A tap's tokens as one level of the pyramid: readout, norm, 1x1, resize, 3x3."""

    def __init__(
        self, spec: FeatureSpec, stride: Fraction, hidden: int, channels: int, readout: Readout, norm: Norm
    ) -> None:
        super().__init__()
        self.readout = readout
        self.norm = build_norm(norm, spec.channels)
        self.project = nn.Conv2d(spec.channels, hidden, 1)
        self.resize = resizing(Fraction(spec.stride) / stride, hidden)
        self.conv = nn.Conv2d(hidden, channels, 3, padding=1, bias=False)

    def forward(self, x: Float[Tensor, "b d gh gw"], prefix: Float[Tensor, "b p d"]) -> Float[Tensor, "b c h w"]:
        return self.conv(self.resize(self.project(self.norm(self.readout(x, prefix)))))


class Level(nn.Module):
    """A map of convolutions or windows, which is a level of a pyramid already: DPT-Hybrid's first two, Swin's four."""

    def __init__(self, spec: FeatureSpec, stride: Fraction, channels: int) -> None:
        super().__init__()
        self.resize = resizing(Fraction(spec.stride) / stride, spec.channels)
        self.conv = nn.Conv2d(spec.channels, channels, 3, padding=1, bias=False)

    def forward(self, x: Float[Tensor, "b d _ _"], prefix: Float[Tensor, "b _ _"]) -> Float[Tensor, "b c h w"]:
        return self.conv(self.resize(x))


def resizing(factor: Fraction, channels: int) -> nn.Module:
    """A learned resize: transposed convolution to grow, strided to shrink.

    Raises:
        ConfigError: a factor other than a power of two.
    """
    if factor == 1:
        return nn.Identity()
    if factor.denominator == 1:
        return nn.ConvTranspose2d(channels, channels, factor.numerator, stride=factor.numerator)
    if factor.numerator == 1:
        return nn.Conv2d(channels, channels, 3, stride=factor.denominator, padding=1)
    raise ConfigError(f"decoder 'dpt' cannot resize a map by {factor}; its taps' strides must differ by whole factors.")


class Fusion(nn.Module):
    """Adds a level to what came from below, refines the sum and grows it to the next level's size.

    The deepest has nothing to add; published files store a unit for it that never ran, which is not built here.
    """

    def __init__(self, channels: int, norm: Norm, align_corners: bool, *, unit: bool, bias: bool | None = None) -> None:
        super().__init__()
        self.align_corners = align_corners
        self.level = ResidualUnit(channels, norm, bias) if unit else None
        self.refine = ResidualUnit(channels, norm, bias)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(
        self, level: Float[Tensor, "b c _ _"], below: Float[Tensor, "b c _ _"] | None, size: tuple[int, int] | None
    ) -> Float[Tensor, "b c h w"]:
        """`size`: of the result; None doubles the map."""
        if below is not None:
            level = upsample(level, (below.shape[-2], below.shape[-1]))
        x = level if self.level is None else self.level(level)
        if below is not None:
            x = x + below
        # Published code upsamples first; a 1x1 commutes with that, and costs a quarter here.
        return upsample(self.out(self.refine(x)), size or (2 * x.shape[-2], 2 * x.shape[-1]), self.align_corners)


class ResidualUnit(nn.Module):
    """Two 3x3 convolutions before which ReLU acts, around a shortcut."""

    def __init__(self, channels: int, norm: Norm, bias: bool | None = None) -> None:
        super().__init__()
        bias = norm == "none" if bias is None else bias
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.norm1 = build_norm(norm, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.norm2 = build_norm(norm, channels)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        inside = F.relu_(self.norm1(self.conv1(F.relu(x))))  # in place: no backward pass reads what came before it
        return x + self.norm2(self.conv2(inside))
