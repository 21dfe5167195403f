"""Evaluation of image classification: a predictor and a data set -> accuracy, top-5, confusion."""

from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from densevit.data.datasets.base import Dataset
from densevit.data.loading.prefetch import prefetch_samples
from densevit.errors import ConfigError
from densevit.evaluation.classification import report
from densevit.evaluation.classification.metrics import ClassScores, score, summarise
from densevit.evaluation.records import examples
from densevit.evaluators.base import Evaluation
from densevit.evaluators.segmentation import require_same_classes
from densevit.inference.predictor import Predictor
from densevit.reporting.figures import Figure, classification_figure
from densevit.reporting.tables import Interval
from densevit.structures import Row, Sample
from densevit.utils.progress import tqdm


@dataclass(frozen=True, kw_only=True)
class ClassificationEvaluation(Evaluation):
    """The scores of a model that classifies images.

    Attributes:
        found: per image and class, with the confusion matrix.
    """

    found: ClassScores = field(repr=False)

    @property
    def scores(self) -> Row:
        return self.found.mean

    @property
    def intervals(self) -> Mapping[str, Interval]:
        return {}

    @property
    def per_image(self) -> Sequence[tuple[str, Row]]:
        return self.found.rows

    def summary(self) -> str:
        return report.table(self.found)

    def write_report(self, folder: Path, *, title: str, source: Mapping[str, Any]) -> list[Path]:
        """Writes metrics.json, per_image.csv and confusion.csv."""
        return report.write_report(folder, self.found, source=source)

    def figures(self, labels: Container[str] | None = None) -> list[Figure]:
        """The best, the median and the worst images by the loss of their class.

        Args:
            labels: of `records.examples`, the images to show; None shows all.
        """
        indices = {name: index for index, name in enumerate(self.data.names)}
        words = {name: self._words(row) for name, row in sorted(self.per_image, key=lambda item: item[1]["nll"])}
        return [
            classification_figure(name=name, label=label, score=words[name], image=self.data.read(indices[name]).image)
            for label, name in examples(list(words)).items()
            if labels is None or label in labels
        ]

    def _words(self, row: Row) -> str:
        """The true and the predicted class."""
        true = self.found.classes[int(row["label"])]
        if row["predicted"] < 0:
            return f"{true}, no finite prediction"
        return f"{true}, predicted {self.found.classes[int(row['predicted'])]} ({row['confidence']:.0%})"


def evaluate_classification(
    predictor: Predictor, data: Dataset, *, head: str | None = None
) -> ClassificationEvaluation:
    """Scores a model that classifies images.

    Args:
        head: of a model that has several heads for classes of images.

    Raises:
        ConfigError: no head classifies images, or several do, or its classes are not those of the data.
    """
    name = classification_head(predictor, head)
    spec = predictor.card.outputs[name]
    require_same_classes(name, spec, data)
    scores = summarise(_rows(predictor, name, data), spec.classes)
    return ClassificationEvaluation(found=scores, data=data, card=predictor.card.to_dict())


def classification_head(predictor: Predictor, name: str | None) -> str:
    known = [key for key, spec in predictor.card.outputs.items() if spec.kind == "class"]
    if name is None and len(known) == 1:
        return known[0]
    if name not in known:
        have = ", ".join(known) or f"none, only {', '.join(predictor.card.outputs)} for `densevit eval-depth`"
        raise ConfigError(f"--head: names a head that classifies; this model has {have}.")
    return name


def _rows(predictor: Predictor, head: str, data: Dataset) -> Iterator[tuple[str, Row]]:
    """Name and row of every image, in the order of the data."""
    pending: deque[Sample] = deque()

    def images() -> Iterator[Any]:
        for sample in prefetch_samples(data):
            pending.append(sample)
            yield sample.image

    for logits in tqdm(predictor.stream_all(images()), desc="evaluate", unit="image", total=len(data), delay=1):
        sample = pending.popleft()
        yield sample.name, {} if sample.label is None else score(logits[head], sample.label)
