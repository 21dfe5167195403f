"""How far a mean over images would move if other images had been drawn (percentile bootstrap, Efron 1979).

Of few images the plain percentiles lie too near each other, and hold the true mean too seldom; they are moved out as
far as Student's t lies outside of the normal distribution (the expanded percentile interval, Hesterberg 2015). Draws
depend on nothing but the number of images: the same rows give the same interval on every machine, in any order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from math import isfinite
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float64, Int64

from densevit.reporting.tables import Interval

Rows = Sequence[tuple[str, Mapping[str, float]]]

DRAWS = 2000
LEVEL = 0.95

FEWEST = 6
"""Images, or scenes, under which there is no interval: five all lie on one side of the true mean once in 16 times, so
that nothing drawn from them holds it 19 times in 20."""


class Bootstrap(NamedTuple):
    """A statistic over DRAWS sets of n redrawn things; NaN where a set does not define it."""

    values: Float[np.ndarray, " draws"]
    n: int

    def interval(self) -> Interval:
        """Return what holds the true value in LEVEL of all cases."""
        low, high = np.nanquantile(self.values, (_tail(self.n), 1 - _tail(self.n)))
        return float(low), float(high)

    def p_value(self, value: float) -> float:
        """Return the two-sided p of a statistic whose true value were 0: Student's t with the bootstrap's standard
        error.

        Of skewed differences t errs too often: the larger p counts of it and of t freed of its skewness (Hall 1992, "On
        the removal of skewness by transformation"). `value`: the statistic of the things themselves.
        """
        from scipy.special import stdtr

        if not isfinite(value):  # of one image a plug-in's metric is no number
            return 1.0
        spread = float(np.nanstd(self.values))
        error = spread * (self.n / (self.n - 1)) ** 0.5
        if error <= 1e-12 * abs(value):  # the same in every image
            return float(value == 0)
        t = value / error
        skewness = float(np.nanmean(((self.values - np.nanmean(self.values)) / spread) ** 3)) if spread else 0.0
        freed = t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6
        return float(2 * stdtr(self.n - 1, -min(abs(t), abs(freed))))


def intervals(rows: Rows, metrics: Iterable[str], groups: Mapping[str, str] | None = None) -> dict[str, Interval]:
    """Return the interval of each metric's mean, as `bootstrap_means` draws it."""
    return {metric: redrawn.interval() for metric, redrawn in bootstrap_means(rows, metrics, groups).items()}


def bootstrap_means(
    rows: Rows, metrics: Iterable[str], groups: Mapping[str, str] | None = None
) -> dict[str, Bootstrap]:
    """Return the mean of each metric over redrawn images; a metric that fewer than FEWEST images or groups have is left
    out. `groups`: image -> what is drawn as a whole, the scene for example; None draws single images."""
    metrics = list(metrics)
    ordered = sorted(rows, key=lambda row: row[0])
    values = np.array([[row.get(metric, np.nan) for metric in metrics] for _, row in ordered])
    _, group = np.unique([name if groups is None else groups[name] for name, _ in ordered], return_inverse=True)
    finite = np.isfinite(values)
    sums, counts = (np.zeros((group.max() + 1, len(metrics))) for _ in range(2))
    np.add.at(sums, group, np.where(finite, values, 0))
    np.add.at(counts, group, finite)
    if len(sums) < FEWEST:
        return {}
    weights = draw(len(sums))
    total = weights @ counts
    means = np.divide(weights @ sums, total, out=np.full_like(total, np.nan), where=total > 0)
    having = np.count_nonzero(counts, axis=0).tolist()
    return {metric: Bootstrap(means[:, i], having[i]) for i, metric in enumerate(metrics) if having[i] >= FEWEST}


def bootstrap_pooled(
    counts: Int64[np.ndarray, "n *rest"],
    statistics: Callable[[Int64[np.ndarray, "draws *rest"]], Mapping[str, Float[np.ndarray, "draws *one"]]],
    groups: Sequence[str],
) -> dict[str, Bootstrap]:
    """Return what is computed from summed counts, over redrawn images; `name/3` for the parts of a statistic that has
    several. `groups`: what is drawn as a whole, for each row of counts: its own name, or the scene's. Under FEWEST give
    none."""
    names, group = np.unique(np.array(groups), return_inverse=True)
    if len(names) < FEWEST:
        return {}
    sums = np.zeros((len(names), *counts.shape[1:]), np.int64)
    np.add.at(sums, group, counts)
    drawn = (draw(len(names)) @ sums.reshape(len(names), -1)).round().astype(np.int64)
    results: dict[str, Bootstrap] = {}
    for name, values in statistics(drawn.reshape(DRAWS, *counts.shape[1:])).items():
        columns = {name: values} if values.ndim == 1 else {f"{name}/{i}": v for i, v in enumerate(values.T)}
        results |= {key: Bootstrap(column, len(names)) for key, column in columns.items() if not np.isnan(column).all()}
    return results


def draw(n: int) -> Float64[np.ndarray, "draws n"]:
    """Return how often each of n things is drawn when n are, with replacement."""
    return np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(np.float64)


@cache
def _tail(n: int) -> float:
    """Return the share of redrawn values to leave out at either end: (1 - LEVEL) / 2 of many things, less of few."""
    from scipy.special import ndtr, stdtrit

    return float(ndtr(np.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 - LEVEL) / 2)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values of several tests, adjusted so that all of them together err as seldom as one would (Holm
    1979)."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def no_interval_reason(images: int) -> list[str]:
    """Return why there are no intervals, where that is for want of images."""
    return [f"no confidence intervals, which need at least {FEWEST} images"] if images < FEWEST else []


def scenes_of(names: Iterable[str]) -> dict[str, str]:
    """Map each image to its scene: the folder that a name has before it."""
    return {name: PurePosixPath(name).parent.as_posix() for name in names}
