"""Surface normals: angular errors (Eigen and Fergus 2015; Bae et al. 2021), protocols, and the scores of a data set.

h x w pixels, degrees.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float32, Int64

from densevit.errors import ConfigError, DataError, located
from densevit.evaluation.bootstrap import no_interval_reason
from densevit.evaluation.scores import Cards, Scores, register_metrics, split_scored_and_skipped
from densevit.registry import did_you_mean
from densevit.reporting.figures import Figure
from densevit.structures import Row

WITHIN = (5.0, 7.5, 11.25, 22.5, 30.0)
FORMULAE = {
    "mean": "mean(a) in degrees, with a the angle between predicted and true normal",
    "median": "median(a) in degrees",
    "rmse": "sqrt(mean(a^2)) in degrees",
}
LARGER = {f"within_{limit:g}": f"percentage of pixels with a < {limit:g} degrees" for limit in WITHIN}
register_metrics("normals", FORMULAE)
register_metrics("normals", LARGER, "max", 100.0)

Normals = Float[np.ndarray, "_ _ 3"]  # maps that may not fit each other


def angular_errors(prediction: Normals, truth: Normals) -> Float32[np.ndarray, " n"]:
    """Return the angle of every pixel with a true normal; 180 degrees where the prediction is none (0 or not finite).
    Raises DataError if the maps differ in size."""
    if prediction.shape != truth.shape:
        raise DataError(f"the prediction is {prediction.shape}, the ground truth {truth.shape} (h, w, 3).")
    valid = (truth != 0).any(axis=2)
    p, t = prediction[valid].astype(np.float64), truth[valid].astype(np.float64)
    lengths = np.linalg.norm(p, axis=1) * np.linalg.norm(t, axis=1)
    usable = np.isfinite(lengths) & (lengths > 0)
    cosine = np.divide((p * t).sum(1), lengths, out=np.full(len(p), -1.0), where=usable)
    return np.asarray(np.degrees(np.arccos(cosine.clip(-1, 1))).astype(np.float32))


def summarise(errors: Float32[np.ndarray, " n"]) -> Row:
    """Return the scores of one or more pixels."""
    wide = errors.astype(np.float64)
    return {
        "mean": float(wide.mean()),
        "median": float(np.median(wide)),
        "rmse": float(np.sqrt((wide * wide).mean())),
        **{f"within_{limit:g}": float(100 * (wide < limit).mean()) for limit in WITHIN},
    }


def mean_row(rows: Sequence[Row]) -> Row:
    """Return the mean of each score over images."""
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


@dataclass(frozen=True, kw_only=True)
class NormalsProtocol:
    """How the errors of many images become one number."""

    name: str
    description: str
    source: str  # the program it repeats, `repository: file`
    # `pixels` takes those of all images together; `images` averages the scores of each image
    pool: Literal["pixels", "images"]
    digits: int | None = None  # to which the published program rounds the scores of an image; here they are not rounded


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
    """Raise ConfigError: no such protocol."""
    if name not in PROTOCOLS:
        raise ConfigError(f"no protocol '{name}' for normals.{did_you_mean(name, PROTOCOLS)}")
    return PROTOCOLS[name]


@dataclass(frozen=True)
class NormalsScores(Scores):
    """The scores of a data set."""

    protocol: NormalsProtocol
    rows: Sequence[tuple[str, Row]]
    mean: Row  # of the data set, as the protocol pools it
    skipped: Sequence[str]
    pixels: int  # that were scored

    task = "normals"
    ranking = "mean"
    width = 13

    @property
    def resampled(self) -> bool:  # type: ignore[override]
        return self.protocol.pool != "pixels"

    @property
    def name(self) -> str:
        return self.protocol.name

    @property
    def protocol_text(self) -> str:
        return f"{self.name}: {self.protocol.description} ({self.protocol.source}); degrees and percent"

    @property
    def counts(self) -> dict[str, int]:  # type: ignore[override]
        return {"images": len(self.rows) + len(self.skipped), "scored": len(self.rows), "pixels": self.pixels}

    def summary_sentence(self) -> str:
        images = len(self.rows) + len(self.skipped)
        parts = [f"{len(self.rows):,} of {images:,} images scored, {self.pixels:,} pixels"]
        parts += [f"{len(self.skipped):,} without true normals"] if self.skipped else []
        parts += no_interval_reason(len(self.rows)) if self.protocol.pool == "images" else []
        return "; ".join(parts) + "."

    def cards(self) -> Cards:
        return [
            ("Mean angle", f"{self.mean['mean']:.2f}°", "of the pixels, to the truth"),
            ("Median angle", f"{self.mean['median']:.2f}°", "of the pixels"),
            ("Within 11.25°", f"{self.mean['within_11.25']:.1f}%", "of the pixels"),
        ]

    def entries(self) -> dict[str, Any]:
        return {"protocol": asdict(self.protocol)}

    def page(self, figures: Sequence[Figure], baseline: Row | None) -> dict[str, Any]:
        note = "Normals in camera axes: red is to the right, green up, blue towards the camera."
        return {**super().page(figures, baseline), "note": note}


@dataclass
class PooledErrors:
    """Angular errors of many images, as sums and a histogram of `bins` from 0 to 180 degrees, by which a median is
    exact to half a bin."""

    bins: int = 180_000
    pixels: int = 0
    total: float = 0.0
    squares: float = 0.0
    within: Int64[np.ndarray, " limits"] = field(default_factory=lambda: np.zeros(len(WITHIN), np.int64))
    histogram: Int64[np.ndarray, " bins"] | int = 0

    def add(self, errors: Float32[np.ndarray, " n"]) -> None:
        wide = errors.astype(np.float64)
        self.pixels += len(wide)
        self.total += float(wide.sum())
        self.squares += float((wide * wide).sum())
        self.within += [int(np.count_nonzero(wide < limit)) for limit in WITHIN]
        self.histogram += np.bincount((wide * (self.bins / 180)).astype(np.int64), minlength=self.bins + 1)

    def merge(self, other: "PooledErrors") -> None:
        self.pixels += other.pixels
        self.total += other.total
        self.squares += other.squares
        self.within += other.within
        self.histogram += other.histogram

    def row(self) -> Row:
        middle = int(np.searchsorted(np.cumsum(self.histogram), (self.pixels + 1) // 2))
        return {
            "mean": self.total / self.pixels,
            "median": (middle + 0.5) * 180 / self.bins,
            "rmse": (self.squares / self.pixels) ** 0.5,
            **{f"within_{limit:g}": 100 * float(n) / self.pixels for limit, n in zip(WITHIN, self.within, strict=True)},
        }


def as_row(prediction: Normals, truth: Normals) -> dict[str, Any]:
    """Return the errors of one image, to be pooled; empty where no true normal is known."""
    pooled = PooledErrors(bins=3_600)  # 29 kB for each image of a validation
    pooled.add(angular_errors(prediction, truth))
    return {"errors": pooled} if pooled.pixels else {}


def pooled_scores(rows: Sequence[Mapping[str, Any]]) -> Row:
    """Return the scores of the pooled pixels of all images, as the protocol `dsine` does; the median is exact to 0.025
    degrees."""
    pooled = PooledErrors(bins=rows[0]["errors"].bins)
    for row in rows:
        pooled.merge(row["errors"])
    return pooled.row()


def evaluate(items: Iterable[tuple[str, Normals, Normals | None]], protocol: NormalsProtocol) -> NormalsScores:
    """Score name, predicted and true normals (None for an image without) of each image. Raises DataError: maps of
    different sizes, with the image's name; a name that comes twice, or nothing to score."""
    pooled = PooledErrors()

    def rows() -> Any:
        for name, prediction, truth in items:
            if truth is None:
                yield name, {}
                continue
            with located(name):
                errors = angular_errors(prediction, truth)
            pooled.add(errors)
            yield name, summarise(errors) if len(errors) else {}

    scored, skipped = split_scored_and_skipped(rows())
    if not scored:
        raise DataError(f"none of {len(skipped)} images has true normals, or depth with intrinsics to make them of.")
    mean = pooled.row() if protocol.pool == "pixels" else mean_row([row for _, row in scored])
    return NormalsScores(protocol, scored, mean, skipped, pooled.pixels)
