"""Splits of consecutive images into blocks of time: neighbouring frames show the same, so a split by chance leaks."""

import re
from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import Field

T = TypeVar("T")

ValFraction = Annotated[float, Field(ge=0, lt=1)]

GAP = 0.25  # of the frames of `val`: the end of `train` is in view at the beginning of `val`, too
FEWEST = 16  # numbered images of a folder that count as a video
NUMBERED = re.compile(r"\d+$")


def is_consecutive(names: Sequence[str]) -> bool:
    """Return whether the images of a folder look like frames of a video: numbered, and not too few."""
    return len(names) >= FEWEST and all(NUMBERED.search(name) for name in names)


def split_blocks(frames: Sequence[T], split: Literal["all", "train", "val"], val_fraction: float) -> list[T]:
    """Return the frames of a split of one sequence in order of time.

    `val` is the end of the sequence, at least one frame; as many frames as a quarter of it, before its beginning, are
    in neither split.
    """
    if split == "all" or not val_fraction:
        return list(frames) if split != "val" else []
    first = len(frames) - max(1, round(val_fraction * len(frames)))
    gap = round(GAP * (len(frames) - first))
    return list(frames[first:] if split == "val" else frames[: max(0, first - gap)])
