"""Preprocess, run the model, resize back: the same few lines for prediction, validation and evaluation.

b images, h x w pixels, k numbers per pixel; images in [0, 1]. Device and gradient mode are the caller's. Only the model
computes in a lower precision; images and outputs are resized in fp32.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import nan
from operator import index
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from densevit.errors import DataError
from densevit.inference.camera import to_metres
from densevit.inference.tta import Outputs, SlidingWindow, merge_tta, scale_preprocessing
from densevit.model_card import HeadSpec
from densevit.model_inputs import NO_INPUTS, ModelInputs, crop_inputs, mirror_inputs, resize_inputs, uncalibrate_inputs
from densevit.ops.calibration import calibrate_head
from densevit.ops.resize import (
    KnownSteps,
    crop,
    crop_below,
    is_image_level,
    network_size,
    network_steps,
    pad_below,
    resize,
    unpadded_size,
)
from densevit.ops.resize_uint8 import resize_uint8
from densevit.output_kinds import OutputKind
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import Box, Size
from densevit.utils.device import Precision, autocast, upload

NO_HEADS: Mapping[str, HeadSpec] = MappingProxyType({})

PLAIN = OutputKind("", "an output without a head: nothing is done to it")

Network = Callable[..., Outputs]
"""A model, or what stands for one. Its attribute `input_names` says which inputs beside images it takes."""

# A 1 x 5000 image under `lower_bound 518` asks for 1.3 gigapixels; 33 megapixels are past every real use.
MAX_INPUT_PIXELS = 2**25


def forward(
    model: Network,
    image: Float[Tensor, "b 3 h w"],
    config: PreprocessConfig,
    multiple: int,
    inputs: ModelInputs = NO_INPUTS,
    *,
    device: torch.device | None = None,
    precision: Precision | None = None,
    box: Box | None = None,
    flip: bool = False,
    scales: Sequence[float] = (1.0,),
    heads: Mapping[str, HeadSpec] = NO_HEADS,
) -> Outputs:
    """Preprocess images, run the model, and resize its outputs to the size of the images, in fp32: b k h w
    per head, or b k 1 1 from a head for whole images. Raises DataError if the box does not fit, or a thin image would
    be too large.

    Args:
        multiple: the sides of the network's input are multiples of this.
        inputs: of the images, at their size.
        device: of the model, where the images are elsewhere.
        precision: of the model, by autocast; None leaves that to the caller.
        box: the model sees only this window; outside it every output is NaN.
        flip: average with the mirrored output for the mirrored image.
        scales: average over the image at these sizes, relative to its own.
        heads: their kinds say how outputs are mirrored, averaged and finished, their focal lengths and calibrations are
            applied; an output without an entry is left as it is.
    """
    h, w = image.shape[-2:]
    options: dict[str, Any] = {"device": device, "precision": precision, "flip": flip, "scales": scales, "heads": heads}
    if box is not None:
        y0, y1, x0, x1 = check_box(box, (h, w))
        inputs = crop_inputs(inputs, y0, x0, (y1 - y0, x1 - x0))
        inside = forward(model, image[..., y0:y1, x0:x1], config, multiple, inputs, **options)
        around = (x0, w - x1, y0, h - y1)
        return {name: y if is_image_level(y) else F.pad(y, around, value=nan) for name, y in inside.items()}
    kinds = defaultdict(lambda: PLAIN, {name: spec.output_kind for name, spec in heads.items()})
    if config.margin:  # reflections around the image, against seams at the border (ZoeDepth)
        top, left = (min(int((side / 2) ** 0.5 * config.margin), side - 1) for side in (h, w))
        padded = F.pad(image, (left, left, top, top), mode="reflect")
        inputs = crop_inputs(inputs, -top, -left, (padded.shape[-2], padded.shape[-1]))
        inside = forward(model, padded, replace(config, margin=0.0), multiple, inputs, **options)
        inside = {name: kinds[name].of_width(y, padded.shape[-1] / w) for name, y in inside.items()}
        return {name: y if is_image_level(y) else crop(y, (top, left), (h, w)) for name, y in inside.items()}
    flip = flip or config.flip
    if config.window is not None:
        model = SlidingWindow(model, config.window, config.stride)
    inputs = uncalibrate_inputs(inputs, heads)
    predictions = (
        forward_once(model, image, scaled, multiple, inputs, device, precision, mirrored, kinds, heads)
        for scaled in (config if scale == 1 else scale_preprocessing(config, scale, (h, w)) for scale in scales)
        for mirrored in (False, True)[: 1 + flip]
    )
    outputs = merge_tta(predictions, kinds) if flip or len(scales) > 1 else next(predictions)
    for name, spec in heads.items():
        if spec.calibration is not None:
            outputs |= calibrate_head(name, outputs, spec.calibration)
    outputs = {name: kinds[name].finished(y) for name, y in outputs.items()}
    if config.output_interpolation == "bicubic":  # which overshoots
        outputs |= {name: outputs[name].clamp(*spec.metres) for name, spec in heads.items() if spec.metres is not None}
    return outputs


def forward_once(
    model: Network,
    image: Float[Tensor, "b 3 h w"],
    config: PreprocessConfig,
    multiple: int,
    inputs: ModelInputs,
    device: torch.device | None,
    precision: Precision | None,
    mirrored: bool,
    kinds: Mapping[str, OutputKind],
    heads: Mapping[str, HeadSpec],
) -> Outputs:
    """Return one pass through the model; where `mirrored`, of the mirror image, and mirrored back."""
    x = preprocess(image, config, multiple)
    x = x if device is None or x.device == device else upload(x, device)
    size, input_size = (image.shape[-2], image.shape[-1]), (x.shape[-2], x.shape[-1])
    content = unpadded_size(size, config) or input_size
    inputs = crop_inputs(resize_inputs(inputs, size, content, config.align_corners), 0, 0, input_size)
    if mirrored:
        x, inputs = x.flip(-1), mirror_inputs(inputs, input_size[1])
    options: dict[str, Any] = {"output_size": size} if config.single_resize and config.window is None else {}
    with autocast(precision, x.device) if precision else nullcontext():
        taken = {name: inputs[name] for name in getattr(model, "input_names", ()) if name in inputs}
        outputs = model(x, taken, **options) if taken else model(x, **options)
    if "camera" in inputs:
        outputs = to_metres(outputs, inputs["camera"], heads)
    if mirrored:
        outputs = {name: kinds[name].mirrored(y.flip(-1)) for name, y in outputs.items()}
    if config.window is not None or content is not input_size:
        width = min(input_size[1], config.window[1] if config.window else input_size[1])
        outputs = {name: kinds[name].of_width(y, width / content[1]) for name, y in outputs.items()}
    return {name: resize_to_input(y.float(), size, config) for name, y in outputs.items()}


def preprocess(image: Float[Tensor, "b 3 h w"], config: PreprocessConfig, multiple: int) -> Float[Tensor, "b 3 _ _"]:
    """Return the image at the size of the network's input. Raises DataError if a thin image would become too large."""
    size = (image.shape[-2], image.shape[-1])
    if not isinstance(config, KnownSteps):
        check_network_size(size, config, multiple)
    options: dict[str, Any] = {"align_corners": config.align_corners, "antialias": config.antialias}
    for step in network_steps(size, config, multiple):
        if config.round_to_uint8:
            image = resize_uint8(image, step, config.interpolation, **options)
        else:
            image = resize(image, step, config.interpolation, opencv=True, **options)
    return pad_below(image, config)


