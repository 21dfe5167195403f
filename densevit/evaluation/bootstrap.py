"""How far a mean over images would move if other images had been drawn (percentile bootstrap, Efron 1979).

Draws depend on nothing but the number of images: the same rows give the same interval on every machine, in any order.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

import numpy as np
from jaxtyping import Float64

Interval = tuple[float, float]
Rows = Sequence[tuple[str, Mapping[str, float]]]

DRAWS = 2000
LEVEL = 0.95


def intervals(rows: Rows, metrics: Iterable[str], groups: Mapping[str, str] | None = None) -> dict[str, Interval]:
    """The interval of each metric's mean; a metric that fewer than two images or groups have gets none.

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
    n = len(sums)
    if n < 2:
        return []
    drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=DRAWS).astype(np.float64)
    total = drawn @ counts
    means = np.divide(drawn @ sums, total, out=np.full_like(total, np.nan), where=total > 0)
    tail = (1 - LEVEL) / 2
    found = []
    for i, metric in enumerate(metrics):
        if np.count_nonzero(counts[:, i]) > 1:
            low, high = np.nanquantile(means[:, i], (tail, 1 - tail))
            found.append((metric, (float(low), float(high))))
    return found


def scenes_of(names: Iterable[str]) -> dict[str, str]:
    """Image -> scene: the folder that a name has before it."""
    return {name: PurePosixPath(name).parent.as_posix() for name in names}
