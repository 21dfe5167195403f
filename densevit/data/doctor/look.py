"""What is seen of one sample: plain values, measured once and kept between runs."""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from densevit.structures import IGNORE

Problem = tuple[str, str, str]
"""Kind of a finding, the file's role, and the reason in words."""


@dataclass(frozen=True)
class Look:
    """What was seen of a sample; plain values, so that it can be kept."""

    size: tuple[int, int] | None = None  # h, w of the upright image
    border: int = 0  # pixels of a white frame, on its thinnest side
    thumbnail: str = ""  # 16 x 16 gray values, base64
    share: float | None = None  # of pixels with depth; None without a depth map
    low: float = 0.0  # metres
    median: float = 0.0
    high: float = 0.0
    unknown: int = 0  # NaN and infinite values as stored
    negative: int = 0  # values below zero as stored
    labels: tuple[tuple[int, int], ...] | None = None  # class id and its pixels, 255 too; None without a label map
    problems: tuple[Problem, ...] = ()

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> "Look":
        """A look that was kept as JSON."""
        size, labels = tree["size"], tree["labels"]
        plain = {
            "size": tuple(size) if size else None,
            "labels": None if labels is None else tuple(map(tuple, labels)),
            "problems": tuple(map(tuple, tree["problems"])),
        }
        return cls(**{**tree, **plain})

    @property
    def largest_label(self) -> int | None:
        """255 apart; None where there is no other."""
        return max((id_ for id_, _ in self.labels or () if id_ != IGNORE), default=None)

    def thumb(self) -> UInt8[np.ndarray, "256"] | None:
        return np.frombuffer(base64.b64decode(self.thumbnail), np.uint8) if self.thumbnail else None


def label_pixels(looks: Iterable[Look]) -> dict[int, int]:
    """Class id -> its pixels in all label maps together."""
    total: Counter[int] = Counter()
    for look in looks:
        total.update(dict(look.labels or ()))
    return dict(total)


@dataclass(frozen=True)
class Seen:
    """A sample's files and the look at them."""

    paths: Mapping[str, Path]
    sums: Mapping[str, str]  # role -> sha256; roles whose file cannot be read are left out
    look: Look
