"""The decoder of the Dense Prediction Transformer (Ranftl et al. 2021).

b images, c channels, h x w cells of a level, gh x gw tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.decoders.base import DECODERS, Decoder, DecoderOutput
from densevit.models.decoders.readout import READOUTS, Readout, ReadoutKind
from densevit.models.heads.segmentation import LabelsHead
from densevit.models.layers import Classes, Norm, build_norm, upsample
from densevit.structures import EncoderOutput, FeatureSpec, MapAdapter

Positive = Annotated[int, Field(gt=0)]
Adapt = Callable[[Tensor], Tensor]  # a level before its last convolution -> the same with further inputs
LEVELS = 4


@DECODERS.register("dpt")
class DPT(Decoder):
    """Resizes feature maps to strides of 1/4, 1/2, 1 and 2 patches and fuses them from deep to shallow.

    With fewer than four feature maps, neighbouring levels share one, as in ViTDet's pyramid.
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
        reassemble_norm: Norm = "none",
        residual_bias: bool | None = None,
        fusion_size: Literal["next_level", "double"] = "next_level",
        mix: bool = False,
        auxiliary: Classes = None,
    ) -> None:
        """Raise ConfigError: more than four feature maps, or a readout of a class token that the encoder does not
        have.

        Args:
            channels: channels of every fusion block and of the output; Depth Anything has 64, 128, 256 for ViT-S, B, L.
            hidden: channels of the four levels before fusion; D/8, D/4, D/2, D by default.
            readout: use of the class token: ignored, added to every patch (`average`: mean of class and register
                tokens), or concatenated and projected.
            norm: normalisation in the residual units; published depth models use none, DPT's segmentation batch.
            deepest_unit: a residual unit on the deepest level, too, as in segmentation-models-pytorch; DPT and MiDaS
                store one that is never used.
            align_corners: upsample with aligned corners, as published.
            reassemble_norm: normalisation of each feature map before its 1x1 convolution; batch in DINOv3.
            residual_bias: biases of the residual units' convolutions; by default only without norm.
            fusion_size: each fusion resizes its map to the next level, or doubles it and resizes that level to it
                (DINOv2, DINOv3). Both are the same while the grid's sides are even.
            mix: a 3x3 convolution with ReLU after the last fusion (DINOv2, DINOv3).
            auxiliary: classes of an auxiliary classifier in training, on the last fusion but one; needs the loss
                `auxiliary`.
        """
        super().__init__()
        if not 1 <= len(features) <= LEVELS:
            raise ConfigError(f"decoder 'dpt' takes 1 to {LEVELS} feature maps, not {len(features)}.")
        self.sources = [level * len(features) // LEVELS for level in range(LEVELS)]
        specs = [features[source] for source in self.sources]
        hidden = hidden or tuple(max(spec.channels // 2 ** (3 - i), 1) for i, spec in enumerate(specs))
        # A hierarchical encoder's finest map may be finer than a quarter of its deepest.
        finest = min(Fraction(features[-1].stride, 4), Fraction(features[0].stride))
        levels: list[Reassemble | PyramidLevel] = [
            Reassemble(
                spec, finest * 2**i, width, channels, READOUTS[readout](spec.channels, prefix_tokens), reassemble_norm
            )
            if spec.tokens
            else PyramidLevel(spec, finest * 2**i, channels)
            for i, (spec, width) in enumerate(zip(specs, hidden, strict=True))
        ]
        self.reassemble = nn.ModuleList(levels)
        self.fusions = nn.ModuleList(
            Fusion(channels, norm, align_corners, unit=deepest_unit or i < LEVELS - 1, bias=residual_bias)
            for i in range(LEVELS)
        )
        self.doubling = fusion_size == "double"
        self.mix = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()) if mix else nn.Identity()
        self.auxiliary: LabelsHead | None = None
        if auxiliary is not None:
            self.auxiliary = LabelsHead(channels, classes=auxiliary, hidden=channels, align_corners=align_corners)
        self.output = FeatureSpec(channels, max(1, round(finest / 2)))
        self.level_channels = [level.width for level in levels]
        self.fusion_channels = [channels] * LEVELS

    def forward(self, features: EncoderOutput) -> Float[Tensor, "b channels h w"] | DecoderOutput:
        *_, coarser, finest = self.fuse_levels(self.levels(features), features.adapters)
        if self.auxiliary is None or not self.training:
            return self.mix(finest)
        return DecoderOutput(self.mix(finest), {"auxiliary": self.auxiliary(coarser, features.image_size)})

    def levels(self, features: EncoderOutput) -> list[Tensor]:
        """Return the pyramid, finest first."""
        return [
            reassemble(features.maps[source], features.prefix[source], partial(adapt_level, features.adapters, level))
            for level, (source, reassemble) in enumerate(zip(self.sources, self.reassemble, strict=True))
        ]

    def fuse_levels(
        self, levels: list[Tensor], adapters: Sequence[MapAdapter] = ()
    ) -> Iterator[Float[Tensor, "b channels h w"]]:
        """Yield the output of each fusion, from the deepest to the finest."""
        finest = levels[0].shape[-2:]
        # Each fusion resizes to the next level's own size: an odd grid is not the double of its half.
        sizes = [(finest[0] * 2, finest[1] * 2), *((level.shape[-2], level.shape[-1]) for level in levels[:-1])]
        x = None
        for i, (fusion, level, size) in enumerate(zip(self.fusions[::-1], levels[::-1], sizes[::-1], strict=True)):
            x = fusion(level, x, None if self.doubling else size)
            for adapter in adapters:
                x = adapter.fusion(i, x)
            yield x


def adapt_level(adapters: Sequence[MapAdapter], level: int, x: Tensor) -> Tensor:
    for adapter in adapters:
        x = adapter.level(level, x)
    return x


class Reassemble(nn.Module):
    """Patch tokens as one level of the pyramid: readout, norm, 1x1, resize, 3x3."""

    def __init__(
        self, spec: FeatureSpec, stride: Fraction, hidden: int, channels: int, readout: Readout, norm: Norm
    ) -> None:
        super().__init__()
        self.readout = readout
        self.norm = build_norm(norm, spec.channels)
        self.project = nn.Conv2d(spec.channels, hidden, 1)
        self.resize = resize_layer(Fraction(spec.stride) / stride, hidden)
        self.conv = nn.Conv2d(hidden, channels, 3, padding=1, bias=False)
        self.width = hidden

    def forward(
        self, x: Float[Tensor, "b d gh gw"], prefix: Float[Tensor, "b p d"], adapt: Adapt
    ) -> Float[Tensor, "b c h w"]:
        return self.conv(adapt(self.resize(self.project(self.norm(self.readout(x, prefix))))))


class PyramidLevel(nn.Module):
    """A pyramid level from a map without class token: DPT-Hybrid's first two, Swin's four."""

    def __init__(self, spec: FeatureSpec, stride: Fraction, channels: int) -> None:
        super().__init__()
        self.resize = resize_layer(Fraction(spec.stride) / stride, spec.channels)
        self.conv = nn.Conv2d(spec.channels, channels, 3, padding=1, bias=False)
        self.width = spec.channels

    def forward(
        self, x: Float[Tensor, "b d _ _"], prefix: Float[Tensor, "b _ _"], adapt: Adapt
    ) -> Float[Tensor, "b c h w"]:
        return self.conv(adapt(self.resize(x)))


def resize_layer(factor: Fraction, channels: int) -> nn.Module:
    """Return a learned resize: transposed convolution for upsampling, strided convolution for downsampling. Raises
    ConfigError: a factor other than a power of two."""
    if factor == 1:
        return nn.Identity()
    if factor.denominator == 1:
        return nn.ConvTranspose2d(channels, channels, factor.numerator, stride=factor.numerator)
    if factor.numerator == 1:
        return nn.Conv2d(channels, channels, 3, stride=factor.denominator, padding=1)
    raise ConfigError(
        f"decoder 'dpt' cannot resize a map by {factor}; the strides of the feature maps must differ by whole factors."
    )


class Fusion(nn.Module):
    """Adds a level to the output of the deeper fusion, refines the sum and upsamples it to the next level's size.

    The deepest fusion has nothing to add; published files store a unit for it that is never used and not built here.
    """

    def __init__(self, channels: int, norm: Norm, align_corners: bool, *, unit: bool, bias: bool | None = None) -> None:
        super().__init__()
        self.align_corners = align_corners
        self.level = ResidualUnit(channels, norm, bias) if unit else None
        self.refine = ResidualUnit(channels, norm, bias)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(
        self, level: Float[Tensor, "b c _ _"], deeper: Float[Tensor, "b c _ _"] | None, size: tuple[int, int] | None
    ) -> Float[Tensor, "b c h w"]:
        """Return `size` of the result; None doubles the map."""
        if deeper is not None:
            level = upsample(level, (deeper.shape[-2], deeper.shape[-1]))
        x = level if self.level is None else self.level(level)
        if deeper is not None:
            x = x + deeper
        # Published code upsamples before the 1x1; the two commute, and this order costs a quarter.
        return upsample(self.out(self.refine(x)), size or (2 * x.shape[-2], 2 * x.shape[-1]), self.align_corners)


class ResidualUnit(nn.Module):
    """Residual unit: two 3x3 convolutions, each after a ReLU."""

    def __init__(self, channels: int, norm: Norm, bias: bool | None = None) -> None:
        super().__init__()
        bias = norm == "none" if bias is None else bias
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.norm1 = build_norm(norm, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.norm2 = build_norm(norm, channels)
        self.act = nn.ReLU(inplace=True)  # its input is not needed in the backward pass

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        inside = self.act(self.norm1(self.conv1(F.relu(x))))
        return x + self.norm2(self.conv2(inside))
