"""`runtime: auto` for a known job: two images by torch, and where a conversion may pay, two by the other runtime."""

from collections import Counter
from collections.abc import Mapping
from time import perf_counter

import numpy as np
import torch

from densevit.inference.backends import auto
from densevit.inference.backends.auto import AutoRuntimeModule
from densevit.inference.predictor import Predictor
from densevit.ops.camera import Camera
from densevit.ops.resize import network_size
from densevit.structures import Size


def choose_runtime(predictor: Predictor, sizes: Mapping[Size, int]) -> tuple[Predictor, str]:
    """Choose what computes fastest for a number of images of each size (h, w), for a predictor with `runtime="auto"`.

    Without this call torch computes until as many images of one size again would pay for the conversion. Returns the
    predictor that computes so, and what was taken and why, in one line; empty for another `runtime`.
    """
    if not isinstance(predictor.network, AutoRuntimeModule) or not sizes:
        return predictor, ""
    name, share, start = predictor.network.name, predictor.network.share, predictor.network.start
    inputs = Counter[tuple[Size, Size | None]]()
    for size, count in sizes.items():
        inputs[network_input(predictor, size)] += count
    (typical, _), *_ = Counter(sizes).most_common(1)
    tried: dict[str, Predictor] = {}

    def seconds(runtime: str) -> float:
        tried[runtime] = predictor.with_options(runtime=runtime)
        return seconds_per_image(tried[runtime], largest_part(predictor, typical))

    choice = auto.choose(name, inputs, start, share, seconds)
    return tried[choice.name], f"runtime auto: {choice.name} ({choice.reason})"


def network_input(predictor: Predictor, size: Size) -> tuple[Size, Size | None]:
    """Return the size at which an image of this size enters the network; and its own, where the model itself resizes
    back."""
    config, size = predictor.card.resize, largest_part(predictor, size)
    inside = config.window or network_size(size, config, predictor.card.multiple)
    return inside, size if config.single_resize else None


def largest_part(predictor: Predictor, size: Size) -> Size:
    """Return the size of a tile, where an image of this size is cut into tiles; else its own."""
    tiling = predictor.tiling
    return size if tiling is None or max(size) <= tiling.side else (tiling.side, tiling.side)


def seconds_per_image(predictor: Predictor, size: Size) -> float:
    """Measure one image of this size, after one that is not counted."""
    image = np.zeros((1, *size, 3), np.uint8)
    camera = Camera.centred(torch.full((1,), float(max(size))), size).values
    inputs = {"camera": camera} if predictor.card.needs_camera else {}
    predictor.predict_batch(image, inputs=inputs)
    begun = perf_counter()
    predictor.predict_batch(image, inputs=inputs)
    return perf_counter() - begun
