"""The Dense Prediction Transformer's decoder (Ranftl et al. 2021): taps become a pyramid, fused from deep to shallow.

b images, c channels, h x w cells of a level, gh x gw tokens.
"""

from fractions import Fraction
from typing import Annotated, Literal

import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.decoder import DECODERS, Decoder
from densevit.models.decoders.readout import READOUTS, Readout
from densevit.models.norms import Norm, build_norm
from densevit.models.projection import upsample
from densevit.structures import Features, FeatureSpec

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
        readout: Literal["ignore", "add", "project"] = "ignore",
        norm: Norm = "none",
        align_corners: bool = True,
    ) -> None:
        """
        Args:
            channels: of every fusion and of the output; Depth Anything has 64, 128, 256 for ViT-S, B, L.
            hidden: channels of the four levels before fusion; D/8, D/4, D/2, D unless given.
            readout: what becomes of the class token: dropped, added to every patch, or mixed in by a projection.
            norm: inside the residual units; none in published depth models, batch in DPT's segmentation.
            align_corners: of all upsampling here, as published.

        Raises:
            ConfigError: more than four taps, or a class token asked of an encoder that has none.
        """
        super().__init__()
        if not 1 <= len(features) <= LEVELS:
            raise ConfigError(f"decoder 'dpt' takes 1 to {LEVELS} taps, not {len(features)}.")
        self.sources = [level * len(features) // LEVELS for level in range(LEVELS)]
        specs = [features[source] for source in self.sources]
        hidden = hidden or tuple(max(spec.channels // 2 ** (3 - i), 1) for i, spec in enumerate(specs))
        finest = Fraction(features[-1].stride, 4)
        self.reassemble = nn.ModuleList(
            Reassemble(spec, finest * 2**i, width, channels, READOUTS[readout](spec.channels, prefix_tokens))
            for i, (spec, width) in enumerate(zip(specs, hidden, strict=True))
        )
        self.fusions = nn.ModuleList(
            Fusion(channels, norm, align_corners, deepest=i == LEVELS - 1) for i in range(LEVELS)
        )
        self.output = FeatureSpec(channels, max(1, round(finest / 2)))

    def forward(self, features: Features) -> Float[Tensor, "b channels h w"]:
        levels = [
            reassemble(features.maps[source], features.prefix[source])
            for source, reassemble in zip(self.sources, self.reassemble, strict=True)
        ]
        finest = levels[0].shape[-2:]
        # Each fusion leaves the map at the next level's own size: odd grids do not survive halving and doubling.
        sizes = [(finest[0] * 2, finest[1] * 2), *((level.shape[-2], level.shape[-1]) for level in levels[:-1])]
        *finer, x = levels
        x = self.fusions[-1](x, None, sizes[-1])
        for fusion, level, size in zip(self.fusions[-2::-1], finer[::-1], sizes[-2::-1], strict=True):
            x = fusion(x, level, size)
        return x


class Reassemble(nn.Module):
    """A tap's tokens as one level of the pyramid: readout, 1x1, resize, 3x3."""

    def __init__(self, spec: FeatureSpec, stride: Fraction, hidden: int, channels: int, readout: Readout) -> None:
        super().__init__()
        self.readout = readout
        self.project = nn.Conv2d(spec.channels, hidden, 1)
        self.resize = resizing(Fraction(spec.stride) / stride, hidden)
        self.conv = nn.Conv2d(hidden, channels, 3, padding=1, bias=False)

    def forward(self, x: Float[Tensor, "b d gh gw"], prefix: Float[Tensor, "b p d"]) -> Float[Tensor, "b c h w"]:
        return self.conv(self.resize(self.project(self.readout(x, prefix))))


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

    def __init__(self, channels: int, norm: Norm, align_corners: bool, *, deepest: bool) -> None:
        super().__init__()
        self.align_corners = align_corners
        self.level = None if deepest else ResidualUnit(channels, norm)
        self.refine = ResidualUnit(channels, norm)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(
        self, x: Float[Tensor, "b c _ _"], level: Float[Tensor, "b c _ _"] | None, size: tuple[int, int]
    ) -> Float[Tensor, "b c h w"]:
        if self.level is not None:
            x = x + self.level(level)
        # Published code upsamples first; a 1x1 commutes with that, and costs a quarter here.
        return upsample(self.out(self.refine(x)), size, self.align_corners)


class ResidualUnit(nn.Module):
    """Two 3x3 convolutions before which ReLU acts, around a shortcut."""

    def __init__(self, channels: int, norm: Norm) -> None:
        super().__init__()
        bias = norm == "none"
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.norm1 = build_norm(norm, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=bias)
        self.norm2 = build_norm(norm, channels)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return x + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(F.relu(x))))))
