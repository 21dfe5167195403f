"""An ONNX file in int8, written only where its scores keep within a budget."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from densevit.api.evaluate import evaluate
from densevit.data.datasets.base import Dataset, Part, evenly_spaced
from densevit.errors import ConfigError
from densevit.evaluation.scores import find_metric
from densevit.evaluation.segmentation.metrics import FORMULAE as SEGMENTATION
from densevit.inference.backends.onnx_runtimes import OnnxRuntime
from densevit.inference.onnx import export as onnx
from densevit.inference.onnx import quantize
from densevit.inference.onnx.metadata import ExportedModel, OnnxExportOptions, file_inputs
from densevit.model_card import ModelCard
from densevit.scorers.base import seen
from densevit.scorers.depth import DEFAULT_PROTOCOLS
from densevit.structures import Box, Sample
from densevit.utils import atomic_io
from densevit.utils.packages import require_packages

CALIBRATION = 32  # images

Scores = dict[str, float]


class SeenPart(Part):
    """A data set with the ground truth of the window alone that the file shows the model."""

    def __init__(self, data: Dataset, window: Box) -> None:
        super().__init__(data, range(len(data)))
        self.window = window

    def read(self, index: int) -> Sample:
        return seen(lambda _h, _w: self.window, super().read(index))


@dataclass(frozen=True)
class QuantizedModel:
    exported: ExportedModel  # the file, and the list of layers beside it
    recipe: str  # what is in int8; `float_layers`: the layers that are not
    float_layers: Sequence[str]
    before: Scores  # of the fp32 file
    after: Scores  # of the int8 file
    rejected: Mapping[str, Scores]  # scores of faster recipes that missed the budget
    images: Mapping[str, int]  # how many calibrated, chose the recipe, and judged it

    def __str__(self) -> str:
        layers = layers_file(self.exported.paths[0])
        return "\n".join([
            str(self.exported),
            f"  {self.recipe}: {as_text(self.after)}; fp32 {as_text(self.before)}",
            f"  images: {', '.join(f'{count} {what}' for what, count in self.images.items())}",
            f"  {layers}: the {len(self.float_layers)} layers in floating point",
        ])  # fmt: skip


def check_int8(path: Path, *, overwrite: bool = False) -> None:
    """Raise before a checkpoint is read where `export_int8` would fail. Raises ConfigError: see
    `densevit.inference.onnx.export.check_output`; NNCF is not installed; a list of layers exists."""
    onnx.check_output(path, overwrite=overwrite)
    require_packages(*quantize.NEEDS, extra="int8")
    if layers_file(path).exists() and not overwrite:
        raise ConfigError(f"--output: {layers_file(path)} exists already; --overwrite replaces it.")


def export_int8(
    model: nn.Module,
    card: ModelCard,
    path: Path,
    options: OnnxExportOptions,
    data: Dataset,
    data_name: str,
    max_drop: Mapping[str, float],
    *,
    protocol: str | None = None,
) -> QuantizedModel:
    """Write the fastest int8 file that loses no more than the budget, and the list of its layers in floating point.
    Raises ConfigError: no recipe keeps within the budget, and nothing is written; a metric that these heads and data do
    not have; images of a size that the file is not for; options that do not go together.

    Args:
        data: images that calibrate (their ground truth is not used), that choose the recipe, and that judge it: no
            image does two of these; all are spread evenly over it.
        data_name: decides the usual protocol.
        max_drop: metric -> how much worse the score of the int8 file may be than that of the fp32 file.
    """
    onnx.refuse_inputs(card, "--precision int8")
    card, options = onnx.check_options(card, options)
    tasks = {name: head_for(name, card) for name in max_drop}
    subsets = split(data if options.box is None else SeenPart(data, options.box))
    images = calibration_images(subsets["calibrated"], options)
    if options.batch not in (1, None) or file_inputs(card, options):
        raise ConfigError(
            "--precision int8: scored one image at a time: --batch-size 1 or dynamic, and --focal PIXELS."
        )

    def scores(file: Path, data: Dataset) -> Scores:
        run = OnnxRuntime().open(file, "fp32")
        results: Scores = {}
        for head in dict.fromkeys(tasks.values()):
            predict = predictor_of(run, card, head, options)
            kind = card.outputs[head].kind
            usual = protocol or DEFAULT_PROTOCOLS.get(data_name)
            of_depth: Any = {"task": "depth", "protocol": usual, "prediction_type": kind}
            how = {"task": "segmentation", "boundary": False} if kind == "labels" else of_depth
            results |= evaluate(predict, data, **how).scores
        if missing := [name for name in max_drop if name not in results]:
            raise ConfigError(f"--max-drop: no metric '{missing[0]}' here. There are: {', '.join(results)}.")
        return {name: results[name] for name in max_drop}

    with atomic_io.temporary_folder(path) as folder:
        plain, made = folder / "fp32.onnx", folder / path.name
        exported = onnx.export_onnx(model, card, plain, options)
        if len(exported.paths) > 1:
            raise ConfigError("--precision int8: weights of over 2 GB, which NNCF does not read.")
        choosing, judging = subsets["chose the recipe"], subsets["judged it"]
        before = scores(plain, choosing)
        print_scores("fp32", before)
        rejected: dict[str, Scores] = {}
        for recipe in quantize.RECIPES:
            about = {"precision": f"int8: {recipe}"}
            float_layers = quantize.quantize(plain, made, recipe, images, about)
            after = scores(made, choosing)
            print_scores(recipe, after)
            if keeps(max_drop, before, after):
                before, after = scores(plain, judging), scores(made, judging)
                print_scores(f"fp32, on {len(judging)} other images", before)
                print_scores(f"{recipe}, on {len(judging)} other images", after)
                if keeps(max_drop, before, after):
                    facts = {**exported.metadata, **about}
                    written = ExportedModel(onnx.move_into_place(made, path), exported.errors, facts)
                    counts = {what: len(subset) for what, subset in subsets.items()}
                    result = QuantizedModel(written, recipe, float_layers, before, after, rejected, counts)
                    atomic_io.write_text(layers_file(path), describe(result, max_drop, data_name))
                    return result
                rejected[f"{recipe}, on other images"] = after
                break
            rejected[recipe] = after
    lines = [f"  {name}: {as_text(written)}" for name, written in {"fp32": before, **rejected}.items()]
    raise ConfigError(
        f"--max-drop {as_text(max_drop)}: no int8 file keeps within it, so none is written.\n" + "\n".join(lines)
    )


def head_for(metric: str, card: ModelCard) -> str:
    """Return the first head that a metric is a score of."""
    heads = [
        name
        for name, spec in card.outputs.items()
        if (spec.kind == "labels" if metric in SEGMENTATION else spec.output_kind.is_depth)
    ]
    if not heads:
        raise ConfigError(f"--max-drop: no head here is scored by '{metric}'. There are: {', '.join(card.outputs)}.")
    return heads[0]


def split(data: Dataset) -> dict[str, Dataset]:
    """Return what calibrates (at most CALIBRATION images), chooses the recipe and judges it. Raises ConfigError: under
    three images."""
    if len(data) < 3:
        raise ConfigError(f"--data: {len(data)} images; int8 needs 3 or more: to calibrate, to choose, to judge.")
    calibrating = evenly_spaced(len(data), min(CALIBRATION, len(data) // 3))
    rest = [index for index in range(len(data)) if index not in calibrating]
    subsets = {"calibrated": calibrating, "chose the recipe": rest[::2], "judged it": rest[1::2]}
    return {what: Part(data, indices) for what, indices in subsets.items()}


def keeps(max_drop: Mapping[str, float], before: Scores, after: Scores) -> bool:
    """Return whether no score falls by more than its budget."""
    return all(drop(name, before, after) <= most for name, most in max_drop.items())


def calibration_images(data: Dataset, options: OnnxExportOptions) -> list[np.ndarray]:
    """Return the images as the file takes them."""
    images = [data.read(index).image for index in range(len(data))]
    for image in images:
        if options.size not in (None, image.shape[:2]):
            (h, w), (height, width) = image.shape[:2], options.size or (0, 0)
            raise ConfigError(
                f"--data: an image of {h}x{w}, and the file is for {height}x{width}. "
                f"Give --image-size {h},{w} or dynamic."
            )
    return [as_input(image, options) for image in images]


def as_input(image: np.ndarray, options: OnnxExportOptions) -> np.ndarray:
    if not options.floats:
        return image[None]
    return image.transpose(2, 0, 1)[None].astype(np.float32) / np.float32(255)


def predictor_of(
    run: Callable[..., list[np.ndarray]], card: ModelCard, head: str, options: OnnxExportOptions
) -> Callable[[np.ndarray], np.ndarray]:
    """Return an image -> the map h w of one head: depth, or ids of classes."""
    index, ids = list(card.outputs).index(head), card.outputs[head].kind == "labels"

    def predict(image: np.ndarray) -> np.ndarray:
        y = run(as_input(image, options))[index][0]
        return np.asarray((y if options.argmax else y.argmax(0)) if ids else y[0])

    return predict


def drop(metric: str, before: Scores, after: Scores) -> float:
    """Return how much worse `after` is; infinite where it is no number."""
    task = "segmentation" if metric in SEGMENTATION else "depth"
    larger = find_metric(task, metric).better == "max"
    worse = before[metric] - after[metric] if larger else after[metric] - before[metric]
    return worse if np.isfinite(worse) else float("inf")


def describe(model: QuantizedModel, max_drop: Mapping[str, float], data_name: str) -> str:
    report = {
        "recipe": model.recipe,
        "scores": {"fp32": model.before, "int8": model.after, **model.rejected},
        "max_drop": dict(max_drop),
        "data": data_name,
        "images": dict(model.images),
        "layers in floating point": list(model.float_layers),
    }
    return json.dumps(report, indent=2) + "\n"


def layers_file(path: Path) -> Path:
    """Return the path beside the file for its scores and the layers in floating point."""
    return path.with_name(f"{path.name}.json")


def print_scores(what: str, scores: Scores) -> None:
    print(f"{what}: {as_text(scores)}", file=sys.stderr)


def as_text(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:.4g}" for name, value in scores.items())
