"""Compares the outputs of an exported file with those of torch. b images, h x w pixels, k numbers per pixel."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jaxtyping import UInt8
from torch import nn

from densevit.errors import ConfigError, first_line
from densevit.inference.backends.onnx_runtimes import OnnxRuntime, Run
from densevit.inference.onnx.metadata import OnnxExportOptions, file_inputs
from densevit.inference.predictor import Predictor
from densevit.model_card import ModelCard
from densevit.structures import IGNORE, Size

TOLERANCE = 1e-4  # of the largest value
TOLERANCES = {"fp32": TOLERANCE, "fp16": 2e-2}

Images = UInt8[np.ndarray, "b h w 3"]


def verify_onnx(
    path: Path, predictor: Predictor, sizes: Sequence[Size], options: OnnxExportOptions
) -> dict[str, float]:
    """See `errors_against_torch`. A file for any number of images is tried with one, and of the first size three.
    `sizes`: of the images. Raises ConfigError: ONNX Runtime does not take it."""
    run = OnnxRuntime().open(path, "fp32")
    cases = [(options.batch or 1, size) for size in sizes] + ([(3, sizes[0])] if options.batch is None else [])
    return errors_against_torch(lambda *arrays: run_onnx(run, *arrays), predictor, cases, options)


def torch_predictor(model: nn.Module, card: ModelCard, options: OnnxExportOptions) -> Predictor:
    """Return what the outputs of a file with these options shall be."""
    box = options.box
    window = None if box is None else lambda h, w: box
    predictor = Predictor(model, card, device="cpu", precision="fp32", flip=options.flip, window=window)
    return predictor.with_options(camera=options.camera)


def errors_against_torch(
    run: Callable[..., Sequence[np.ndarray]],
    predictor: Predictor,
    cases: Sequence[tuple[int, Size]],
    options: OnnxExportOptions,
) -> dict[str, float]:
    """Return the largest difference of each head, as a share of the largest value; `inf` where shapes or NaNs differ.
    `run`: the inputs of the file -> its outputs, in the order of the heads; `cases`: number of images at once, and
    their size.
    """
    errors: dict[str, float] = dict.fromkeys(predictor.card.outputs, 0.0)
    kinds = file_inputs(predictor.card, options)
    for count, size in cases:
        images = test_images(size, count)
        pixels = images.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255) if options.floats else images
        for more in product(*(kind.trials(count, size) for kind in kinds)):
            inputs = {kind.name: kind.from_file(x, size) for kind, x in zip(kinds, more, strict=True)}
            expected = predictor.start(images, inputs=inputs).read()
            outputs = run(pixels, *(x.numpy() for x in more))
            for (name, spec), ours in zip(predictor.card.outputs.items(), outputs, strict=True):
                kind, theirs = spec.output_kind, expected[name]
                theirs = theirs[..., 0, 0] if kind.image_level else theirs
                ids = options.argmax and kind.has_classes and not kind.image_level
                errors[name] = max(errors[name], (error_of_ids if ids else error_of_values)(ours, theirs))
    return errors


def check_errors(errors: Mapping[str, float], tolerance: float, what: str, advice: str) -> None:
    """Raise ConfigError if the largest of the errors is over the tolerance, or not a number. The message says that
    `what` differs, and gives `advice`."""
    worst = max(errors, key=lambda name: errors[name])
    if not errors[worst] <= tolerance:
        raise ConfigError(
            f"{worst}: the {what} is not kept: its largest difference from PyTorch is {errors[worst]:.1e}, relative to "
            f"the largest value, over {tolerance:g}. {advice}"
        )


def run_onnx(run: Run, images: np.ndarray, *more: np.ndarray) -> list[np.ndarray]:
    """Raise ConfigError: ONNX Runtime does not take this number of images, or this size."""
    try:
        return run(images, *more)
    except Exception as error:  # its dozen error classes have no common base
        reason = first_line(error)
        shape = " x ".join(map(str, images.shape))
        raise ConfigError(f"ONNX Runtime does not run the exported graph on images of {shape}: {reason}") from error


def test_images(size: Size, count: int) -> Images:
    """Return a photograph and a noisy gradient, alternating."""
    from skimage import data

    sample: Any = data.astronaut
    h, w = size
    draw: Any = np.random.default_rng(0)
    rows, columns = np.mgrid[:h, :w] / np.array([h, w]).reshape(2, 1, 1)
    slope = np.stack([255 * rows, 200 * columns, 255 - 200 * rows * columns], -1) + draw.normal(0, 20, (h, w, 3))
    photograph = cv2.resize(sample(), (w, h), interpolation=cv2.INTER_AREA)
    both = [photograph, slope.clip(0, 255).astype(np.uint8)]
    return np.stack([both[i % 2] for i in range(count)])


def error_of_values(ours: np.ndarray, theirs: np.ndarray) -> float:
    if ours.shape != theirs.shape or not np.array_equal(finite := np.isfinite(theirs), np.isfinite(ours)):
        return inf
    largest = np.abs(theirs[finite]).max(initial=0.0)
    error = np.abs(ours - theirs)[finite].max(initial=0.0)
    return float(error / largest) if largest else float(error)


def error_of_ids(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return how much lower torch's logit of the class in the file is than its largest; 0 where these are the same.
    `ours`: b h w, ids; theirs: b k h w, logits."""
    finite = np.isfinite(theirs).all(1)
    if ours.shape != finite.shape or (ours[finite] >= theirs.shape[1]).any() or (ours[~finite] != IGNORE).any():
        return inf
    logits = np.take_along_axis(theirs, np.where(finite, ours, 0).astype(np.int64)[:, None], 1)[:, 0]
    largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)
    error = (theirs.max(1) - logits)[finite].max(initial=0.0)
    return float(error / largest) if largest else float(error)
