"""A sparse depth map as an input of the network (Prompt Depth Anything, Lin et al. 2025; Prior Depth Anything, Wang et
al. 2025).

b images, c channels, h x w pixels of the network's input, gh x gw cells of a map.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from densevit.config.schema import TrainConfig
from densevit.config.validation import training_transforms
from densevit.errors import ConfigError
from densevit.model_card import HeadSpec
from densevit.model_inputs import InputKind, ModelInputs, register_input
from densevit.models.conditioning.base import CONDITIONINGS, ConditionedParts, Conditioning, FirstPass
from densevit.ops.calibration import uncalibrate
from densevit.ops.camera import Camera, in_head_unit
from densevit.ops.points import draw_points, resize_points
from densevit.structures import Batch, EncoderOutput, MapAdapter, Size

VALIDATION_POINTS = 500  # of the ground truth, given to a model in the validation during training
DRAWS_POINTS = "sparse_depth"  # the transform that draws what a model learns from
CHANNELS = 6  # that describe the points at each cell, see `describe`
DENSITIES = (1, 4, 16)  # pixels around, over which the share of measured ones is averaged
PRIOR = 0.1  # of a cell's mean: how many points the value of the coarser level counts


@dataclass(frozen=True)
class PointMaps:
    """What the blocks see of the measured points.

    Attributes:
        maps: at the size of the padded image.
        any: which images have points; the others are predicted as without.
    """

    maps: Float[Tensor, "b k h w"]
    any: Bool[Tensor, "b"]


class PointsInput(InputKind):
    """Measured metres, 0 where none: b 1 h w."""

    exported = "points"
    in_tiles = False
    size_dependent = "how far it spreads measured points depends on the size"

    def of_batch(self, batch: Batch) -> Float[Tensor, "b 1 h w"]:
        """Return zeros where the batch has none, so that the blocks belong to the graph of every step."""
        points = super().of_batch(batch)
        return torch.zeros_like(batch.image[:, :1]) if points is None else points

    def for_validation(self, batch: Batch) -> Batch:
        if batch.depth is None or batch.valid is None:
            return batch
        metric = [kind == "metric" for kind in batch.depth_kinds] or [True] * len(batch)
        maps = zip(batch.depth[:, 0].cpu().numpy(), batch.valid[:, 0].cpu().numpy(), strict=True)
        drawn = [
            draw_points(depth, valid & usable, VALIDATION_POINTS, np.random.default_rng(index))
            for (depth, valid), usable, index in zip(maps, metric, batch.indices, strict=True)
        ]
        points = torch.from_numpy(np.stack(drawn))[:, None].to(batch.depth)
        return replace(batch, inputs={**batch.inputs, self.name: points}, valid=batch.valid & (points == 0))

    def cropped(self, x: Tensor, top: int, left: int, size: Size) -> Tensor:
        bottom, right = size[0] - x.shape[-2] + top, size[1] - x.shape[-1] + left
        return F.pad(x, (-left, right, -top, bottom))

    def resized(self, x: Tensor, before: Size, after: Size, align_corners: bool) -> Tensor:
        return resize_points(x, after)

    def mirrored(self, x: Tensor, width: int) -> Tensor:
        return x.flip(-1)

    def uncalibrated(self, x: Tensor, heads: Mapping[str, HeadSpec]) -> Tensor:
        calibration = next((spec.calibration for spec in heads.values() if spec.kind == "metric"), None)
        return x if calibration is None else torch.where(x > 0, uncalibrate(x, calibration), 0)

    def example(self, count: int, size: Size) -> Tensor:
        return torch.zeros(count, *size)

    def trials(self, count: int, size: Size) -> Sequence[Tensor]:
        """Return the points at a hundredth of the pixels of every second image; and none."""
        rng = np.random.default_rng(0)
        depth = rng.uniform(1, 5, (count, *size)).astype(np.float32)
        share = -(-size[0] * size[1] // 100)
        some = np.stack([draw_points(one, one > 0, 0 if i % 2 else share, rng) for i, one in enumerate(depth)])
        return [torch.from_numpy(some), self.example(count, size)]

    def from_file(self, x: Tensor, size: Size) -> Tensor:
        return x[:, None]

    def to_file(self, x: Tensor) -> Tensor:
        return x[:, 0]

    def describe(self, count: object, h: object, w: object) -> str:
        return f"float32 {count} x {h} x {w}, measured metres, 0 where none"


register_input(PointsInput("points"))


@CONDITIONINGS.register("points")
class Points(Conditioning):
    """Blocks after the fusions of `model.decoder` that take depth measured at some points.

    The model predicts without points first. What it was off by at the points is spread over the image, and the blocks
    see that beside the decoder's own maps: learned completion of a correction, which follows the edges of the image.
    """

    input = "points"

    def __init__(self, parts: ConditionedParts, *, hidden: Annotated[int, Field(ge=1, lt=2**32)] = 32) -> None:
        """Raise ConfigError: the decoder has no fusions, or none of its heads gives metres.

        Args:
            hidden: channels of the convolutions within.
        """
        super().__init__()
        if not parts.decoder.fusion_channels:
            raise ConfigError("conditioning: model.decoder has no fusions to put blocks after; 'dpt' has.")
        metric = [name for name, head in parts.heads.items() if head.output.kind == "metric"]
        if not metric:
            raise ConfigError("conditioning: points are metres, and no head of model.decoder gives any; 'metric' does.")
        self.head = metric[0]
        self.focal = parts.heads[self.head].output.focal
        self.blocks = nn.ModuleList(PointsBlock(width, hidden) for width in parts.decoder.fusion_channels)

    @property
    def uses(self) -> tuple[str, ...]:
        return (self.input,) if self.focal is None else (self.input, "camera")

    @classmethod
    def incompatible(cls, run: TrainConfig) -> Iterator[str]:
        if not any(transform.get("type") == DRAWS_POINTS for _, transform in training_transforms(run.data)):
            yield f"learns from points that a transform draws; add {{type: {DRAWS_POINTS}}} to data.transforms."
        if run.parallel == "fsdp":
            yield "needs parallel ddp; batches with and without points would not run in step."

    def forward(self, features: EncoderOutput, inputs: ModelInputs, first_pass: FirstPass) -> EncoderOutput:
        points = inputs[self.input]
        if self.focal is not None:
            points = in_head_unit(points, Camera(inputs["camera"]), self.focal)
        with torch.no_grad():
            maps = describe(points, first_pass(features, self.head))
        return replace(features, adapters=(*features.adapters, PointsAdapter(self.blocks, maps)))


@dataclass(frozen=True)
class PointsAdapter(MapAdapter):
    """Adds to each fusion what the points tell; images without points keep theirs to the bit."""

    blocks: nn.ModuleList
    points: PointMaps

    def fusion(self, index: int, x: Tensor) -> Tensor:
        maps = F.interpolate(self.points.maps, size=(x.shape[-2], x.shape[-1]), mode="area").to(x.dtype)
        return torch.where(self.points.any[:, None, None, None], x + self.blocks[index](x, maps), x)


class PointsBlock(nn.Module):
    """Three 3x3 convolutions of a decoder's map and the points; the last begins at zero."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels + CHANNELS, hidden, 3, padding=1)
        self.conv2 = nn.Conv2d(hidden, hidden, 3, padding=1)
        self.out = nn.Conv2d(hidden, channels, 3, padding=1)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)  # type: ignore[arg-type]

    def forward(self, x: Float[Tensor, "b c gh gw"], points: Float[Tensor, "b k gh gw"]) -> Float[Tensor, "b c gh gw"]:
        hidden = F.relu(self.conv1(torch.cat([x, points], 1)))
        y: Tensor = self.out(F.relu(self.conv2(hidden)))
        return y


