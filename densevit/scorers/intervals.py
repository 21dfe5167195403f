"""Calibrates the depth intervals of a model on images that it was not trained on."""

import logging
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from densevit.data.datasets.base import Dataset
from densevit.data.loading.prefetch import prefetch_samples
from densevit.depth_corrections import Interval
from densevit.errors import ConfigError
from densevit.evaluation.uncertainty.conformal import Scores, calibrate, image_scores
from densevit.inference.predictor import Predictor
from densevit.model_card import ModelCard, uncertainty_of
from densevit.scorers.base import input_of
from densevit.utils.progress import tqdm

log = logging.getLogger(__name__)


def calibrate_intervals(
    predictor: Predictor, data: Dataset, *, level: float = 0.9, head: str | None = None, name: str = ""
) -> tuple[str, Interval]:
    """The head and its interval that holds `level` of the pixels of `data`.

    Args:
        head: of a model that has several that give metric depth with uncertainty.
        name: of the data, for the card.

    Raises:
        ConfigError: no such head, or a level that is no share.
        DataError: too few images.
    """
    if not 0 < level < 1:
        raise ConfigError(f"level is {level}; it is a share between 0 and 1, 0.9 say.")
    chosen = predictor.card.head_for(("metric",), [head] if head else (), "intervals")
    doubt = uncertainty_of(chosen)
    if doubt not in predictor.card.outputs:
        raise ConfigError(f"head '{chosen}' predicts no uncertainty; train it with `uncertainty: laplace`.")
    near, far = data.depth_range

    def scores() -> Iterator[Scores]:
        for sample in tqdm(prefetch_samples(data), desc="calibrate", unit="image", total=len(data), delay=1):
            if sample.depth is None or sample.valid is None:
                continue
            maps = predictor.predict_all(input_of(predictor, sample))
            counted = sample.valid & (sample.depth > near) & (sample.depth < far) & (maps[chosen] > 0)
            p, d, b = (m[counted].astype(np.float64) for m in (maps[chosen], sample.depth, maps[doubt]))
            yield image_scores(p, d, b)

    interval = calibrate(scores(), level, name)
    if warning := interval.warning():
        log.warning("%s", warning)
    return chosen, interval


def with_interval(card: ModelCard, head: str, interval: Interval) -> ModelCard:
    """The card with the interval of a head."""
    return replace(card, outputs={**card.outputs, head: replace(card.outputs[head], interval=interval)})