def resize_to_input(output: Float[Tensor, "b k _ _"], size: Size, config: PreprocessConfig) -> Float[Tensor, "b k _ _"]:
    """Return the output at the image's size; one for the whole image is left as it is."""
    if is_image_level(output):
        return output
    output = crop_below(output, size, config)
    return resize(output, size, config.output_interpolation, align_corners=config.output_align_corners)


def check_network_size(size: Size, config: PreprocessConfig, multiple: int) -> None:
    """Raise DataError if a thin image would become too large."""
    (h, w), (height, width) = size, network_size(size, config, multiple)
    if height * width > max(MAX_INPUT_PIXELS, h * w):
        raise DataError(
            f"a {h}x{w} image would enter the network at {height}x{width} under its resize mode '{config.mode}'; "
            "that shape is too thin. Crop or pad the image first."
        )


def check_box(box: Any, size: Size) -> Box:
    """Return the box; raise DataError if it is none, or does not lie inside an image of `size`."""
    try:
        y0, y1, x0, x1 = map(index, box)
    except (TypeError, ValueError):
        raise DataError(f"the window {box!r} is none; it is four whole numbers, y0, y1, x0, x1.") from None
    h, w = size
    if not (0 <= y0 < y1 <= h and 0 <= x0 < x1 <= w):
        raise DataError(f"the window {y0}:{y1}, {x0}:{x1} does not lie inside an image of {h}x{w}.")
    return y0, y1, x0, x1
