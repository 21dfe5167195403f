"""Evaluation of segments: a predictor or saved files, and a data set -> panoptic quality, or average precision."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import cv2
import numpy as np

from densevit.data.datasets.base import Dataset
from densevit.data.io.readers import Rgb
from densevit.data.io.samples import segments_of as true_segments
from densevit.data.loading.prefetch import prefetch, prefetch_samples
from densevit.data.segment_predictions import SavedSegments, SegmentTask
from densevit.errors import DataError, located
from densevit.evaluation.segments import instances, panoptic
from densevit.evaluation.segments.instances import Matches
from densevit.evaluation.segments.panoptic import QualityStats
from densevit.evaluation.segments.scores import SegmentScores, summarise
from densevit.inference.predictor import Predictor
from densevit.model_card import HeadSpec
from densevit.ops.colors import usual_palette
from densevit.ops.segments import (
    PanopticPrediction,
    SegmentPrediction,
    Segments,
    captions,
    draw_segments,
    exclusive,
    median_depths,
    objects_of,
    write_names,
)
from densevit.reporting.figures import MAX_WIDTH, Figure, segments_figure
from densevit.scorers.base import Evaluation, Window, inference_options, input_of, predictions_of, seen, window_of
from densevit.scorers.segmentation import require_same_classes
from densevit.structures import Row, Sample

Predict = Callable[[Sample], SegmentPrediction]
DepthOf = Callable[[Sample], np.ndarray | None]
"""The metric depth that the model gives beside the segments."""


def evaluate_segments(
    predictions: Predictor | SavedSegments, data: Dataset, task: SegmentTask, *, head: str | None = None
) -> Evaluation:
    """Score segments for a data set. `head`: of a model that has several of this kind. Raises ConfigError: the model
    has no segments, or other classes than the data. Raises DataError: a prediction does not fit its image, or nothing
    can be scored."""
    predict, depth_of, card, options = _source(predictions, data, task, head)
    if isinstance(predictions, SavedSegments) or not predictions.card.heads_of("metric"):
        data = data.without_depth()  # which reports compare with that of the model
    window = None if isinstance(predictions, SavedSegments) else window_of(predictions)
    seconds: list[float] = []
    skipped: list[str] = []

    def labelled() -> Iterator[Sample]:
        for sample in prefetch_samples(data):
            if true_segments(sample) is None:
                skipped.append(sample.name)
            else:
                yield seen(window, sample)

    pairs = predictions_of(labelled(), len(data), predict, seconds)
    indices = {name: index for index, name in enumerate(data.names)}

    def scored(pair: tuple[Sample, SegmentPrediction]) -> tuple[str, QualityStats | Matches]:
        sample, prediction = pair
        if isinstance(prediction, PanopticPrediction):
            with located(sample.name):
                return sample.name, count(prediction, segments_in(sample), len(data.classes))
        return sample.name, matches(prediction, sample, data, indices[sample.name], window)

    # Segments are matched while the model works on the next image.
    counted = prefetch(scored, pairs, threads=1, ahead=1)
    palette = data.palette or usual_palette(len(data.classes))
    scores = summarise(counted, data.classes, data.things, palette, skipped)
    spec = HeadSpec(kind=task, unit="", classes=tuple(data.classes), palette=palette, things=tuple(data.things))
    model: dict[str, Any] = {"card": card, "inference": [options], "seconds": seconds} if card else {}
    return Evaluation(results=[scores], data=data, draw=partial(draw, data, window, predict, depth_of, spec), **model)


def _source(
    predictions: Predictor | SavedSegments, data: Dataset, task: SegmentTask, head: str | None
) -> tuple[Predict, DepthOf, dict[str, Any], dict[str, Any]]:
    if isinstance(predictions, SavedSegments):
        saved = predictions

        def read(sample: Sample) -> SegmentPrediction:
            return saved.read(sample.name, (sample.image.shape[0], sample.image.shape[1]))

        return read, lambda sample: None, {}, {}
    predictor = predictions
    name = predictor.card.head_of((task,), head, f"--task {task}")
    spec = predictor.card.outputs[name]
    require_same_classes(name, spec, data)

    def predict(sample: Sample) -> SegmentPrediction:
        prediction: Any = predictor(input_of(predictor, sample), head=name)
        assert isinstance(prediction, SegmentPrediction)
        return prediction

    def depth_of(sample: Sample) -> np.ndarray | None:
        metric = predictor.card.heads_of("metric")
        return np.asarray(predictor(input_of(predictor, sample), head=metric[0])) if metric else None

    return predict, depth_of, predictor.card.to_dict(), inference_options(predictor)


def segments_in(sample: Sample) -> Segments:
    """Return the true segments of a sample that has some."""
    segments = true_segments(sample)
    assert segments is not None
    return segments


def count(prediction: PanopticPrediction, truth: Segments, num_classes: int) -> QualityStats:
    """Return the counts of panoptic quality of one image. Raises DataError if the maps differ in size."""
    if prediction.segments.shape != truth.ids.shape:
        predicted, true = ("x".join(map(str, ids.shape)) for ids in (prediction.segments, truth.ids))
        raise DataError(f"a map of {predicted} cannot be scored against segments of {true}.")
    return panoptic.count(prediction.segments, prediction.classes, truth.ids, truth.classes, truth.crowd, num_classes)


def matches(prediction: SegmentPrediction, sample: Sample, data: Dataset, index: int, window: Window | None) -> Matches:
    """Return the matches of the instances of one image."""
    assert not isinstance(prediction, PanopticPrediction)
    truth = data.objects(index) or objects_of(segments_in(sample), data.things)
    if window and (box := window(sample.image.shape[0], sample.image.shape[1])):
        truth = truth.inside(box)
    return instances.match(prediction.masks, prediction.classes, prediction.scores, *truth, len(data.classes))


def draw(
    data: Dataset,
    window: Window | None,
    predict: Predict,
    depth_of: DepthOf,
    spec: HeadSpec,
    scores: SegmentScores,
    index: int,
    label: str,
    row: Row,
) -> Figure:
    """Return an image of a report; predicted segments have names and scores, objects distances where depth is known."""
    sample = seen(window, data.read(index))
    pred, truth = exclusive(predict(sample)), segments_in(sample)
    h, w = sample.image.shape[:2]
    size = (MAX_WIDTH, max(1, round(h * MAX_WIDTH / w)))  # that of the page, at which names can be read
    image = cv2.resize(sample.image, size, interpolation=cv2.INTER_AREA)

    def drawn(one: PanopticPrediction, depth: np.ndarray | None, scores: bool) -> Rgb:
        names = captions(one, spec, median_depths(one, depth), scores=scores)
        one = replace(one, segments=cv2.resize(one.segments, size, interpolation=cv2.INTER_NEAREST))
        return write_names(draw_segments(image, one, spec), one, names)

    true_depth = None if sample.depth is None or sample.valid is None else np.where(sample.valid, sample.depth, np.nan)
    occurring = np.union1d(truth.classes, pred.classes).tolist()
    return segments_figure(
        name=sample.name, label=label, score=f"{scores.ranking} {row[scores.ranking]:.4f}", image=image,
        truth=drawn(truth.as_prediction(data.things), true_depth, False),
        prediction=drawn(pred, depth_of(sample), True), legend=[(spec.palette[i], spec.classes[i]) for i in occurring],
    )  # fmt: skip
