"""Each frame of a clip beside its neighbours, moved into it by depth and motion. n images, h x w pixels."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from densevit.objectives.self_supervised.geometry import (
    FramePairs,
    Image,
    Motion,
    Plane,
    inside,
    project,
    returns,
    sample,
)
from densevit.objectives.self_supervised.photometric import (
    ERRORS,
    geometric_difference,
    masked_mean,
    matched_brightness,
    minimum,
)


@dataclass(frozen=True)
class CompareOptions:
    """Which pixels count, and how they are compared; see `SelfSupervised`.

    `weighted`: less where the depths of two views disagree (SC-Depth).
    """

    auto_mask: bool = True
    occlusion: bool = False
    brightness: bool = False
    weighted: bool = False
    similarity: str = "ssim"


@dataclass(frozen=True)
class Views:
    """What comparing each frame with its neighbours gives.

    Attributes:
        error: the least photometric error over the neighbours, 0 where none sees the pixel.
        moving: where it is learned from.
        difference: mean geometric difference.
    """

    error: Float[Tensor, "n h w"]
    moving: Bool[Tensor, "n h w"]
    difference: Float[Tensor, ""]


def compare(
    image: Image,
    depth: Plane,
    camera: Float[Tensor, "n 3 3"],
    motion: Motion,
    known: Bool[Tensor, "pairs 1 1 1"],
    pairs: FramePairs,
    options: CompareOptions,
) -> Views:
    """Compare each image of a batch with its neighbours.

    Args:
        motion: of each pair.
        known: whether camera and motion of a pair are.
    """
    targets, sources = pairs.targets, pairs.sources
    pixels, z = project(depth[targets], motion, camera[targets], camera[sources])
    seen = inside(pixels, z) & known
    if options.occlusion:
        seen = seen & returns(pixels.detach(), pairs.reversed(pixels.detach()))
    target, source = image[targets], image[sources]
    warped = sample(source, pixels)
    if options.brightness:
        warped, source = matched_brightness(warped, target, seen), matched_brightness(source, target, known & (z == z))
    difference = geometric_difference(z.clamp_min(1e-3), sample(depth[sources], pixels))
    errors, unmoved = (
        pairs.by_target(
            torch.where(mask, ERRORS[options.similarity](x, target), torch.inf)[:, 0], len(image), torch.inf
        )
        for x, mask in ((warped, seen), (source, known))
    )
    error, moving = minimum(errors, unmoved if options.auto_mask else None)
    if options.weighted:
        agreement = pairs.by_target(1 - difference.detach()[:, 0], len(image), 1.0)
        chosen = torch.where(errors[:, 0] <= errors[:, 1], agreement[:, 0], agreement[:, 1])
        error = error * torch.where(moving, chosen, 1.0)
    return Views(error, moving, masked_mean(difference, seen))
