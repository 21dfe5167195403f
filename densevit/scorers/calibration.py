"""`densevit calibrate`: corrections of a model's metres, chosen by cross-validation, and intervals of its depth.

Both come from measured images that the model was not trained on. n pixels of one image; metres.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64

from densevit.data.datasets.base import Dataset, open_dataset
from densevit.data.index.manifest import read_table
from densevit.data.loading.prefetch import prefetch_samples
from densevit.depth_corrections import Calibration, Interval
from densevit.errors import ConfigError, DataError
from densevit.evaluation.bootstrap import FEWEST, intervals
from densevit.evaluation.uncertainty import Scores, fit_interval, image_scores
from densevit.inference.predict.inputs import Item, absolute
from densevit.inference.predict.point_files import from_table
from densevit.inference.predictor import Predictor
from densevit.model_card import ModelCard, uncertainty_of
from densevit.ops.align import weighted_median
from densevit.ops.calibration import FORMS, calibrate, fit_calibration
from densevit.ops.points import sample
from densevit.scorers.base import input_of
from densevit.structures import Row, Sample
from densevit.utils.atomic_io import check_can_create
from densevit.utils.output import tqdm

log = logging.getLogger(__name__)
PIXELS = 500  # of each image
FOLDS, BLOCKS = 5, 12
CONSTANT = "constant"
METRICS = ("abs_rel", "rmse", "d1")
WORTHWHILE = 0.01  # share of the error by which a more complex form must be better for certain

Values = Float64[np.ndarray, " n"]


@dataclass(frozen=True)
class MeasuredImage:
    """The predictions and the measured depth of some pixels of one image."""

    name: str
    depth: Values
    truth: Values


@dataclass(frozen=True)
class CalibrationResult:
    """What each form of correction is worth on blocks of images that were left out of its fit."""

    images: int
    scores: Mapping[str, Row]
    """By form, AbsRel, RMSE and d1; `constant` is the best constant depth in place of the predictions."""
    gain: Mapping[str, tuple[float, float]]
    """By form, by how much its AbsRel is below the identity's, with its 95% interval over blocks."""
    over_constant: Mapping[str, tuple[float, float]]
    """By form, the same over the constant."""
    selected: Calibration
    """The simplest of the forms that certainly help that is not certainly worse than the best by over 1%, fitted to all
    images; identity, if none helps."""

    def __str__(self) -> str:
        lines = [f"{'held out':12} {'AbsRel':>8} {'RMSE':>8} {'d1':>8}   gain of AbsRel, 95% interval"]
        for form, row in self.scores.items():
            low, high = self.gain.get(form, (0.0, 0.0))
            numbers = " ".join(f"{row[name]:8.4f}" for name in METRICS)
            lines.append(f"{form:12} {numbers}" + (f"   {low:+.4f} to {high:+.4f}" if form in self.gain else ""))
        return "\n".join([*lines, f"{self.images} images; {self.selected.describe()}"])


def measure(predictor: Predictor, data: Dataset, head: str) -> Iterator[MeasuredImage]:
    """Yield the predictions at measured pixels within the data set's range, `PIXELS` of each image."""
    for item in prefetch_samples(data):
        if item.depth is None or item.valid is None or item.depth_kind != "metric" or not item.valid.any():
            continue
        prediction = predictor(input_of(predictor, item), head=head)
        pixels = np.flatnonzero(counted(prediction, item, data.depth_range))
        pixels = np.random.default_rng(0).permutation(pixels)[:PIXELS]
        if len(pixels):
            depth, truth = (values.ravel()[pixels].astype(np.float64) for values in (prediction, item.depth))
            yield MeasuredImage(item.name, depth, truth)


def counted(prediction: np.ndarray, item: Sample, depth_range: tuple[float, float]) -> Bool[np.ndarray, "h w"]:
    """Return the pixels that are measured within the range and have a prediction."""
    assert item.depth is not None and item.valid is not None
    near, far = depth_range
    within = item.valid & (item.depth > near) & (item.depth < far)
    return np.asarray(within & np.isfinite(prediction) & (prediction > 0))


def measure_points(predictor: Predictor, path: Path, head: str) -> Iterator[MeasuredImage]:
    """Yield the predictions at the points of a CSV: columns image (relative to its folder), u, v, depth. Raises
    DataError: an image or a point that cannot be."""
    images = dict.fromkeys(str(cells.get("image") or "").strip() for _, cells in read_table(path))
    if "" in images or not images:
        raise DataError(f"{path}: every row needs an image, and u, v, depth.")
    for name in images:
        source = absolute(path.parent / name)
        image = predictor.read(source)
        points = from_table(path, Item(source, name), (image.image.shape[0], image.image.shape[1]), single=False)
        depth = sample(predictor(image, head=head), points)
        usable = np.isfinite(depth) & (depth > 0)
        if usable.any():
            yield MeasuredImage(name, depth[usable], points.depth[usable])


