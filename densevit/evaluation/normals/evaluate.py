"""Evaluates a stream of normals: scores per image, and of the data set as a protocol pools them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from densevit.errors import DataError
from densevit.evaluation.normals.metrics import WITHIN, Normals, angular_errors, mean_row, summarise
from densevit.evaluation.normals.protocol import NormalsProtocol
from densevit.evaluation.normals.scores import NormalsScores
from densevit.evaluation.records import split_scored_and_skipped
from densevit.structures import Row

BINS = 180_000  # of the histogram of errors, of a thousandth of a degree each: a pooled median is exact to half of that


@dataclass
class PooledErrors:
    """Angular errors of many images, as sums and a histogram."""

    pixels: int = 0
    total: float = 0.0
    squares: float = 0.0
    within: dict[float, int] = field(default_factory=lambda: dict.fromkeys(WITHIN, 0))
    histogram: Int64[np.ndarray, " bins"] = field(default_factory=lambda: np.zeros(BINS + 1, np.int64))

    def add(self, errors: Float32[np.ndarray, " n"]) -> None:
        wide = errors.astype(np.float64)
        self.pixels += len(wide)
        self.total += float(wide.sum())
        self.squares += float((wide * wide).sum())
        for limit in WITHIN:
            self.within[limit] += int(np.count_nonzero(wide < limit))
        self.histogram += np.bincount((wide * (BINS / 180)).astype(np.int64), minlength=BINS + 1)

    def row(self) -> Row:
        middle = int(np.searchsorted(np.cumsum(self.histogram), (self.pixels + 1) // 2))
        return {
            "mean": self.total / self.pixels,
            "median": (middle + 0.5) * 180 / BINS,
            "rmse": (self.squares / self.pixels) ** 0.5,
            **{f"within_{limit:g}": 100 * count / self.pixels for limit, count in self.within.items()},
        }


def evaluate(items: Iterable[tuple[str, Normals, Normals | None]], protocol: NormalsProtocol) -> NormalsScores:
    """Scores name, predicted and true normals (None for an image without) of each image. Raises DataError: maps of
    different sizes, with the image's name; a name that comes twice, or nothing to score."""
    pooled = PooledErrors()

    def rows() -> Any:
        for name, prediction, truth in items:
            if truth is None:
                yield name, {}
                continue
            try:
                errors = angular_errors(prediction, truth)
            except DataError as error:
                raise DataError(f"{name}: {error}") from None
            pooled.add(errors)
            yield name, summarise(errors) if len(errors) else {}

    found, skipped = split_scored_and_skipped(rows())
    if not found:
        raise DataError(f"none of {len(skipped)} images has true normals, or depth with intrinsics to make them of.")
    mean = pooled.row() if protocol.pool == "pixels" else mean_row([row for _, row in found])
    return NormalsScores(protocol, found, mean, skipped, pooled.pixels)
