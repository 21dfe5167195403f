"""Evaluates a stream of depth predictions: scores per image, means, intervals, and what was left out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import Any

from densevit.errors import DataError
from densevit.evaluation.bootstrap import intervals, scenes_of
from densevit.evaluation.depth.extra_metrics import is_larger_better
from densevit.evaluation.depth.metrics import METRICS
from densevit.evaluation.depth.protocol import COUNTS, Protocol
from densevit.evaluation.records import examples, split_scored_and_skipped
from densevit.reporting.tables import Interval
from densevit.structures import Row
from densevit.utils.progress import tqdm

Item = tuple[Any, ...]
"""Name, prediction, depth in metres, where depth was measured (None for an image without); the camera's intrinsics
where they are known; the predicted uncertainty where there is one, and its calibrated interval (`Protocol.score`)."""


@dataclass(frozen=True)
class Evaluation:
    """The scores of a data set under one protocol.

    Attributes:
        rows: name and scores of every image with ground truth that counts, in the order they came.
        mean: of each metric over these images.
        skipped: names of the images without such ground truth.
        counts: images, scored, skipped; pixels, invalid predictions and clamped ones among them; images with invalid
            predictions; resized predictions.
    """

    protocol: Protocol
    rows: Sequence[tuple[str, Row]]
    mean: Row
    skipped: Sequence[str]
    counts: dict[str, int]

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """95% bootstrap interval of each mean, the images being the sample; none of too few (bootstrap.FEWEST)."""
        return intervals(self.rows, self.mean)

    @cached_property
    def scene_intervals(self) -> dict[str, Interval]:
        """The same with whole scenes as the sample, wider where images of a scene are alike; none of too few."""
        return intervals(self.rows, self.mean, scenes_of(name for name, _ in self.rows))

    @cached_property
    def scenes(self) -> dict[str, Row]:
        """The mean row of each scene; none where the names tell of none."""
        found: dict[str, list[Row]] = {}
        scene = scenes_of(name for name, _ in self.rows)
        for name, row in self.rows:
            found.setdefault(scene[name], []).append(row)
        return {name: mean_row(rows) for name, rows in found.items()} if len(found) > 1 else {}

    def ranked(self, metric: str = "abs_rel") -> list[str]:
        """Names of the images, the best first."""
        sign = -1 if is_larger_better(metric) else 1
        return [name for name, _ in sorted(self.rows, key=lambda item: sign * item[1][metric])]

    def examples(self, metric: str = "abs_rel") -> dict[str, str]:
        """Label -> name of the best, the median and the worst images."""
        return examples(self.ranked(metric))


def evaluate(
    items: Iterable[Item],
    protocol: Protocol,
    *,
    metrics: Sequence[str] = (),
    progress: bool = False,
    total: int | None = None,
) -> Evaluation:
    """Scores a stream; one item is held at a time.

    Args:
        metrics: sets of metrics beside the usual nine.
        progress: show a bar; `total` is its length.

    Raises:
        DataError: an image that does not fit the protocol, by name; a name that comes twice; nothing to score.
    """
    return evaluate_all(items, [protocol], metrics=metrics, progress=progress, total=total)[0]


def evaluate_all(
    items: Iterable[Item],
    protocols: Sequence[Protocol],
    *,
    metrics: Sequence[str] = (),
    progress: bool = False,
    total: int | None = None,
) -> list[Evaluation]:
    """Scores a stream under several protocols at once, reading it once."""
    named = f"evaluate {protocols[0].name}" if len(protocols) == 1 else f"evaluate {len(protocols)} protocols"
    bar = tqdm(items, desc=named, unit="image", total=total, delay=1, disable=not progress)
    return collect((score_item(item, protocols, metrics) for item in bar), protocols)


ParallelMap = Callable[[Callable[[int], Any], int], Iterable[Any]]


def _one_by_one(work: Callable[[int], Any], count: int) -> Iterable[Any]:
    return map(work, range(count))


def evaluate_indexed(
    read: Callable[[int], Item],
    count: int,
    protocols: Sequence[Protocol],
    *,
    metrics: Sequence[str] = (),
    spread: ParallelMap = _one_by_one,
    progress: bool = False,
) -> list[Evaluation]:
    """Scores `count` items that can be read in any order; the same bits however the work is spread.

    Args:
        spread: has work(0), work(1), ... done, by several processes say, and hands the results over in order.
    """
    rows = spread(lambda index: score_item(read(index), protocols, metrics), count)
    bar = tqdm(rows, total=count, desc="evaluate", unit="image", delay=1, disable=not progress)
    return collect(iter(bar), protocols)


Scores = tuple[str, list[Row]]
"""The rows of one image, one per protocol."""


def score_item(item: Item, protocols: Sequence[Protocol], metrics: Sequence[str]) -> Scores:
    """One image under each protocol.

    Raises:
        DataError: it does not fit, with its name.
    """
    name, *maps = item
    if maps[1] is None:  # a data set may have images without depth among others
        return name, [{} for _ in protocols]
    try:
        return name, [protocol.score(*maps, metrics=metrics) for protocol in protocols]
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def collect(scores: Iterable[Scores], protocols: Sequence[Protocol]) -> list[Evaluation]:
    """One evaluation per protocol out of the rows of all images."""
    kept = list(scores)
    return [summarise([(name, rows[i]) for name, rows in kept], protocol) for i, protocol in enumerate(protocols)]


def summarise(rows: Iterable[tuple[str, Row]], protocol: Protocol) -> Evaluation:
    """The evaluation that a set of rows makes, empty ones for images without ground truth; exact in any order.

    Rows gathered from several processes give the same numbers as one process would.

    Raises:
        DataError: a name that comes twice; nothing to score.
    """
    scored, skipped = split_scored_and_skipped(rows)
    if not scored:
        raise DataError(
            f"nothing to score under '{protocol.name}': none of {len(skipped)} images has ground truth that counts."
        )
    mean = mean_row([row for _, row in scored])
    return Evaluation(protocol, scored, mean, skipped, _counts([row for _, row in scored], len(skipped)))


def mean_row(rows: Sequence[Row]) -> Row:
    """The mean of each metric over the images that have it, the nine first; exact in any order."""
    values: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for row in rows:
        for metric, value in row.items():
            if metric not in COUNTS:
                values.setdefault(metric, []).append(value)
    return {metric: fsum(column) / len(column) for metric, column in values.items() if column}


def _counts(scored: Sequence[Row], skipped: int) -> dict[str, int]:
    invalid = [int(row["invalid_predictions"]) for row in scored]
    return {
        "images": len(scored) + skipped,
        "scored": len(scored),
        "skipped": skipped,
        "pixels": sum(int(row["pixels"]) for row in scored),
        "invalid_predictions": sum(invalid),
        "clamped_predictions": sum(int(row["clamped"]) for row in scored),
        "images_with_invalid_predictions": sum(n > 0 for n in invalid),
        "resized_predictions": sum(int(row["resized"]) for row in scored),
    }
