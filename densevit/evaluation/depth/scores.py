"""Evaluates a stream of depth predictions: scores per image, means, intervals, and what was left out."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from math import fsum
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from markupsafe import Markup

from densevit.errors import DataError, located
from densevit.evaluation.bootstrap import no_interval_reason, scenes_of
from densevit.evaluation.depth.metrics import METRICS, formula
from densevit.evaluation.depth.protocol import COUNTS, Protocol
from densevit.evaluation.depth.protocol_text import describe
from densevit.evaluation.scores import WORST, Cards, Scores, split_scored_and_skipped
from densevit.reporting.figures import Figure
from densevit.reporting.html_page import Bar, Points, axis, bar_chart, line_chart
from densevit.reporting.tables import rows_csv
from densevit.structures import Row
from densevit.utils.output import tqdm

BINS = 8  # of the histogram of images; with fewer images there is none


@dataclass(frozen=True)
class DepthScores(Scores):
    """The scores of a data set under one protocol."""

    protocol: Protocol
    rows: Sequence[tuple[str, Row]]
    mean: Row
    skipped: Sequence[str]
    # images, scored, skipped; pixels, invalid predictions and clamped ones among them; images with invalid predictions;
    # resized predictions
    counts: dict[str, int]

    task = "depth"
    ranking = "abs_rel"
    width = 10

    @cached_property
    def scenes(self) -> dict[str, Row]:
        """The mean row of each scene; empty if names do not tell scenes apart."""
        by_scene: dict[str, list[Row]] = {}
        scene = scenes_of(name for name, _ in self.rows)
        for name, row in self.rows:
            by_scene.setdefault(scene[name], []).append(row)
        return {name: mean_row(rows) for name, rows in by_scene.items()} if len(by_scene) > 1 else {}

    @property
    def name(self) -> str:
        return self.protocol.name

    @property
    def protocol_text(self) -> str:
        return describe(self.protocol)

    def formula(self, metric: str) -> str:
        return formula(metric)

    def columns(self) -> Sequence[str]:
        return METRICS

    def details(self) -> list[str]:
        further = [metric for metric in self.mean if metric not in METRICS and not metric.endswith("%")]
        return [*map(self._line, further), ""]

    def _line(self, metric: str) -> str:
        ends = self.intervals.get(metric)
        text = "" if ends is None else f"  [{ends[0]:.4f}, {ends[1]:.4f}]"
        return f"{metric:>24}{self.mean[metric]:12.4f}{text}"

    def summary_sentence(self) -> str:
        counts = self.counts
        parts = [f"{counts['scored']:,} of {counts['images']:,} images scored, {counts['pixels']:,} pixels"]
        if counts["skipped"]:
            parts.append(f"{counts['skipped']:,} without ground truth that counts")
        if counts["invalid_predictions"]:
            images = counts["images_with_invalid_predictions"]
            parts.append(f"{counts['invalid_predictions']:,} invalid predictions in {images:,} images")
        if counts["clamped_predictions"]:
            share = counts["clamped_predictions"] / counts["pixels"]
            parts.append(f"{counts['clamped_predictions']:,} predictions ({share:.1%}) clamped to the range")
        if counts["resized_predictions"]:
            parts.append(f"{counts['resized_predictions']:,} predictions resized")
        return "; ".join([*parts, *no_interval_reason(counts["scored"])]) + "."

    def cards(self) -> Cards:
        return [
            ("AbsRel", f"{self.mean['abs_rel']:.4f}", "mean relative error, lower is better"),
            ("δ < 1.25", f"{self.mean['d1']:.1%}", "of the pixels are within 25% of the truth"),
            ("RMSE", f"{self.mean['rmse']:.3f} m", "root mean square error, lower is better"),
        ]

    def entries(self) -> dict[str, Any]:
        return {
            "protocol": {**_plain(asdict(self.protocol)), "description": describe(self.protocol)},
            "scenes": self.scenes,
            "worst": self.ranked()[::-1][:WORST],
        }

    def files(self) -> dict[str, str | bytes]:
        """Return per_image.csv: a line per image in full precision; what an image does not have is empty."""
        return {"per_image.csv": rows_csv("name", [*self.mean, *COUNTS], self.rows, self.skipped)}

    def page_metrics(self) -> Sequence[str]:
        return [*METRICS, *(name for name in self.mean if name not in METRICS and "@" not in name)]

    def page(self, figures: Sequence[Figure], baseline: Row | None) -> dict[str, Any]:
        values = super().page(figures, baseline)
        if baseline is not None:
            model, constant = self.mean["abs_rel"], baseline["abs_rel"]
            first, *rest = self.cards()
            ratio = f"{model / constant:.3f}" if constant else "–"
            compared = [
                ("AbsRel", f"{constant:.4f}", "of the best constant map"),
                ("Ratio", ratio, "model / constant map"),
            ]
            values["cards"] = [first, *compared, *rest]
        return {
            **values,
            "template": "depth_report.html",
            "curves": [],
            "distance": self._range_charts("m", "true distance in metres"),
            "fov": self._range_charts("deg", "horizontal field of view in degrees"),
            "uncertainty": self._uncertainty_charts(),
            "histogram": self._histogram(),
        }

    def _range_charts(self, unit: str, caption: str) -> list[Markup]:
        """Return the error by ranges of distance or of fields of view, where that was asked for and there are
        several."""
        errors = (("abs_rel", "AbsRel"), ("rmse", "RMSE in metres"), ("d1", "share within 1.25"))
        bars = {what: self._bars_by_range(base, unit) for base, what in errors}
        return [bar_chart(f"{what}, by {caption}", each) for what, each in bars.items() if len(each) > (unit == "deg")]

    def _bars_by_range(self, base: str, unit: str) -> list[Bar]:
        fitting = [name for name in self.mean if name.startswith(f"{base}@") and name.endswith(unit)]
        ends = {name: name.removeprefix(f"{base}@").removesuffix(unit) for name in fitting}
        names = sorted(ends, key=lambda name: float(ends[name].partition("-")[0]))
        return [(ends[name], self.mean[name], self.intervals.get(name)) for name in names]

    def _uncertainty_charts(self) -> list[Markup]:
        """Return the sparsification beside that of the true errors, and the coverage of intervals by distance."""
        if "coverage" not in self.mean:
            return []

        def curve(base: str) -> Points:
            points = {
                name: value for name, value in self.mean.items() if name.startswith(f"{base}@") and name[-1] == "%"
            }
            return [*((float(name.partition("@")[2][:-1]), value) for name, value in points.items()), (100.0, 0.0)]

        return [
            line_chart(
                "AbsRel without the most uncertain % of the pixels (thin: by true error)",
                curve("sparsification"),
                reference=curve("oracle"),
            ),
            *(
                bar_chart(f"coverage of intervals, by {which} distance in metres", self._bars_by_range(name, "m"))
                for name, which in (("coverage", "true"), ("coverage_predicted", "predicted"))
            ),
        ]

    def _histogram(self) -> Markup | None:
        """Return how the error is spread over the images."""
        if len(self.rows) < BINS:
            return None
        errors = sorted(row["abs_rel"] for _, row in self.rows)
        ticks = axis([errors[0], errors[round(0.98 * (len(errors) - 1))]], BINS)
        bars: list[Bar] = [
            (f"{a:.3g}", float(sum(a <= error < b for error in errors)), None) for a, b in pairwise(ticks)
        ]
        bars.append((f"≥ {ticks[-1]:.3g}", float(sum(error >= ticks[-1] for error in errors)), None))
        return bar_chart("images by AbsRel", bars)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def mean_row(rows: Sequence[Row]) -> Row:
    """Return the mean of each metric over the images that have it, the nine first; exact in any order."""
    values: dict[str, list[float]] = {metric: [] for metric in METRICS}
    for row in rows:
        for metric, value in row.items():
            if metric not in COUNTS:
                values.setdefault(metric, []).append(value)
    return {metric: fsum(values[metric]) / len(values[metric]) for metric in ranges_in_order(values) if values[metric]}


def ranges_in_order(names: Iterable[str]) -> list[str]:
    """Return the names of metrics as they come, those by ranges last and from low to high."""
    return sorted(names, key=_range_of)


def _range_of(name: str) -> tuple[str, float]:
    """Return the unit and the lower end of `abs_rel@10-20m`."""
    begin = re.match(r"[^@]*@([\d.]+)[\d.-]*(.*)", name)
    return (begin[2], float(begin[1])) if begin else ("", 0.0)


FACTOR = 2.0  # between medians, from which on the unit is in doubt; a poor model is off by less
UNITS = (1, 100, 256, 1000, 5000, 1 / 100, 1 / 256, 1 / 1000, 1 / 5000)  # stored units per metre
TOLERANCE = 1.5  # factor by which a median may miss the unit that it tells
INVERSE = -0.5  # rank correlation under which predictions are taken for inverse depth
MAX_PIXELS = 5000  # of an image, for the ranks

Maps = tuple[Float[np.ndarray, "h w"], Float[np.ndarray, "h w"], Bool[np.ndarray, "h w"]]
"""Prediction, depth, and where depth was measured."""


def unit_warning(pairs: Iterable[Maps], scale: float | None = None) -> str:
    """Return what is wrong with the unit of metric predictions, and how to fix it; empty where nothing is. `pairs`: of
    some images; `scale`: stored units per metre by which the predictions were divided; None if they were not."""
    medians, correlations = [], []
    for prediction, depth, valid in pairs:
        both = valid & (prediction > 0) & np.isfinite(prediction)
        if np.count_nonzero(both) < 10:
            continue
        p, d = prediction[both], depth[both]
        medians.append((float(np.median(p)), float(np.median(d))))
        correlations.append(_rank_correlation(p, d))
    if not medians:
        return ""
    p_median, d_median = (float(np.median(column)) for column in zip(*medians, strict=True))
    ratio = float(np.median([p / d for p, d in medians]))
    times = f"{ratio:.4g}" if ratio >= 1 else f"1/{1 / ratio:.4g}"
    text = f"the median prediction is {p_median:.4g} m, {times} times that of the ground truth, {d_median:.4g} m"
    if np.median(correlations) < INVERSE:
        return (
            f"predictions fall where depth rises (rank correlation {np.median(correlations):.2f}; {text}): they look "
            "like inverse depth. Use --prediction-type disparity, or invert them."
        )
    if 1 / FACTOR <= ratio <= FACTOR:
        return ""
    divisor = (scale or 1.0) * ratio
    unit = min(UNITS, key=lambda unit: abs(np.log(divisor / unit)))
    if abs(np.log(divisor / unit)) > np.log(TOLERANCE) or unit == scale:
        return (
            f"{text}. If the predictions are only known up to a factor, use --align median; if up to a factor and a "
            "shift, --prediction-type affine."
        )
    stored = f"{unit:g} units per metre" if unit >= 1 else f"units of {1 / unit:g} m"
    return f"{text}: predictions look like {stored}. Use --scale {unit:g}."


def _rank_correlation(p: Float[np.ndarray, " n"], d: Float[np.ndarray, " n"]) -> float:
    """Spearman's; 0 of constant values."""
    step = max(1, p.size // MAX_PIXELS)
    ranks = [np.unique(values[::step], return_inverse=True)[1] for values in (p, d)]
    if min(np.ptp(rank) for rank in ranks) == 0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


Item = tuple[Any, ...]
"""Name, prediction, depth in metres, where depth was measured (None for an image without); the camera's intrinsics
where they are known; the predicted uncertainty where there is one, its calibrated interval, and the kind of the
prediction (`Protocol.score`)."""


def evaluate(
    items: Iterable[Item],
    protocol: Protocol,
    *,
    metrics: Sequence[str] = (),
    progress: bool = False,
    total: int | None = None,
) -> DepthScores:
    """Score a stream; one item is held at a time. Raises DataError if an image that does not fit the protocol, by
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
    """Score `count` items that can be read in any order; the same bits however the work is spread. `spread`: has
    work(0), work(1), ... done, by several processes say, and hands the results over in order."""
    rows = spread(lambda index: score_item(read(index), protocols, metrics), count)
    bar = tqdm(rows, total=count, desc="evaluate", unit="image", delay=1, disable=not progress)
    return collect(iter(bar), protocols)


ImageRows = tuple[str, list[Row]]
"""The rows of one image, one per protocol."""


def score_item(item: Item, protocols: Sequence[Protocol], metrics: Sequence[str]) -> ImageRows:
    """Return one image under each protocol. Raises DataError if it does not fit, with its name."""
    name, *maps = item
    if maps[1] is None:  # a data set may have images without depth among others
        return name, [{} for _ in protocols]
    with located(name):
        return name, [protocol.score(*maps, metrics=metrics) for protocol in protocols]


def collect(scores: Iterable[ImageRows], protocols: Sequence[Protocol]) -> list[DepthScores]:
    """Return one evaluation per protocol out of the rows of all images."""
    scored = list(scores)
    return [summarise([(name, rows[i]) for name, rows in scored], protocol) for i, protocol in enumerate(protocols)]


def summarise(rows: Iterable[tuple[str, Row]], protocol: Protocol) -> DepthScores:
    """Return the evaluation that a set of rows makes, empty ones for images without ground truth; exact in any order.

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
