"""Evaluation of surface normals: a predictor or saved maps, and a data set -> scores, and a report of them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from jaxtyping import Float32

from densevit.data.datasets.base import Dataset
from densevit.data.io.samples import true_normals
from densevit.data.loading.prefetch import prefetch_samples
from densevit.data.predictions import SavedNormals
from densevit.errors import DataError
from densevit.evaluation.normals import PROTOCOLS, NormalsProtocol, NormalsScores, evaluate
from densevit.inference.predictor import Predictor
from densevit.ops.normals import normals_of_map
from densevit.reporting.figures import Figure, normals_figure
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

Normals = Float32[np.ndarray, "h w 3"]


def evaluate_normals(
    predictions: Predictor | SavedNormals,
    data: Dataset,
    protocol: NormalsProtocol = PROTOCOLS["dsine"],
    *,
    head: str | None = None,
) -> Evaluation:
    """Score normals for a data set: of a head that gives them, or of the plane fits to a head's metric depth. `head`:
    of a model that has several; None takes the one that gives normals, else the one that gives metric depth. Raises
    ConfigError: the model gives neither. Raises DataError: a prediction does not fit its image, a depth head without
    the camera's intrinsics, or nothing can be scored."""
    predict, data = normals_of(predictions, head), data.with_normals()
    seconds: list[float] = []

    def counted(sample: Sample) -> Sample:
        """Return the sample with the camera and the part of the image that are the predictor's."""
        if isinstance(predictions, SavedNormals):
            return sample
        return replace(seen(window_of(predictions), sample), intrinsics=intrinsics_of(predictions, sample))

    def draw(_: NormalsScores, index: int, label: str, row: Row) -> Figure:
        sample = counted(data.read(index))
        truth, text = true_normals(sample), "mean {mean:.2f}°, median {median:.2f}°".format(**row)
        assert truth is not None  # or it would not have been scored
        return normals_figure(
            name=sample.name, label=label, score=text, image=sample.image, truth=truth, prediction=predict(sample)
        )

    pairs = predictions_of(map(counted, prefetch_samples(data)), len(data), predict, seconds)
    scores = evaluate(((sample.name, normals, true_normals(sample)) for sample, normals in pairs), protocol)
    if isinstance(predictions, SavedNormals):
        return Evaluation(results=[scores], data=data, draw=draw)
    card, inference = predictions.card.to_dict(), [inference_options(predictions)]
    return Evaluation(results=[scores], data=data, draw=draw, seconds=seconds, card=card, inference=inference)


def normals_of(predictions: Predictor | SavedNormals, head: str | None) -> Callable[[Sample], Normals]:
    """Return what gives the normals of a sample; see `evaluate_normals`."""
    if isinstance(predictions, SavedNormals):
        saved = predictions
        return lambda sample: saved.read(sample.name)
    predictor = predictions
    kinds = ("normals",) if predictor.card.heads_of("normals") and head is None else ("normals", "metric")
    name = predictor.card.head_of(kinds, head, "normals")

    def predict(sample: Sample) -> Normals:
        values = predictor(input_of(predictor, sample), head=name)
        if predictor.card.outputs[name].kind == "normals":
            return np.asarray(values.transpose(1, 2, 0))
        intrinsics = intrinsics_of(predictor, sample)
        if intrinsics is None:
            raise DataError(
                f"{sample.name}: normals follow from depth with the camera's intrinsics, and none are known."
            )
        return normals_of_map(values, intrinsics)

    return predict
