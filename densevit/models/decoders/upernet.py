"""UPerNet (Xiao et al. 2018): pyramid pooling of the deepest level and a feature pyramid, as mmseg has it for ViTs."""

from fractions import Fraction
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.decoders.base import DECODERS, Decoder, DecoderOutput
from densevit.models.heads.segmentation import LabelsHead
from densevit.models.layers import Classes, Norm, build_norm, conv_block, resize_to_first, upsample
from densevit.structures import EncoderOutput, FeatureSpec

Positive = Annotated[int, Field(gt=0)]
LEVELS = 4
AUXILIARY_CHANNELS = 256  # of mmseg's FCN head


@DECODERS.register("upernet")
class UPerNet(Decoder):
    """Pyramid pooling, a feature pyramid, and a convolution over all levels at the size of the finest.

    The maps of a plain ViT become levels of 1/4, 1/8, 1/16 and 1/32 for patches of 16, by transposed convolutions and
    max pooling (mmseg's Feature2Pyramid); those of a pyramid encoder are taken as they are.
    """

    def __init__(
        self,
        features: list[FeatureSpec],
        prefix_tokens: int,
        *,
        channels: Positive = 512,
        bins: Annotated[tuple[Positive, ...], Field(min_length=1)] = (1, 2, 3, 6),
        norm: Norm = "batch",
        auxiliary: Classes = None,
    ) -> None:
        """Raise ConfigError: more than four feature maps, or strides that are no powers of two apart.

        Args:
            channels: channels of every level and of the output.
            bins: sides of the grids to which the deepest level is pooled.
            norm: after every convolution; `batch` needs at least two images in a training batch of one device.
            auxiliary: classes of an auxiliary classifier in training, on the third level; needs the loss `auxiliary`.
        """
        super().__init__()
        if not 1 <= len(features) <= LEVELS:
            raise ConfigError(f"decoder 'upernet' takes 1 to {LEVELS} feature maps, not {len(features)}.")
        self.sources = [level * len(features) // LEVELS for level in range(LEVELS)]
        specs = [features[source] for source in self.sources]
        finest = min(Fraction(features[-1].stride, 4), Fraction(features[0].stride))
        self.rescale = nn.ModuleList(
            rescale_layer(Fraction(spec.stride) / (finest * 2**i), spec.channels, norm) for i, spec in enumerate(specs)
        )
        width = specs[-1].channels
        self.bins = bins
        self.pooled = nn.ModuleList(conv_block(width, channels, 1, norm) for _ in bins)
        self.deepest = conv_block(width + len(bins) * channels, channels, 3, norm)
        self.laterals = nn.ModuleList(conv_block(spec.channels, channels, 1, norm) for spec in specs[:-1])
        self.smooth = nn.ModuleList(conv_block(channels, channels, 3, norm) for _ in specs[:-1])
        self.fuse = conv_block(LEVELS * channels, channels, 3, norm)
        self.auxiliary: LabelsHead | None = None
        if auxiliary is not None:
            self.auxiliary = LabelsHead(specs[2].channels, classes=auxiliary, hidden=AUXILIARY_CHANNELS)
        self.output = FeatureSpec(channels, max(1, round(finest)))

    def forward(self, features: EncoderOutput) -> Float[Tensor, "b channels h w"] | DecoderOutput:
        *levels, deepest = [
            rescale(features.maps[source]) for source, rescale in zip(self.sources, self.rescale, strict=True)
        ]
        x = self.pool(deepest)
        outputs = [x]
        for level, lateral, smooth in zip(levels[::-1], self.laterals[::-1], self.smooth[::-1], strict=True):
            x = lateral(level) + upsample(x, (level.shape[-2], level.shape[-1]))
            outputs.append(smooth(x))
        fused = self.fuse(torch.cat(resize_to_first(outputs[::-1]), 1))
        if self.auxiliary is None or not self.training:
            return fused
        return DecoderOutput(fused, {"auxiliary": self.auxiliary(levels[2], features.image_size)})

    def pool(self, x: Float[Tensor, "b d h w"]) -> Float[Tensor, "b channels h w"]:
        """Return the pyramid pooling (PSPNet, Zhao et al. 2017)."""
        pooled = [block(adaptive_mean(x, side)) for block, side in zip(self.pooled, self.bins, strict=True)]
        return self.deepest(torch.cat(resize_to_first([x, *pooled]), 1))


def rescale_layer(factor: Fraction, channels: int, norm: Norm) -> nn.Module:
    """Return the max pooling, or transposed convolutions with norm and GELU between; odd maps keep their last cells."""
    if factor == 1:
        return nn.Identity()
    if factor.numerator == 1:
        return nn.MaxPool2d(factor.denominator, ceil_mode=True)
    doublings = factor.numerator.bit_length() - 1
    if factor != 2**doublings:
        raise ConfigError(f"decoder 'upernet' cannot resize a map by {factor}; strides must be powers of two apart.")
    layers: list[nn.Module] = [nn.ConvTranspose2d(channels, channels, 2, stride=2)]
    for _ in range(doublings - 1):
        layers += [build_norm(norm, channels), nn.GELU(), nn.ConvTranspose2d(channels, channels, 2, stride=2)]
    return nn.Sequential(*layers)


def adaptive_mean(x: Float[Tensor, "b c h w"], side: int) -> Float[Tensor, "b c side side"]:
    """Return `adaptive_avg_pool2d` by two products, which ONNX has for sizes that `side` does not divide and for any
    size."""
    with torch.autocast(x.device.type, enabled=False):
        rows, columns = (cell_weights(cells, side, x.device) for cells in x.shape[-2:])
        return (rows @ x.float() @ columns.T).to(x.dtype)


def cell_weights(cells: int, bins: int, device: torch.device) -> Float[Tensor, "bins cells"]:
    """Return the share of each cell in the mean of each bin; neighbouring bins share a cell that the border cuts."""
    numbers, at = torch.arange(bins, device=device)[:, None], torch.arange(cells, device=device)
    start = torch.div(numbers * cells, bins, rounding_mode="floor")
    end = torch.div((numbers + 1) * cells + bins - 1, bins, rounding_mode="floor")
    return ((at >= start) & (at < end)).float() / (end - start)
