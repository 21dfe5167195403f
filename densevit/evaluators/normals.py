"""Evaluation of surface normals: a predictor or saved maps, and a data set -> scores, and a report of them."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Float32

from densevit.data.datasets.base import Dataset
from densevit.data.loading.prefetch import prefetch_samples
from densevit.data.predictions import SavedNormals
from densevit.errors import DataError
from densevit.evaluation.normals import report
from densevit.evaluation.normals.evaluate import PROTOCOLS, NormalsProtocol, NormalsScores, evaluate
from densevit.evaluators.base import Evaluation
from densevit.inference.camera import focal_of_sample
from densevit.inference.predictor import Predictor
from densevit.ops.surfaces.normals import normals_of_map
from densevit.reporting.figures import Figure, normals_figure
from densevit.reporting.tables import Interval
from densevit.structures import Row, Sample
from densevit.utils.progress import tqdm

Normals = Float32[np.ndarray, "h w 3"]


@dataclass(frozen=True, kw_only=True)
class NormalsEvaluation(Evaluation):
    """The scores of one set of normals.

    Attributes:
        found: per image and over all.
        predict: index -> the sample and its predicted normals, for the images of a report.
    """

    found: NormalsScores = field(repr=False)
    predict: Callable[[int], tuple[Sample, Normals]] = field(repr=False)

    @property
    def scores(self) -> Row:
        return self.found.mean

    @property
    def intervals(self) -> Mapping[str, Interval]:
        return self.found.intervals

    @property
    def per_image(self) -> Sequence[tuple[str, Row]]:
        return self.found.rows

    def summary(self) -> str:
        return report.table(self.found)

    def write_report(self, folder: Path, *, title: str, source: Mapping[str, Any]) -> list[Path]:
        """Writes metrics.json, per_image.csv and report.html."""
        times = {"prediction, per image": sum(self.seconds) / len(self.seconds)} if self.seconds else {}
        page = {"title": title, "samples": self.figures(), "times": times, "card": self.card}
        written = report.write_report(folder, self.found, source=source)
        return [*written, report.write_html(folder / "report.html", self.found, **page)]  # type: ignore[arg-type]

    def figures(self, labels: Container[str] | None = None) -> list[Figure]:
        """The best, the median and the worst images, predicted once more.

        Args:
            labels: of `NormalsScores.examples`, the images to show; None shows all.
        """
        indices = {name: index for index, name in enumerate(self.data.names)}
        rows = dict(self.found.rows)
        shown = []
        for label, name in self.found.examples().items():
            if labels is not None and label not in labels:
                continue
            sample, prediction = self.predict(indices[name])
            truth = true_normals(sample)
            assert truth is not None  # or it would not have been scored
            text = "mean {mean:.2f}°, median {median:.2f}°".format(**rows[name])
            shown.append(
                normals_figure(
                    name=name, label=label, score=text, image=sample.image, truth=truth, prediction=prediction
                )
            )
        return shown


def true_normals(sample: Sample) -> Normals | None:
    """The sample's normals, else those of its depth; None where it has neither, or no intrinsics."""
    if sample.normals is not None:
        return sample.normals
    if sample.depth is None or sample.valid is None or sample.intrinsics is None:
        return None
    return normals_of_map(np.where(sample.valid, sample.depth, np.float32(0)), sample.intrinsics)


def evaluate_normals(
    predictions: Predictor | SavedNormals,
    data: Dataset,
    protocol: NormalsProtocol = PROTOCOLS["dsine"],
    *,
    head: str | None = None,
) -> NormalsEvaluation:
    """Scores normals for a data set: of a head that gives them, or of the plane fits to a head's metric depth.

    Args:
        head: of a model that has several; None takes the one that gives normals, else the one that gives metric depth.

    Raises:
        ConfigError: the model gives neither.
        DataError: a prediction does not fit its image, a depth head without the camera's intrinsics, or nothing can be
            scored.
    """
    if isinstance(predictions, SavedNormals):
        saved = predictions

        def read(sample: Sample) -> Normals:
            return saved.read(sample.name)

        return _evaluate(read, data, protocol, [], {})
    predictor = copy(predictions)
    kinds = ("normals",) if predictor.card.heads_of("normals") and head is None else ("normals", "metric")
    name = predictor.card.head_for(kinds, [head] if head else (), "eval-normals")
    seconds: list[float] = []

    def predict(sample: Sample) -> Normals:
        predictor.focal = focal_of_sample(predictions.focal, sample.intrinsics)
        start = perf_counter()
        values = predictor(sample.image, head=name)
        seconds.append(perf_counter() - start)
        if predictor.card.outputs[name].kind == "normals":
            return np.asarray(values.transpose(1, 2, 0))
        if sample.intrinsics is None:
            raise DataError(
                f"{sample.name}: normals follow from depth with the camera's intrinsics, and none are known."
            )
        return normals_of_map(values, sample.intrinsics)

    return _evaluate(predict, data, protocol, seconds, predictor.card.to_dict())


def _evaluate(
    predict: Callable[[Sample], Normals],
    data: Dataset,
    protocol: NormalsProtocol,
    seconds: list[float],
    card: Mapping[str, Any],
) -> NormalsEvaluation:
    def items() -> Iterator[tuple[str, Normals, Normals | None]]:
        samples = prefetch_samples(data)
        for sample in tqdm(samples, desc="evaluate", unit="image", total=len(data), delay=1):
            yield sample.name, predict(sample), true_normals(sample)

    def once_more(index: int) -> tuple[Sample, Normals]:
        sample = data.read(index)
        return sample, predict(sample)

    scores = evaluate(items(), protocol)
    return NormalsEvaluation(found=scores, data=data, predict=once_more, seconds=list(seconds), card=card)