def describe(points: Float[Tensor, "b 1 h w"], depth: Float[Tensor, "b 1 h w"]) -> PointMaps:
    """
    Args:
        points: measured depth, 0 where none, in the unit of `depth`.
        depth: predicted without points.

    Returns:
        six channels: the error of the prediction in log depth, spread from the points; measured log depth, spread
        likewise, minus the predicted one; predicted log depth; and how dense the points are around, on three scales.
    """
    points, depth = points.float(), depth.float()
    valid = points > 0
    predicted = depth.clamp_min(1e-6).log()
    measured = points.clamp_min(1e-6).log()
    values = torch.cat([measured - predicted, measured], 1)
    spread = spread_points(values, valid)
    counts = valid.float()
    size = (points.shape[-2], points.shape[-1])
    densities = [F.interpolate(density(counts, reach), size=size, mode="bilinear") for reach in DENSITIES]
    maps = torch.cat([spread[:, :1], spread[:, 1:] - predicted, predicted, *(one.sqrt() for one in densities)], 1)
    return PointMaps(maps, valid.flatten(1).any(1))


def density(valid: Float[Tensor, "b 1 h w"], reach: int) -> Float[Tensor, "b 1 _ _"]:
    return F.avg_pool2d(valid, min(reach, *valid.shape[-2:]), ceil_mode=True, count_include_pad=False)


def spread_points(values: Float[Tensor, "b k h w"], valid: Bool[Tensor, "b 1 h w"]) -> Float[Tensor, "b k h w"]:
    """Return the values everywhere from those at single pixels: means over cells of growing size, each cell's mean
    drawn to that of the cells around it where it has few points (push-pull, Gortler et al. 1996). 0 where an image has
    no points."""
    sums, counts = values * valid, valid.float()
    levels = [(sums, counts)]
    while max(sums.shape[-2:]) > 1:
        sums, counts = (4 * F.avg_pool2d(pad_even(x), 2) for x in (sums, counts))
        levels.append((sums, counts))
    sums, counts = levels.pop()
    filled = sums / counts.clamp_min(1)
    for sums, counts in reversed(levels):
        coarse = F.interpolate(filled, size=(sums.shape[-2], sums.shape[-1]), mode="bilinear")
        filled = (sums + PRIOR * coarse) / (counts + PRIOR)
    return filled


def pad_even(x: Float[Tensor, "b k h w"]) -> Float[Tensor, "b k _ _"]:
    return F.pad(x, (0, x.shape[-1] % 2, 0, x.shape[-2] % 2))
