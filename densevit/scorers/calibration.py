"""`densevit calibrate`: the correction of a model's metres that measured images ask for, chosen by cross-validation.

n pixels of one image; metres.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float64

from densevit.data.datasets.base import Dataset
from densevit.data.index.manifest import read_table
from densevit.data.loading.prefetch import prefetch_samples
from densevit.errors import ConfigError, DataError
from densevit.evaluation.bootstrap import FEWEST, intervals
from densevit.inference.calibration import FORMS, calibrate, fit_calibration
from densevit.inference.predict.inputs import Item, absolute
from densevit.inference.predict.point_files import from_table
from densevit.inference.predictor import Predictor
from densevit.model_card import Calibration, ModelCard
from densevit.ops.measured_points import sample
from densevit.scorers.base import input_of

PIXELS = 500  # of each image: all images weigh the same
FOLDS = 5
WORTHWHILE = 0.01  # share of the error by which a more complex form must be better for certain

Values = Float64[np.ndarray, " n"]


@dataclass(frozen=True)
class Measured:
    """The predictions and the measured depth of some pixels of one image."""

    name: str
    depth: Values
    truth: Values


@dataclass(frozen=True)
class CalibrationResult:
    """
    Attributes:
        abs_rel: by form, the mean AbsRel of images that were left out of the fit.
        gain: by form, by how much that is below the identity's, with its 95% interval over images.
        chosen: the simplest form that is not certainly worse than the best by over 1%; fitted to all images.
    """

    images: int
    abs_rel: Mapping[str, float]
    gain: Mapping[str, tuple[float, float]]
    chosen: Calibration

    def __str__(self) -> str:
        lines = [f"{'form':12} {'AbsRel, held out':>17}   gain, 95% interval"]
        for form, error in self.abs_rel.items():
            low, high = self.gain.get(form, (0.0, 0.0))
            lines.append(f"{form:12} {error:17.4f}" + (f"   {low:+.4f} to {high:+.4f}" if form in self.gain else ""))
        return "\n".join([*lines, f"{self.images} images; {self.chosen.describe()}"])


def measure(predictor: Predictor, data: Dataset, head: str) -> Iterator[Measured]:
    """Predictions at measured pixels, `PIXELS` of each image."""
    for item in prefetch_samples(data):
        if item.depth is None or item.valid is None or not item.valid.any():
            continue
        prediction = predictor(input_of(predictor, item), head=head)
        places = np.flatnonzero(item.valid & np.isfinite(prediction) & (prediction > 0))
        places = np.random.default_rng(0).permutation(places)[:PIXELS]
        if len(places):
            depth, truth = (values.ravel()[places].astype(np.float64) for values in (prediction, item.depth))
            yield Measured(item.name, depth, truth)


def measure_points(predictor: Predictor, path: Path, head: str) -> Iterator[Measured]:
    """Predictions at the points of a CSV: columns image (relative to its folder), u, v, depth.

    Raises:
        DataError: an image or a point that cannot be.
    """
    images = dict.fromkeys(str(cells.get("image") or "").strip() for _, cells in read_table(path))
    if "" in images or not images:
        raise DataError(f"{path}: every row needs an image, and u, v, depth.")
    for name in images:
        source = absolute(path.parent / name)
        image = predictor.read(source)
        points = from_table(path, Item(source, name), (image.image.shape[0], image.image.shape[1]), alone=False)
        depth = sample(predictor(image, head=head), points)
        usable = np.isfinite(depth) & (depth > 0)
        if usable.any():
            yield Measured(name, depth[usable], points.depth[usable])


def choose_calibration(found: Sequence[Measured]) -> CalibrationResult:
    """Fits every form without some of the images and scores it on them; see `CalibrationResult`.

    Raises:
        DataError: too few images.
    """
    if len(found) < FEWEST:
        raise DataError(f"calibrate: {len(found)} images have measured depth; cross-validation needs {FEWEST}.")
    errors = {form: held_out_errors(found, form) for form in FORMS}
    abs_rel = {form: float(values.mean()) for form, values in errors.items()}
    gain = {form: interval(found, errors["identity"] - errors[form]) for form in FORMS[1:]}
    best = min(FORMS, key=lambda form: abs_rel[form])
    least = WORTHWHILE * abs_rel[best]
    simplest = next(form for form in FORMS if form == best or interval(found, errors[form] - errors[best])[0] <= least)
    depth, truth = stacked(found)
    chosen = Calibration(form="identity") if simplest == "identity" else fit_calibration(simplest, depth, truth)
    return CalibrationResult(len(found), abs_rel, gain, chosen)


def held_out_errors(found: Sequence[Measured], form: str) -> Values:
    """AbsRel of each image under a correction that was fitted without it."""
    errors = np.empty(len(found))
    for fold in range(min(FOLDS, len(found))):
        held = [i for i in range(len(found)) if i % min(FOLDS, len(found)) == fold]
        rest = [found[i] for i in range(len(found)) if i not in held]
        correct = corrected(form, rest)
        for i in held:
            errors[i] = np.mean(np.abs(correct(found[i].depth) - found[i].truth) / found[i].truth)
    return errors


def corrected(form: str, found: Sequence[Measured]) -> Callable[[Values], Values]:
    if form == "identity":
        return lambda depth: depth
    calibration = fit_calibration(form, *stacked(found))
    return lambda depth: calibrate(torch.from_numpy(depth), calibration).numpy()


def stacked(found: Sequence[Measured]) -> tuple[Values, Values]:
    """All pixels, as many of each image."""
    least = max(1, min(len(image.depth) for image in found))
    least = max(least, PIXELS // 5)
    return (
        np.concatenate([image.depth[:least] for image in found]),
        np.concatenate([image.truth[:least] for image in found]),
    )


def interval(found: Sequence[Measured], differences: Values) -> tuple[float, float]:
    rows = [(image.name, {"gain": float(value)}) for image, value in zip(found, differences, strict=True)]
    low, high = intervals(rows, ["gain"])["gain"]
    return low, high


def calibrated_card(card: ModelCard, head: str, result: CalibrationResult, source: str) -> ModelCard:
    """The card with the calibration and where it came from.

    Raises:
        ConfigError: the calibration does not help.
    """
    form = result.chosen.form
    if form == "identity" or result.gain[form][0] <= 0:
        raise ConfigError(f"calibrate: no correction of head '{head}' helps on images left out of the fit:\n{result}")
    before, after = result.abs_rel["identity"], result.abs_rel[form]
    calibration = replace(
        result.chosen, source=source, images=result.images, abs_rel=(before, after), gain=result.gain[form]
    )
    return replace(card, outputs={**card.outputs, head: replace(card.outputs[head], calibration=calibration)})