def choose_calibration(images: Sequence[MeasuredImage]) -> CalibrationResult:
    """Fit every form without some of the images and score it on them; raise DataError if there are too few."""
    if len(images) < FEWEST:
        raise DataError(f"calibrate: {len(images)} images have measured depth; cross-validation needs {FEWEST}.")
    blocks = blocks_of([image.name for image in images])
    scored = ((form, held_out_scores(images, blocks, form)) for form in (CONSTANT, *FORMS))
    rows = {form: row for form, row in scored if row is not None}
    errors = {form: row[:, 0] for form, row in rows.items()}
    forms = [form for form in FORMS[1:] if form in rows]
    gain = {form: interval(blocks, errors["identity"] - errors[form]) for form in forms}
    over_constant = {form: interval(blocks, errors[CONSTANT] - errors[form]) for form in forms}
    helping = [form for form in forms if gain[form][0] > 0 and over_constant[form][0] > 0]
    selected = Calibration(form="identity")
    if helping:
        best = min(helping, key=lambda form: float(errors[form].mean()))
        least = WORTHWHILE * float(errors[best].mean())
        simplest = next(f for f in helping if f == best or interval(blocks, errors[f] - errors[best])[0] <= least)
        selected = fit_calibration(simplest, *stacked(images))
    scores = {form: dict(zip(METRICS, row.mean(0).tolist(), strict=True)) for form, row in rows.items()}
    return CalibrationResult(len(images), scores, gain, over_constant, selected)


def blocks_of(names: Sequence[str]) -> list[list[int]]:
    """Return the images that are left out together, since neighbours of a recording are alike: those of a folder, if
    there are enough folders; else `BLOCKS` runs of consecutive images."""
    folders: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        folders.setdefault(name.rpartition("/")[0], []).append(index)
    if len(folders) >= FEWEST:
        return list(folders.values())
    return [block.tolist() for block in np.array_split(np.arange(len(names)), min(BLOCKS, len(names)))]


def held_out_scores(
    images: Sequence[MeasuredImage], blocks: Sequence[Sequence[int]], form: str
) -> Float64[np.ndarray, "images metrics"] | None:
    """Return `METRICS` of each image under a correction that was fitted without its block; None if one would turn near
    and far around."""
    scores = np.empty((len(images), len(METRICS)))
    for fold in range(min(FOLDS, len(blocks))):
        held = [i for block in blocks[fold :: min(FOLDS, len(blocks))] for i in block]
        correct = corrected(form, [images[i] for i in range(len(images)) if i not in held])
        if correct is None:
            return None
        for i in held:
            depth, truth = correct(images[i].depth), images[i].truth
            ratio = np.maximum(depth / truth, truth / depth)
            error = depth - truth
            scores[i] = np.abs(error / truth).mean(), np.sqrt(np.square(error).mean()), (ratio < 1.25).mean()
    return scores


def corrected(form: str, images: Sequence[MeasuredImage]) -> Callable[[Values], Values] | None:
    if form == "identity":
        return lambda depth: depth
    depths, truth = stacked(images)
    if form == CONSTANT:
        constant = weighted_median(truth, 1 / truth)  # which has the least AbsRel
        return lambda depth: np.full_like(depth, constant)
    calibration = fit_calibration(form, depths, truth)
    return None if calibration.a <= 0 else lambda depth: calibrate(torch.from_numpy(depth), calibration).numpy()


