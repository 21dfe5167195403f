"""Evaluates a stream of normals: scores per image, and of the data set as a protocol pools them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Int64

from densevit.errors import ConfigError, DataError
from densevit.evaluation.bootstrap import intervals, scenes_of
from densevit.evaluation.normals.metrics import WITHIN, Normals, angular_errors, is_larger_better, mean_row, summarise
from densevit.evaluation.records import examples, split_scored_and_skipped
from densevit.registry import did_you_mean
from densevit.reporting.tables import Interval
from densevit.structures import Row

BINS = 180_000  # of the histogram of errors, of a thousandth of a degree each: a pooled median is exact to half of that


@dataclass(frozen=True, kw_only=True)
class NormalsProtocol:
    """How the errors of many images become one number.

    Attributes:
        pool: `pixels` takes those of all images together; `images` averages the scores of each image.
        digits: to which the published program rounds the scores of an image; here they are not rounded.
        source: the program it repeats, `repository: file`.
    """

    name: str
    description: str
    source: str
    pool: Literal["pixels", "images"]
    digits: int | None = None


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        NormalsProtocol(
            name="dsine",
            description="all pixels of the data set with a true normal, pooled",
            source="baegwangbin/DSINE: projects/dsine/test.py",
            pool="pixels",
        ),
        NormalsProtocol(
            name="marigold",
            description="the scores of each image, over its pixels with a true normal, averaged over images",
            source="prs-eth/Marigold: script/normals/eval.py",
            pool="images",
            digits=4,
        ),
    )
}


def find_protocol(name: str) -> NormalsProtocol:
    """
    Raises:
        ConfigError: no such protocol.
    """
    if name not in PROTOCOLS:
        raise ConfigError(f"no protocol '{name}' for normals.{did_you_mean(name, PROTOCOLS)}")
    return PROTOCOLS[name]


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


@dataclass(frozen=True)
class NormalsScores:
    """The scores of a data set.

    Attributes:
        rows: name and scores of every image with true normals, in the order they came.
        mean: of the data set, as the protocol pools it.
        skipped: names of the images without true normals.
        pixels: that were scored.
    """

    protocol: NormalsProtocol
    rows: Sequence[tuple[str, Row]]
    mean: Row
    skipped: Sequence[str]
    pixels: int

    @cached_property
    def intervals(self) -> Mapping[str, Interval]:
        """95% bootstrap interval of each mean over images; none where pixels are pooled, or of too few images."""
        return {} if self.protocol.pool == "pixels" else intervals(self.rows, self.mean)

    @cached_property
    def scene_intervals(self) -> Mapping[str, Interval]:
        """The same with whole scenes as the sample."""
        if self.protocol.pool == "pixels":
            return {}
        return intervals(self.rows, self.mean, scenes_of(name for name, _ in self.rows))

    def examples(self, metric: str = "mean") -> dict[str, str]:
        """Label -> name of the best, the median and the worst images."""
        sign = -1 if is_larger_better(metric) else 1
        return examples([name for name, _ in sorted(self.rows, key=lambda item: sign * item[1][metric])])


def evaluate(items: Iterable[tuple[str, Normals, Normals | None]], protocol: NormalsProtocol) -> NormalsScores:
    """Scores name, predicted and true normals (None for an image without) of each image.

    Raises:
        DataError: maps of different sizes, with the image's name; a name that comes twice, or nothing to score.
    """
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
