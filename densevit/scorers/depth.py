"""Depth evaluation: a predictor or saved depth maps, a data set, protocols -> scores, and a report of them."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from densevit.data.datasets.base import Dataset
from densevit.data.index.paths import check_inside
from densevit.data.io.readers import DepthCache, image_size
from densevit.data.loading.augmented import describe_with_files
from densevit.data.loading.prefetch import ordered_parallel_map, prefetch_samples
from densevit.data.predictions import DepthMaps, SavedMaps, read_with_gaps
from densevit.errors import ConfigError, located
from densevit.evaluation.depth.ordinal import OrdinalScores, Pair, ordinal_scores
from densevit.evaluation.depth.preprocess import paste_or_resize
from densevit.evaluation.depth.published_protocols import Protocol, applicable, find_protocol
from densevit.evaluation.depth.scores import DepthScores, Maps, collect, evaluate_indexed, score_item, unit_warning
from densevit.inference.camera import lens_warning
from densevit.inference.predictor import Predictor
from densevit.model_card import Kind, uncertainty_of
from densevit.ops.geometry import field_of_view
from densevit.ops.points import draw_points
from densevit.output_kinds import DEPTH_KINDS, output_kind, scored_kinds
from densevit.reporting.figures import Figure, depth_figure
from densevit.scorers.base import (
    Evaluation,
    inference_options,
    input_of,
    intrinsics_of,
    predictions_of,
    seen,
    window_of,
)
from densevit.structures import Row, Sample

log = logging.getLogger(__name__)

UNIT_CHECKS = 8  # images of saved maps whose unit is checked before all are scored

DEFAULT_PROTOCOLS = {"nyu": "nyu_eigen", "kitti": "kitti_eigen_garg"}
"""What a data set is usually scored by; others by `plain`."""

Predict = Callable[[int, Protocol], tuple[Sample, Float[np.ndarray, "h w"]]]


def draw(predict: Predict, scores: DepthScores, index: int, label: str, row: Row) -> Figure:
    """Return an image of a report, as the protocol of the scores compares it."""
    sample, prediction = predict(index, scores.protocol)
    assert sample.depth is not None and sample.valid is not None  # or it would not have been scored
    return depth_figure(
        name=sample.name, label=label, score="AbsRel {abs_rel:.4f}, RMSE {rmse:.3f} m".format(**row),
        image=sample.image, depth=sample.depth, valid=sample.valid,
        prediction=scores.protocol.render(prediction, sample.depth, sample.valid),
    )  # fmt: skip


def evaluate_depth(
    predictions: Predictor | DepthMaps,
    data: Dataset,
    protocols: Sequence[Protocol],
    *,
    metrics: Sequence[str] = (),
    head: str | None = None,
    flip: bool | None = None,
    workers: int = 2,
    gt_cache: Path | None = None,
    progress: bool = False,
    points: int | None = None,
) -> Evaluation:
    """Score depth predictions for a data set under some protocols, in one pass over the images. Raises ConfigError:
    points, and no metres to predict from them; metrics of the uncertainty, of tiles or with points. Raises DataError: a
    prediction does not fit its image, or nothing can be scored.

    Args:
        protocols: see `select_protocols`. A model sees the crop of the first one.
        metrics: sets of metrics beside the nine standard ones.
        head: of a model that has several depth heads.
        flip: average with the prediction for the mirrored image; None does as the predictor and each protocol say.
        workers: processes that read and score saved maps; the scores do not depend on it.
        gt_cache: a folder that keeps decoded ground truth for further evaluations of saved maps.
        points: of each image's ground truth, drawn at random, always the same ones: given to the model as its input, or
            what the map of a model without is fitted to. All other pixels are scored.
    """
    if not isinstance(predictions, Predictor):
        if points is not None:
            raise ConfigError("--points: given to a model; saved maps have none.")
        return _evaluate_saved(predictions, data, protocols, metrics, workers, gt_cache, progress)
    flips = [predictions.flip or protocol.flip if flip is None else flip for protocol in protocols]
    predictors = {flipped: predictions.with_options(flip=flipped) for flipped in dict.fromkeys(flips)}
    predictor = predictors[flips[0]]
    seconds: list[float] = []
    angles: list[float] = []

    name = predictor.card.head(head)
    spec, uncertainty = predictor.card.outputs[name], uncertainty_of(name)
    if uncertainty in predictor.card.outputs and predictor.tiling is None and points is None:
        metrics = tuple(dict.fromkeys((*metrics, "uncertainty")))

    if "uncertainty" in metrics and (predictor.tiling is not None or points is not None):
        what = "tiles" if points is None else "--points"
        raise ConfigError(f"--metrics uncertainty: is of the maps as the model gives them; leave {what} out.")
    if points is not None and (points < 1 or spec.kind != "metric" or predictor.tiling is not None):
        raise ConfigError(f"--points {points}: a number over 0, of a head that gives metres, without tiles.")

    def drawn(index: int, sample: Sample) -> Sample:
        """Return the sample with its points, which are not scored, and nor is what the model does not see."""
        sample = sample if protocols[0].window else seen(window_of(predictor), sample)
        if points is None or sample.depth is None or sample.valid is None:
            return sample
        sampled = draw_points(sample.depth, sample.valid, points, np.random.default_rng(index))
        return replace(sample.with_arrays({"points": sampled}), valid=sample.valid & (sampled == 0))

    def predicted(predictor: Predictor, sample: Sample) -> dict[str, Any]:
        box = protocols[0].input_box(*sample.image.shape[:2])
        image = input_of(predictor, sample)
        measured = sample.inputs.get("points")
        if measured is not None and measured.any():
            return {name: predictor(image, head=name, box=box, points=measured)}
        return predictor.predict_all(image, box=box)

    def predicted_by_flip(sample: Sample) -> dict[bool, dict[str, Any]]:
        return {flipped: predicted(each, sample) for flipped, each in predictors.items()}

    def rows() -> Iterator[tuple[str, list[Row]]]:
        samples = (drawn(index, sample) for index, sample in enumerate(prefetch_samples(data)))
        for sample, by_flip in predictions_of(samples, len(data), predicted_by_flip, seconds, progress):
            if (camera := intrinsics_of(predictor, sample)) is not None:
                angles.append(field_of_view(sample.image.shape[1], float(camera[0, 0])))
            row: list[Row] = []
            depth = sample.depth if sample.depth_kind in scored_kinds(spec.kind) else None
            for protocol, flipped in zip(protocols, flips, strict=True):
                maps = by_flip[flipped]
                truth = depth, sample.valid, camera
                item = (sample.name, maps[name], *truth, maps.get(uncertainty), spec.interval, spec.kind)
                row += score_item(item, [protocol], metrics)[1]
            yield sample.name, row

    def predict(index: int, protocol: Protocol) -> tuple[Sample, Float[np.ndarray, "h w"]]:
        sample = drawn(index, data.read(index))
        return sample, predicted(predictors[flips[protocols.index(protocol)]], sample)[name]

    evaluations = collect(rows(), protocols)
    warnings = [lens_warning(angles, predictor.card)] if angles and spec.kind == "metric" else []
    if "uncertainty" in metrics and spec.interval is not None:
        warnings.append(spec.interval.warning())
    warning = "; ".join(filter(None, warnings))
    if warning:
        log.warning("%s", warning)
    return Evaluation(
        results=evaluations,
        data=data,
        draw=partial(draw, predict),
        inference=[inference_options(predictors[flipped]) for flipped in flips],
        seconds=seconds,
        card=predictor.card.to_dict(),
        warning=warning,
    )


def _evaluate_saved(
    maps: DepthMaps,
    data: Dataset,
    protocols: Sequence[Protocol],
    metrics: Sequence[str],
    workers: int,
    gt_cache: Path | None,
    progress: bool,
) -> Evaluation:
    for part in (data, *(source.data for source in data.sources)):
        part.depth_cache = None if gt_cache is None else DepthCache(gt_cache)

    def predict(index: int, _: Protocol) -> tuple[Sample, Float[np.ndarray, "h w"]]:
        sample = data.read(index)
        return sample, maps.read(sample.name)

    def item(index: int) -> tuple[Any, ...]:
        """Read all but the image: to decode that would take longer than to score."""
        name, scored = data.names[index], data.depth_kind(index) in scored_kinds(maps.kind)
        depth = data.depth_map(index) if scored else None
        intrinsics = data.read(index).intrinsics if {"points", "fov"} & {*metrics} else None
        return name, maps.read(name), depth, None if depth is None else depth > 0, intrinsics

    warning = ""
    if maps.kind == "metric" and protocols[0].align is None:
        checked = range(0, len(data), max(1, len(data) // UNIT_CHECKS))
        warning = unit_warning(_at_depth_size(map(item, checked), protocols[0]), maps.scale)
    if warning:
        log.warning("%s: %s", getattr(maps, "folder", "predictions"), warning)
    spread = partial(ordered_parallel_map, workers=workers, describe=partial(describe_with_files, data))
    evaluations = evaluate_indexed(item, len(data), protocols, metrics=metrics, spread=spread, progress=progress)
    return Evaluation(results=evaluations, data=data, draw=partial(draw, predict), warning=warning)


def _at_depth_size(items: Iterable[tuple[Any, ...]], protocol: Protocol) -> Iterator[Maps]:
    """Yield the predictions at the size of their ground truth, for the check of their unit."""
    for name, prediction, depth, valid, _ in items:
        if depth is not None:
            h, w = depth.shape
            window = protocol.input_box(h, w) or (0, h, 0, w)
            with located(name):
                frame, _ = paste_or_resize(prediction, (h, w), window, protocol.resize)
            yield frame, depth, valid


def select_protocols(
    name: str | None,
    data: Dataset,
    data_name: str,
    kind: Kind,
    *,
    align: str | None = None,
    same_crop: bool = False,
) -> list[Protocol]:
    """Return the protocol of a name, or with `all` every one that applies. Raises ConfigError: no such protocol, none
    that fits, or depth that does not score these predictions.

    Args:
        name: None takes what the data set is usually scored by.
        kind: of the predictions.
        align: how predictions are fitted to the ground truth, in place of the protocol's own way.
        same_crop: only protocols that show a model the same part of an image, so that one pass serves all.
    """
    kinds = (data.depth_kind(index) for index in range(len(data)))  # which may read its image: until one fits
    if kind in DEPTH_KINDS and len(data) and not any(one in scored_kinds(kind) for one in kinds):
        found = sorted({data.depth_kind(index) for index in range(len(data))})
        raise ConfigError(
            f"data: its depth is {', '.join(found)}; {output_kind(kind).meaning} is scored by depth that is "
            f"{' or '.join(scored_kinds(kind))}."
        )
    if name != "all":
        return [find_protocol(name or DEFAULT_PROTOCOLS.get(data_name, "plain"), data.depth_range, kind, align)]
    if align is not None:
        raise ConfigError("--align needs one protocol, not --protocol all.")
    h, w = data.read(0).image.shape[:2]
    protocols = applicable(data_name, (h, w), kind, data.depth_range)
    if same_crop:
        protocols = [row for row in protocols if row.window == protocols[0].window]
    if not protocols:
        raise ConfigError(f"no protocol is for {kind} predictions of {data_name} with frames of {h}x{w}.")
    return protocols


def evaluate_ordinal(
    predictions: Predictor | SavedMaps,
    pairs: Mapping[str, Sequence[Pair]],
    folder: Path,
    *,
    head: str | None = None,
) -> OrdinalScores:
    """Score which of two points is closer, on pairs labelled by people (DA-2K). Raises ConfigError: a head that gives
    no depth. Raises DataError: files that are missing, or points outside of an image.

    Args:
        predictions: saved maps go by the images' paths without suffix.
        pairs: by the image's path below `folder`.
        head: of a model that has several depth heads.
    """
    check_inside(pairs, folder)
    if isinstance(predictions, Predictor):
        name = predictions.card.head(head)
        kind = predictions.card.outputs[name].kind
        if kind not in DEPTH_KINDS:
            raise ConfigError(f"head '{name}' gives {kind}, not depth.")

        def predict(image: str) -> Float[np.ndarray, "h w"]:
            return np.asarray(predictions(folder / image, head=name))

        return ordinal_scores(pairs, predict, disparity=kind == "disparity")

    def read(image: str) -> Float[np.ndarray, "h w"]:
        h, w = image_size(folder / image)
        depth = read_with_gaps(predictions, image.rpartition(".")[0])
        return paste_or_resize(depth, (h, w), (0, h, 0, w), "borders")[0]

    return ordinal_scores(pairs, read, disparity=predictions.kind == "disparity")
