"""Segmentation evaluation: a predictor or saved label maps, and a data set -> scores, and a report of them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Int

from densevit.data.datasets.base import Dataset
from densevit.data.labels.class_lists import read_classes
from densevit.data.labels.class_table import ClassTable, refuse_reordered
from densevit.data.loading.augmented import describe_with_files
from densevit.data.loading.prefetch import ordered_parallel_map, prefetch, prefetch_samples
from densevit.data.predictions import GivenLabels, SavedLabels
from densevit.errors import ConfigError, DataError, located
from densevit.evaluation.segmentation.metrics import Ids
from densevit.evaluation.segmentation.scores import Counts, SegScores, count, summarise
from densevit.inference.predictor import Predictor
from densevit.model_card import HeadSpec, Palette
from densevit.ops.colors import palette_for, usual_palette
from densevit.reporting.figures import Figure, segmentation_figure
from densevit.scorers.base import Evaluation, inference_options, input_of, predictions_of, seen, window_of
from densevit.structures import IGNORE, Row, Sample
from densevit.utils.output import tqdm

AnySize = Int[np.ndarray, "_ _"]  # maps that may not fit each other
Predict = Callable[[int], tuple[Sample, Ids]]


def evaluate_segmentation(
    predictions: Predictor | SavedLabels | GivenLabels,
    data: Dataset,
    *,
    head: str | None = None,
    boundary: bool = True,
    workers: int = 2,
) -> Evaluation:
    """Score label maps for a data set. Raises ConfigError: the data or the model has no classes, or they differ.
    Raises DataError: a prediction does not fit its image, or nothing can be scored.

    Args:
        head: of a model that has several heads for classes of pixels.
        boundary: boundary IoU, too.
        workers: processes that read and score saved maps; the scores do not depend on it.
    """
    if not data.classes:
        raise ConfigError("data: this data set names no classes, so there is nothing to score.")
    count_image = partial(_count, classes=len(data.classes), boundary=boundary)
    if not isinstance(predictions, Predictor):
        return _evaluate_saved(predictions, data, count_image, workers)
    predictor = predictions
    name = predictor.card.label_head(head, "segmentation")
    spec = predictor.card.outputs[name]
    require_same_classes(name, spec, data)
    seconds: list[float] = []

    def classes(sample: Sample) -> Ids:
        return predictor.classes(input_of(predictor, sample), name)

    def predict(index: int) -> tuple[Sample, Ids]:
        sample = seen(window_of(predictor), data.read(index))
        return sample, classes(sample)

    palette = data.palette or palette_for(spec)
    samples = (seen(window_of(predictor), sample) for sample in prefetch_samples(data))
    pairs = predictions_of(samples, len(data), classes, seconds)
    # Pixels are counted while the model works on the next image.
    counts = prefetch(lambda pair: count_image(pair[0].name, pair[1], pair[0].labels), pairs, threads=1, ahead=1)
    scores = summarise(counts, data.classes, palette)
    card = predictor.card.to_dict()
    return Evaluation(
        results=[scores],
        data=data,
        draw=partial(draw, predict, palette),
        seconds=seconds,
        card=card,
        inference=[inference_options(predictor)],
    )


def _evaluate_saved(
    maps: SavedLabels | GivenLabels, data: Dataset, count_image: Callable[..., tuple[str, Counts]], workers: int
) -> Evaluation:
    def counted(index: int) -> tuple[str, Counts]:
        name = data.names[index]
        return count_image(name, maps.read(name), data.label_map(index))  # the image need not be decoded

    def predict(index: int) -> tuple[Sample, Ids]:
        sample = data.read(index)
        return sample, maps.read(sample.name)

    counts = ordered_parallel_map(counted, len(data), workers, partial(describe_with_files, data))
    palette = data.palette or usual_palette(len(data.classes))
    bar = tqdm(counts, desc="evaluate", unit="image", total=len(data), delay=1)
    scores = summarise(iter(bar), data.classes, palette)
    return Evaluation(results=[scores], data=data, draw=partial(draw, predict, palette))


def draw(predict: Predict, palette: Palette, scores: SegScores, index: int, label: str, row: Row) -> Figure:
    """Return an image of a report."""
    sample, ids = predict(index)
    assert sample.labels is not None  # or it would not have been scored
    return segmentation_figure(
        name=sample.name, label=label, score=f"pixel accuracy {row['pixel_accuracy']:.4f}", image=sample.image,
        labels=sample.labels, predicted=ids, classes=scores.classes, palette=palette,
    )  # fmt: skip


def _count(name: str, ids: AnySize, labels: AnySize | None, *, classes: int, boundary: bool) -> tuple[str, Counts]:
    """Raise DataError: the maps do not fit each other; with the name."""
    labels = np.full(ids.shape, IGNORE) if labels is None else labels
    with located(name):
        return name, count(ids, labels, classes, boundary=boundary)


def require_same_classes(head: str, spec: HeadSpec, data: Dataset) -> None:
    """Raise ConfigError: a head has other classes than the data, or in another order."""
    if len(spec.classes) != len(data.classes):
        raise ConfigError(
            f"head '{head}' predicts {len(spec.classes)} classes; the data has {len(data.classes) or 'none'}."
        )
    refuse_reordered(f"head '{head}'", spec.classes, data.classes)


def label_encoding(encoding: str, data: Dataset) -> ClassTable | None:
    """Return what the numbers in saved label maps mean; None where they are the positions of the classes. `encoding`:
    `classes`, positions among the data set's classes; `stored`, as in its label files; or a JSON or text file that
    names them. Raises ConfigError: the data set has no table of stored ids. Raises DataError: the file is not there, or
    names other classes than the data."""
    if encoding == "classes":
        return None
    if encoding == "stored":
        if data.table is None:
            raise ConfigError("--label-encoding stored: this data set has no table of stored ids; leave it out.")
        return data.table
    table = read_classes(Path(encoding))
    if tuple(table.names) != tuple(data.classes):
        differing = [f"{a!r}, not {b!r}" for a, b in zip(table.names, data.classes, strict=False) if a != b]
        raise DataError(
            f"{encoding}: names {len(table.names)} classes, the data {len(data.classes)}"
            + (f"; the first that differs is {differing[0]}." if differing else ".")
        )
    return table
