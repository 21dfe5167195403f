"""Losses of neighbouring frames (Monodepth2, Godard et al. 2019; SC-Depth, Bian et al. 2021). n images, h x w pixels,
colours in [0, 1]."""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from densevit.objectives.self_supervised.geometry import Image, Plane

C1, C2 = 0.01**2, 0.03**2  # of SSIM (Wang et al. 2004)
SSIM_WEIGHT = 0.85
WINDOW = 7  # of the census transform


def ssim_error(x: Image, y: Image) -> Image:
    """Return (1 - SSIM) / 2 of 3x3 windows, in [0, 1]; the border is reflected."""
    x, y = (F.pad(image, (1, 1, 1, 1), mode="reflect") for image in (x, y))
    mean_x, mean_y, mean_xy, mean_squares = (mean_3x3(image) for image in (x, y, x * y, x * x + y * y))
    product, squares = mean_x * mean_y, mean_x * mean_x + mean_y * mean_y
    similarity = (2 * product + C1) * (2 * (mean_xy - product) + C2)
    similarity = similarity / ((squares + C1) * (mean_squares - squares + C2))
    return ((1 - similarity) / 2).clamp(0, 1)


def mean_3x3(x: Float[Tensor, "n c _ _"]) -> Float[Tensor, "n c _ _"]:
    """Return the means of all whole 3x3 windows; by sums of shifted images, several times as fast as a pooling."""
    rows = x[..., :-2, :] + x[..., 1:-1, :] + x[..., 2:, :]
    return (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]) / 9


def photometric_error(x: Image, y: Image) -> Plane:
    """Return 0.85 (1 - SSIM) / 2 + 0.15 |x - y|, the mean over the colours."""
    error = SSIM_WEIGHT * ssim_error(x, y) + (1 - SSIM_WEIGHT) * (x - y).abs()
    return error.mean(1, keepdim=True)


def census_error(x: Image, y: Image) -> Plane:
    """Return the soft Hamming distance of census transforms, in [0, 1] (Meister et al. 2018): exposure cancels out."""
    squares = (census(x) - census(y)).square()
    return (squares / (0.1 + squares)).mean(1, keepdim=True)


def census(image: Image) -> Float[Tensor, "n window h w"]:
    """Return whether the neighbours in a 7x7 window are darker (-1) or brighter (1) than each pixel, softly."""
    gray = 255 * image.mean(1, keepdim=True)
    padded = F.pad(gray, [WINDOW // 2] * 4, mode="replicate")
    change = F.unfold(padded, WINDOW).view(len(image), -1, *image.shape[-2:]) - gray
    return change / (0.81 + change.square()).sqrt()


ERRORS: Mapping[str, Callable[[Image, Image], Plane]] = {"ssim": photometric_error, "census": census_error}


def matched_brightness(image: Image, target: Image, valid: Bool[Tensor, "n 1 h w"]) -> Image:
    """Return the image with mean and deviation of the target over valid pixels: one a and b per image of a x + b.

    Exposure changes both; neither is learned from, so no gradient passes through a and b.
    """
    weights = valid.float() / (valid.sum((1, 2, 3), keepdim=True) * image.shape[1]).clamp_min(1)
    moments = []
    for x in (image.detach(), target):
        mean = (x * weights).sum((1, 2, 3), keepdim=True)
        moments.append((mean, ((x - mean).square() * weights).sum((1, 2, 3), keepdim=True).sqrt()))
    (mean, deviation), (other_mean, other_deviation) = moments
    a = torch.where(deviation > 1e-3, other_deviation / deviation.clamp_min(1e-3), 1.0).clamp(0.5, 2)
    return a * (image - mean) + other_mean


def minimum(errors: Float[Tensor, "n s h w"], unmoved: Float[Tensor, "n s h w"] | None = None) -> tuple[
    Float[Tensor, "n h w"], Bool[Tensor, "n h w"]
]:  # fmt: skip
    """Return the least error over the sources, and where it is learned from.

    Args:
        errors: of the warped sources; infinite where one does not see the pixel.
        unmoved: of the sources as they are. Where one of them is least, the pixel does not move: it looks infinitely
            far away, or is an object at the camera's speed. Nothing is learned there (auto-masking).
    """
    least = errors.amin(1)
    still = torch.full_like(least, torch.inf) if unmoved is None else unmoved.amin(1)
    error = torch.minimum(least, still)
    return torch.where(error.isfinite(), error, 0.0), least < still


def geometric_difference(computed: Plane, sampled: Plane) -> Plane:
    """Return |a - b| / (a + b) of depths that the target's and the source's prediction give for one point."""
    return (computed - sampled).abs() / (computed + sampled).clamp_min(1e-6)


def smoothness(disparity: Plane, image: Image) -> Float[Tensor, ""]:
    """Return the mean first differences of disparity over its mean, less where the image has an edge."""
    disparity = disparity / (disparity.mean((2, 3), keepdim=True) + 1e-7)
    terms = [
        (disparity.diff(dim=axis).abs() * torch.exp(-image.diff(dim=axis).abs().mean(1, keepdim=True))).mean()
        for axis in (2, 3)
    ]
    return terms[0] + terms[1]


def masked_mean(x: Plane, mask: Bool[Tensor, "n 1 h w"]) -> Float[Tensor, ""]:
    """Return the mean over images of each one's mean over its mask: no image's depends on the others."""
    sums, counts = torch.where(mask, x, 0.0).sum((1, 2, 3)), mask.sum((1, 2, 3))
    return (sums / counts.clamp_min(1)).mean()
