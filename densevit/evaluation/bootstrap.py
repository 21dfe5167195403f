"""How far a mean over images would move if other images had been drawn (percentile bootstrap, Efron 1979).

Of few images the plain percentiles lie too near each other, and hold the truth too seldom; they are moved out as far as
Student's t lies outside of the normal distribution (the expanded percentile interval, Hesterberg 2015). Draws depend on
nothing but the number of images: the same rows give the same interval on every machine, in any order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath

import numpy as np
from jaxtyping import Float, Float64, Int64

from densevit.reporting.tables import Interval

Rows = Sequence[tuple[str, Mapping[str, float]]]

DRAWS = 2000
LEVEL = 0.95

FEWEST = 6
"""Images, or scenes, under which there is no interval: five all lie on one side of the truth once in 16 times, so that
nothing drawn from them holds it 19 times in 20."""


def intervals(rows: Rows, metrics: Iterable[str], groups: Mapping[str, str] | None = None) -> dict[str, Interval]:
    """The interval of each metric's mean; a metric that fewer than FEWEST images or groups have gets none.

    Args:
        groups: image -> what is drawn as a whole, the scene say; None draws single images.
    """
    metrics = list(metrics)
    ordered = sorted(rows, key=lambda row: row[0])
    values = np.array([[row.get(metric, np.nan) for metric in metrics] for _, row in ordered])
    names = [name if groups is None else groups[name] for name, _ in ordered]
    return dict(_intervals(values, names, metrics))


def _intervals(values: Float64[np.ndarray, "n k"], names: list[str], metrics: list[str]) -> list[tuple[str, Interval]]:
    _, group = np.unique(names, return_inverse=True)
    known = np.isfinite(values)
    sums, counts = (np.zeros((group.max() + 1, len(metrics))) for _ in range(2))
    np.add.at(sums, group, np.where(known, values, 0))
    np.add.at(counts, group, known)
    if len(sums) < FEWEST:
        return []
    drawn = draw(len(sums))
    total = drawn @ counts
    means = np.divide(drawn @ sums, total, out=np.full_like(total, np.nan), where=total > 0)
    having = np.count_nonzero(counts, axis=0)
    return [
        (metric, middle(means[:, i], int(n)))
        for i, (metric, n) in enumerate(zip(metrics, having, strict=True))
        if n >= FEWEST
    ]


def draw(n: int) -> Float64[np.ndarray, "draws n"]:
    """How often each of n things is drawn when n are, with replacement."""
    return np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(np.float64)


def middle(values: Float[np.ndarray, " draws"], n: int) -> Interval:
    """What holds the mean of n things in LEVEL of all cases, by the values of redrawn ones that are there."""
    low, high = np.nanquantile(values, (tail(n), 1 - tail(n)))
    return float(low), float(high)


@cache
def tail(n: int) -> float:
    """The share of redrawn values to leave out at either end: (1 - LEVEL) / 2 of many things, less of few."""
    from scipy.special import ndtr, stdtrit  # scikit-image's own requirement

    return float(ndtr(np.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 - LEVEL) / 2)))


def pooled_intervals(
    counts: Int64[np.ndarray, "n *rest"],
    statistics: Callable[[Int64[np.ndarray, "draws *rest"]], Mapping[str, Float[np.ndarray, "draws *one"]]],
    groups: Sequence[str],
) -> dict[str, Interval]:
    """Intervals of what is computed from summed counts, `name/3` for the parts of a statistic that has several.

    Args:
        groups: what is drawn as a whole, for each row of counts: its own name, or the scene's. Under FEWEST give none.
    """
    names, group = np.unique(np.array(groups), return_inverse=True)
    if len(names) < FEWEST:
        return {}
    sums = np.zeros((len(names), *counts.shape[1:]), np.int64)
    np.add.at(sums, group, counts)
    drawn = (draw(len(names)) @ sums.reshape(len(names), -1)).round().astype(np.int64)
    found: dict[str, Interval] = {}
    for name, values in statistics(drawn.reshape(DRAWS, *counts.shape[1:])).items():
        columns = {name: values} if values.ndim == 1 else {f"{name}/{i}": v for i, v in enumerate(values.T)}
        found |= {key: middle(column, len(names)) for key, column in columns.items() if not np.isnan(column).all()}
    return found


def no_interval_reason(images: int) -> list[str]:
    """Why there are no intervals, where that is for want of images."""
    return [f"no intervals, since fewer than {FEWEST} images tell too little of others"] if images < FEWEST else []


def scenes_of(names: Iterable[str]) -> dict[str, str]:
    """Image -> scene: the folder that a name has before it."""
    return {name: PurePosixPath(name).parent.as_posix() for name in names}
