"""Which of two points is closer: accuracy on pairs that people have labelled (DA-2K of Depth Anything V2)."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from densevit.errors import DataError

Point = tuple[int, int]


@dataclass(frozen=True)
class Pair:
    """Two pixels (row, column) of an image of which the first is closer."""

    closer: Point
    farther: Point


def read_pairs(path: Path) -> dict[str, list[Pair]]:
    """DA-2K's `annotations.json`: image -> pairs; `point1` and `point2` are [row, column], `closer_point` names one.

    Raises:
        DataError: it is missing or something else.
    """
    try:
        tree: Mapping[str, Sequence[Mapping[str, Any]]] = json.loads(path.read_text())
        return {image: [_pair(entry) for entry in entries] for image, entries in tree.items()}
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: no list of pairs as DA-2K has it ({error}).") from None


def _pair(entry: Mapping[str, Any]) -> Pair:
    points = {name: (int(entry[name][0]), int(entry[name][1])) for name in ("point1", "point2")}
    closer = points.pop(entry["closer_point"])
    return Pair(closer, points.popitem()[1])


def pair_accuracy(prediction: Float[np.ndarray, "h w"], pairs: Sequence[Pair], *, disparity: bool) -> float:
    """Share of the pairs that a prediction of the image's size orders as people do; equal values are wrong.

    Raises:
        DataError: a point outside, or no pair.
    """
    if not pairs:
        raise DataError("no pairs to compare.")
    h, w = prediction.shape
    for row, column in (point for pair in pairs for point in (pair.closer, pair.farther)):
        if not (0 <= row < h and 0 <= column < w):
            raise DataError(f"a point at row {row}, column {column} of a {h}x{w} prediction.")
    sign = 1 if disparity else -1
    right = [sign * prediction[pair.closer] > sign * prediction[pair.farther] for pair in pairs]
    return float(np.mean(right))


def ordinal_accuracy(
    pairs: Mapping[str, Sequence[Pair]], read: Callable[[str], Float[np.ndarray, "h w"]], *, disparity: bool
) -> tuple[float, dict[str, float]]:
    """Accuracy over all pairs, as DA-2K is reported, and of each image.

    Args:
        read: image -> its prediction, at the image's size.
    """
    found = {image: pair_accuracy(read(image), listed, disparity=disparity) for image, listed in pairs.items()}
    total = sum(len(listed) for listed in pairs.values())
    return sum(found[image] * len(listed) for image, listed in pairs.items()) / total, found
