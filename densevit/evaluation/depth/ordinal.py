"""Which of two points is closer: accuracy on pairs that people have labelled (DA-2K of Depth Anything V2)."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from densevit.errors import DataError, located
from densevit.evaluation.bootstrap import intervals, scenes_of
from densevit.reporting.tables import Interval
from densevit.utils.atomic_io import make_folder, write_text
from densevit.utils.json_files import MALFORMED, read_object

Point = tuple[int, int]


@dataclass(frozen=True)
class Pair:
    """Two pixels (row, column) of an image of which the first is closer."""

    closer: Point
    farther: Point


def read_pairs(path: Path) -> dict[str, list[Pair]]:
    """Read DA-2K's `annotations.json`: image -> pairs; `point1` and `point2` are [row, column], `closer_point` names
    one. Raises DataError if it is missing or something else."""
    tree: Mapping[str, Sequence[Mapping[str, Any]]] = read_object(path)
    try:
        return {image: [_pair(entry) for entry in entries] for image, entries in tree.items()}
    except MALFORMED as error:
        raise DataError(f"{path}: no list of pairs as DA-2K has it ({error!s:.300}).") from None


def _pair(entry: Mapping[str, Any]) -> Pair:
    points = {name: (int(entry[name][0]), int(entry[name][1])) for name in ("point1", "point2")}
    closer = points.pop(entry["closer_point"])
    return Pair(closer, points.popitem()[1])


def ordered(
    prediction: Float[np.ndarray, "h w"], pairs: Sequence[Pair], *, disparity: bool
) -> Bool[np.ndarray, " pairs"]:
    """Return which pairs a prediction of the image's size orders as people do; equal values and NaN are wrong. Raises
    DataError: a point outside, or no pair."""
    if not pairs:
        raise DataError("no pairs to compare.")
    h, w = prediction.shape
    for row, column in (point for pair in pairs for point in (pair.closer, pair.farther)):
        if not (0 <= row < h and 0 <= column < w):
            raise DataError(f"a point at row {row}, column {column} of a {h}x{w} prediction.")
    sign = 1 if disparity else -1
    return np.array([sign * prediction[pair.closer] > sign * prediction[pair.farther] for pair in pairs])


@dataclass(frozen=True)
class OrdinalScores:
    """How often a model orders two points as people do."""

    accuracy: float  # over all pairs, as DA-2K is reported
    count: int  # of pairs
    interval: Interval | None  # 95% bootstrap of the accuracy, over images; None if there are too few
    images: Mapping[str, tuple[float, int]]  # share and number of pairs of each image; groups: of each folder of images
    groups: Mapping[str, tuple[float, int]]
    title: str = ""
    source: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scores(self) -> dict[str, float]:
        return {"accuracy": self.accuracy}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        spread = "" if self.interval is None else " (95% interval: {:.4f} to {:.4f})".format(*self.interval)
        lines = [
            f"{self.accuracy:.4f} of {self.count:,} pairs in {len(self.images):,} images are ordered as people do"
            f"{spread}."
        ]
        if len(self.groups) > 1:
            lines += [f"  {name or '.'}: {share:.4f} of {count:,}" for name, (share, count) in self.groups.items()]
        return "\n".join(lines)

    def report(self, folder: str | Path) -> list[Path]:
        """Write metrics.json, with every image's scores."""
        path = make_folder(Path(folder)) / "metrics.json"
        write_text(path, json.dumps(self.to_dict(), indent=1))
        return [path]


def ordinal_scores(
    pairs: Mapping[str, Sequence[Pair]], read: Callable[[str], Float[np.ndarray, "h w"]], *, disparity: bool
) -> OrdinalScores:
    """Score every image once. `read`: image -> its prediction, at the image's size. Raises DataError: a point outside
    an image, an image without pairs, or no image; with its name."""
    if not pairs:
        raise DataError("no image with pairs.")
    rows: list[tuple[str, dict[str, float]]] = []
    image_of: dict[str, str] = {}
    for image, listed in pairs.items():
        with located(image):
            right = ordered(read(image), listed, disparity=disparity)
        for i, value in enumerate(right):
            rows.append((f"{image}#{i}", {"accuracy": float(value)}))
            image_of[f"{image}#{i}"] = image
    accuracy = float(np.mean([row["accuracy"] for _, row in rows]))
    interval = intervals(rows, ["accuracy"], image_of).get("accuracy")
    folder_of = scenes_of(image_of.values())
    return OrdinalScores(
        accuracy,
        len(rows),
        interval,
        _shares(rows, image_of),
        _shares(rows, {name: folder_of[image] for name, image in image_of.items()}),
    )


def _shares(rows: Sequence[tuple[str, Mapping[str, float]]], group: Mapping[str, str]) -> dict[str, tuple[float, int]]:
    hits: dict[str, list[float]] = {}
    for name, row in rows:
        hits.setdefault(group[name], []).append(row["accuracy"])
    return {name: (float(np.mean(values)), len(values)) for name, values in sorted(hits.items())}
