"""How images reach the network: part of every model card and of a config's `model.resize`."""

from dataclasses import dataclass
from math import inf
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class PreprocessConfig:
    """How an image is resized and padded for the network, and how the prediction is resized back.

    Modes: `native` only pads; the others round sides to multiples of the card's `multiple`, apart from `shortest`.
    lower_bound: keep the aspect ratio, no side under `size` (Depth Anything); upper_bound: no side over it; minimal:
    keep the aspect ratio, by the side that changes less (MiDaS, DPT); shortest: keep the aspect ratio, the shorter side
    becomes `size`, without rounding (torchvision); longest: keep the aspect ratio, the longer side becomes `size`, then
    each side is resized to the nearest multiple (Depth Anything 3); padded: keep the aspect ratio, no side over `size`,
    without rounding, then pad with black on the right and below (EoMT); fixed: resize to exactly `size`.
    """

    mode: Literal["native", "lower_bound", "upper_bound", "minimal", "shortest", "longest", "fixed", "padded"] = (
        "native"
    )
    """How the input size is chosen."""
    size: tuple[int, int] | None = None
    """Height and width that `mode` refers to."""
    interpolation: Literal["bilinear", "bicubic", "area", "adaptive"] = "bicubic"
    """How the image is resized; adaptive: area to shrink, bicubic to enlarge."""
    align_corners: bool = False
    """Resize the image with aligned corners; bilinear and bicubic only."""
    antialias: bool = False
    """Low-pass filter before the image shrinks, as PIL and Hugging Face do; bilinear and bicubic only."""
    round_to_uint8: bool = False
    """Round the resized image to 8 bits, as libraries that resize bytes do."""
    padding: Literal["crop", "stretch"] = "crop"
    """Crop the padding off the prediction, or resize all of the prediction to the image."""
    single_resize: bool = False
    """Resize once from the decoder's map to the image's size, not twice (DINOv3)."""
    output_interpolation: Literal["bilinear", "bicubic", "nearest"] = "bilinear"
    """How the prediction is resized."""
    output_align_corners: bool = False
    """Resize the prediction with aligned corners."""
    window: tuple[int, int] | None = None
    """Height and width of sliding windows over the resized image; default: no windows."""
    stride: tuple[int, int] | None = None
    """Step of the windows down and across; default: as few windows as cover the image, evenly spread (EoMT)."""
    margin: float = 0.0
    """The image is first padded by reflection, margin * sqrt(side / 2) pixels on both ends."""
    flip: bool = False
    """Average the prediction with that of the mirrored image."""


def resize_problems(rule: PreprocessConfig) -> list[str]:
    """Return what is wrong with the options, with the config's keys."""
    found = []
    if rule.mode != "native" and not (rule.size and min(rule.size) > 0):
        found.append(f"model.resize.size: mode '{rule.mode}' needs two sides over 0, got {rule.size}.")
    if rule.interpolation not in ("bilinear", "bicubic"):
        given = [key for key in ("align_corners", "antialias") if getattr(rule, key)]
        found += [f"model.resize.{key}: for bilinear and bicubic, not for '{rule.interpolation}'." for key in given]
    if rule.round_to_uint8 and rule.align_corners:
        found.append("model.resize.align_corners: not with round_to_uint8, which resizes as OpenCV and PIL do.")
    if rule.output_align_corners and rule.output_interpolation == "nearest":
        found.append("model.resize.output_align_corners: for bilinear and bicubic, not for 'nearest'.")
    if not 0 <= rule.margin < inf:
        found.append(f"model.resize.margin: 0 or more, got {rule.margin:g}.")
    if rule.stride is not None and rule.window is None:
        found.append("model.resize.stride: there is no model.resize.window to move by it.")
    if rule.window is not None:
        stride = rule.stride or rule.window
        if min(*rule.window, *stride) < 1 or any(step > side for step, side in zip(stride, rule.window, strict=True)):
            found.append(f"model.resize.stride: between 1 and the sides of the window, got {stride} for {rule.window}.")
    return found
