"""Evaluation of image classification: a predictor and a data set -> accuracy, top-5, confusion."""

from collections.abc import Iterator

from densevit.data.datasets.base import Dataset
from densevit.data.loading.prefetch import paired, prefetch_samples
from densevit.evaluation.classification import ClassScores, score, summarise
from densevit.inference.predictor import Predictor
from densevit.reporting.figures import Figure, classification_figure
from densevit.scorers.base import Evaluation, inference_options, input_of
from densevit.scorers.segmentation import require_same_classes
from densevit.structures import Row
from densevit.utils.output import tqdm


def evaluate_classification(predictor: Predictor, data: Dataset, *, head: str | None = None) -> Evaluation:
    """Score a model that classifies images. `head`: of a model that has several heads for classes of images. Raises
    ConfigError: no head classifies images, or several do, or its classes are not those of the data."""
    name = predictor.card.head_of(("class",), head, "--task classification")
    spec = predictor.card.outputs[name]
    require_same_classes(name, spec, data)
    scores = summarise(_rows(predictor, name, data), spec.classes)

    def draw(_: ClassScores, index: int, label: str, row: Row) -> Figure:
        sample = data.read(index)
        words = f"{spec.classes[int(row['label'])]}, no finite prediction"
        if row["predicted"] >= 0:
            predicted = spec.classes[int(row["predicted"])]
            words = f"{spec.classes[int(row['label'])]}, predicted {predicted} ({row['confidence']:.0%})"
        return classification_figure(name=sample.name, label=label, score=words, image=sample.image)

    card, inference = predictor.card.to_dict(), [inference_options(predictor)]
    return Evaluation(results=[scores], data=data, draw=draw, card=card, inference=inference)


def _rows(predictor: Predictor, head: str, data: Dataset) -> Iterator[tuple[str, Row]]:
    """Yield the name and row of every image, in the order of the data."""
    predictor.check_tileable([head])
    pairs = paired(prefetch_samples(data), lambda each: predictor.stream_all(input_of(predictor, s) for s in each))
    for sample, logits in tqdm(pairs, desc="evaluate", unit="image", total=len(data), delay=1):
        yield sample.name, {} if sample.label is None else score(logits[head], sample.label)
