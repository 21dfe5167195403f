"""A stream of predictions with their truth becomes rows, a mean, and an account of everything left out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np
from jaxtyping import Bool, Float
from tqdm import tqdm

from densevit.errors import DataError
from densevit.evaluation.depth_metrics import METRICS
from densevit.evaluation.protocols import Protocol, Row

Item = tuple[str, Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _"], Bool[np.ndarray, "_ _"]]
"""Name, prediction, depth in metres, and where depth was measured."""


@dataclass(frozen=True)
class Evaluation:
    """The scores of a data set under one protocol.

    Attributes:
        rows: name and scores of every image with truth that counts, in the order they came.
        mean: of each metric over these images.
        skipped: names of the images without such truth.
        counts: images, scored, skipped; pixels and invalid predictions among them; images with invalid predictions;
            resized predictions.
    """

    protocol: Protocol
    rows: Sequence[tuple[str, Row]]
    mean: Row
    skipped: Sequence[str]
    counts: dict[str, int]

    def examples(self, metric: str = "abs_rel") -> dict[str, str]:
        """Names of the best, the median and the worst image by a metric that is better when smaller."""
        ranked = [name for name, _ in sorted(self.rows, key=lambda item: item[1][metric])]
        return {"best": ranked[0], "median": ranked[len(ranked) // 2], "worst": ranked[-1]}


def evaluate(
    items: Iterable[Item], protocol: Protocol, *, progress: bool = False, total: int | None = None
) -> Evaluation:
    """Scores a stream; one item is held at a time.

    Args:
        progress: show a bar; `total` is its length.

    Raises:
        DataError: an image that does not fit the protocol, by name; a name that comes twice; nothing to score.
    """
    bar = tqdm(items, desc=f"evaluate {protocol.name}", unit="image", total=total, delay=1, disable=not progress)
    return summarise(((name, _score(protocol, name, *maps)) for name, *maps in bar), protocol)


def _score(protocol: Protocol, name: str, *maps: np.ndarray) -> Row:
    try:
        return protocol.score(*maps)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def summarise(rows: Iterable[tuple[str, Row]], protocol: Protocol) -> Evaluation:
    """The evaluation that a set of rows makes, empty ones for images without truth; exact in any order.

    Rows gathered from several processes give the same numbers as one process would.

    Raises:
        DataError: a name that comes twice would weigh twice; nothing to score.
    """
    found: dict[str, Row] = {}
    for name, row in rows:
        if name in found:
            raise DataError(f"{name}: comes twice in one evaluation.")
        found[name] = row
    scored = [(name, row) for name, row in found.items() if row]
    skipped = [name for name, row in found.items() if not row]
    if not scored:
        raise DataError(f"nothing to score under '{protocol.name}': none of {len(found)} images has truth that counts.")
    mean = mean_row([row for _, row in scored])
    return Evaluation(protocol, scored, mean, skipped, _counts([row for _, row in scored], len(skipped)))


def mean_row(rows: Sequence[Row]) -> Row:
    """The mean of each metric over images; exact in any order."""
    return {metric: fsum(row[metric] for row in rows) / len(rows) for metric in METRICS}


def _counts(scored: Sequence[Row], skipped: int) -> dict[str, int]:
    invalid = [int(row["invalid_predictions"]) for row in scored]
    return {
        "images": len(scored) + skipped,
        "scored": len(scored),
        "skipped": skipped,
        "pixels": sum(int(row["pixels"]) for row in scored),
        "invalid_predictions": sum(invalid),
        "images_with_invalid_predictions": sum(n > 0 for n in invalid),
        "resized_predictions": sum(int(row["resized"]) for row in scored),
    }