def stacked(images: Sequence[MeasuredImage]) -> tuple[Values, Values]:
    """Return `PIXELS` of each image, evenly spaced, so that all images weigh the same: fewer are repeated."""
    sampled = [(image, np.arange(PIXELS) * len(image.depth) // PIXELS) for image in images]
    return (
        np.concatenate([image.depth[which] for image, which in sampled]),
        np.concatenate([image.truth[which] for image, which in sampled]),
    )


def interval(blocks: Sequence[Sequence[int]], differences: Values) -> tuple[float, float]:
    rows = [(str(i), {"gain": float(differences[block].mean())}) for i, block in enumerate(blocks)]
    low, high = intervals(rows, ["gain"])["gain"]
    return low, high


def calibrated_card(card: ModelCard, head: str, result: CalibrationResult, source: str) -> ModelCard:
    """Return the card with the calibration and where it came from, without intervals, which are of the depth before.
    Raises ConfigError: the calibration does not help."""
    form = result.selected.form
    if form == "identity":
        better = [name for name in result.gain if result.gain[name][0] > 0]
        why = "is certainly better than one constant depth" if better else "helps"
        raise ConfigError(f"calibrate: no correction of head '{head}' {why}, on images left out of the fit:\n{result}")
    before, after = result.scores["identity"]["abs_rel"], result.scores[form]["abs_rel"]
    calibration = replace(
        result.selected, source=source, images=result.images, abs_rel=(before, after), gain=result.gain[form]
    )
    spec = replace(card.outputs[head], calibration=calibration, interval=None)
    if card.outputs[head].interval is not None:
        log.warning("head %s: its intervals are of the uncorrected depth and are left out; calibrate them anew.", head)
    return replace(card, outputs={**card.outputs, head: spec})


def fit_intervals(
    predictor: Predictor, data: Dataset, *, level: float = 0.9, head: str | None = None, name: str = ""
) -> tuple[str, Interval]:
    """Return the head and its interval that holds `level` of the pixels of `data`. `head`: of a model that has several
    that give metric depth with uncertainty; `name`: of the data, for the card. Raises ConfigError: no such head, or a
    level that is no share. Raises DataError: too few images."""
    if not 0 < level < 1:
        raise ConfigError(f"level is {level}; it is a share between 0 and 1, 0.9 say.")
    head_name = predictor.card.head_of(("metric",), head, "intervals")
    uncertainty = uncertainty_of(head_name)
    if uncertainty not in predictor.card.outputs:
        raise ConfigError(f"head '{head_name}' predicts no uncertainty; train it with `uncertainty: laplace`.")
    predictor.check_tileable([uncertainty])

    def scores() -> Iterator[Scores]:
        for item in tqdm(prefetch_samples(data), desc="calibrate", unit="image", total=len(data), delay=1):
            if item.depth is None or item.valid is None or item.depth_kind != "metric":
                continue
            maps = predictor.predict_all(input_of(predictor, item))
            pixels = counted(maps[head_name], item, data.depth_range)
            p, d, b = (m[pixels].astype(np.float64) for m in (maps[head_name], item.depth, maps[uncertainty]))
            yield image_scores(p, d, b)

    interval = fit_interval(scores(), level, name)
    if warning := interval.warning():
        log.warning("%s", warning)
    return head_name, interval


def check_output(folder: Path) -> Path:
    """Raise ConfigError if the folder exists; StorageError if it cannot be made."""
    if folder.exists():
        raise ConfigError(f"--output: {folder} exists already; a calibration is written into a new folder.")
    check_can_create(folder)
    return folder


def data_name(spec: dict[str, Any]) -> str:
    """Return the name of a data set for the card."""
    return " ".join(str(spec[key]) for key in ("type", "root", "split") if spec.get(key))


def calibrate_intervals(
    predictor: Predictor, folder: Path, spec: dict[str, Any], level: float, head: str | None
) -> str:
    """Calibrate the depth intervals of a head by the images of a data set."""
    name, outputs = data_name(spec), predictor.card.outputs
    head, interval = fit_intervals(predictor, open_dataset(spec), level=level, head=head, name=name)
    calibrated = {**outputs, head: replace(outputs[head], interval=interval)}
    predictor.with_options(card=replace(predictor.card, outputs=calibrated)).save_pretrained(folder)
    return "\n".join([
        f"head {head}: intervals of {interval.level:.0%}, calibrated on {interval.images} images of {name}",
        "depth in metres   " + "".join(f"{depth:8.2f}" for depth in interval.depths),
        "factor of b       " + "".join(f"{factor:8.2f}" for factor in interval.factors),
        f"written: {folder}",
    ])  # fmt: skip


def calibrate_scale(
    predictor: Predictor, folder: Path, spec: dict[str, Any], points: str | Path | None, head: str | None
) -> str:
    """Correct the metres of a head by the images of a data set, or by `points`."""
    selected = predictor.card.head_of(("metric",), head, "calibrate")
    if predictor.card.outputs[selected].calibration is not None:
        raise ConfigError(f"calibrate: head '{selected}' is calibrated already; take the checkpoint that it came from.")
    if points is not None:
        measured, source = list(measure_points(predictor, Path(points), selected)), str(points)
    else:
        data = open_dataset(spec)
        measured = list(measure(predictor, data, selected))
        source = f"{data_name(spec)} ({len(data)} images)"
    result = choose_calibration(measured)
    card = calibrated_card(predictor.card, selected, result, source)
    predictor.with_options(card=card).save_pretrained(folder)
    return f"{result}\nwritten: {folder}"
