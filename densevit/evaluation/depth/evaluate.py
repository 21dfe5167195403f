"""Evaluates a stream of depth predictions: scores per image, means, intervals, and what was left out."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from densevit.errors import DataError
from densevit.evaluation.depth.protocol import Protocol
from densevit.evaluation.depth.scores import DepthScores, mean_row
from densevit.evaluation.metrics import split_scored_and_skipped
from densevit.structures import Row
from densevit.utils.progress import tqdm

Item = tuple[Any, ...]
"""Name, prediction, depth in metres, where depth was measured (None for an image without); the camera's intrinsics
where they are known; the predicted uncertainty where there is one, and its calibrated interval (`Protocol.score`)."""


def evaluate(
    items: Iterable[Item],
    protocol: Protocol,
    *,
    metrics: Sequence[str] = (),
    progress: bool = False,
    total: int | None = None,
) -> DepthScores:
    """Scores a stream; one item is held at a time. Raises DataError if an image that does not fit the protocol, by
    name; a name that comes twice; nothing to score. `metrics`: sets of metrics beside the usual nine; `progress`: show
    a bar; `total` is its length."""
    bar = tqdm(items, desc=f"evaluate {protocol.name}", unit="image", total=total, delay=1, disable=not progress)
    return collect((score_item(item, [protocol], metrics) for item in bar), [protocol])[0]


ParallelMap = Callable[[Callable[[int], Any], int], Iterable[Any]]


def evaluate_indexed(
    read: Callable[[int], Item],
    count: int,
    protocols: Sequence[Protocol],
    *,
    metrics: Sequence[str] = (),
    spread: ParallelMap = lambda work, count: map(work, range(count)),
    progress: bool = False,
) -> list[DepthScores]:
    """Scores `count` items that can be read in any order; the same bits however the work is spread. `spread`: has
    work(0), work(1), ... done, by several processes say, and hands the results over in order."""
    rows = spread(lambda index: score_item(read(index), protocols, metrics), count)
    bar = tqdm(rows, total=count, desc="evaluate", unit="image", delay=1, disable=not progress)
    return collect(iter(bar), protocols)


Scores = tuple[str, list[Row]]
"""The rows of one image, one per protocol."""


def score_item(item: Item, protocols: Sequence[Protocol], metrics: Sequence[str]) -> Scores:
    """One image under each protocol. Raises DataError if it does not fit, with its name."""
    name, *maps = item
    if maps[1] is None:  # a data set may have images without depth among others
        return name, [{} for _ in protocols]
    try:
        return name, [protocol.score(*maps, metrics=metrics) for protocol in protocols]
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def collect(scores: Iterable[Scores], protocols: Sequence[Protocol]) -> list[DepthScores]:
    """One evaluation per protocol out of the rows of all images."""
    scored = list(scores)
    return [summarise([(name, rows[i]) for name, rows in scored], protocol) for i, protocol in enumerate(protocols)]


def summarise(rows: Iterable[tuple[str, Row]], protocol: Protocol) -> DepthScores:
    """The evaluation that a set of rows makes, empty ones for images without ground truth; exact in any order.

    Rows gathered from several processes give the same numbers as one process would. Raises DataError if a name that
    comes twice; nothing to score.
    """
    scored, skipped = split_scored_and_skipped(rows)
    if not scored:
        raise DataError(
            f"nothing to score under '{protocol.name}': none of {len(skipped)} images has ground truth that counts."
        )
    mean = mean_row([row for _, row in scored])
    return DepthScores(protocol, scored, mean, skipped, _counts([row for _, row in scored], len(skipped)))


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
