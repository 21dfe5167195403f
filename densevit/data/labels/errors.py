"""The error of a label map that does not fit its classes, and its words."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from densevit.errors import DataError

# What is wrong with a label map, as types of validation issues (densevit.data.validation.issues).
BAD_LABELS = "bad_labels"
ID_BEYOND_CLASSES = "label_beyond_classes"


class LabelError(DataError):
    """A label map that does not fit its classes.

    Attributes:
        kind: BEYOND or UNFIT.
    """

    def __init__(self, message: str, kind: str = ID_BEYOND_CLASSES) -> None:
        super().__init__(message)
        self.kind = kind


def describe_ids(unknown: Int64[np.ndarray, " pixels"]) -> str:
    """Which ids, the most frequent first, and how many pixels hold them, in words."""
    ids, counts = np.unique(unknown, return_counts=True)
    most = np.argsort(-counts)[:3]
    text = ", ".join(f"id {ids[i]} in {counts[i]:,} pixels" for i in most)
    return text + (f" (and {len(ids) - 3} other ids)" if len(ids) > 3 else "")


def describe_colours(unknown: Int64[np.ndarray, " pixels"]) -> str:
    """The most frequent colour, as 0xRRGGBB, and its pixels, in words."""
    codes, counts = np.unique(unknown, return_counts=True)
    most = int(np.argmax(counts))
    code = int(codes[most])
    others = f" (and {len(codes) - 1:,} other colours)" if len(codes) > 1 else ""
    return f"{counts[most]:,} pixels of colour {code >> 16, code >> 8 & 255, code & 255}{others}, for which"


def abbreviate(ids: Sequence[int]) -> str:
    """The beginning of a list of ids, and its end."""
    text = ", ".join(map(str, ids[:12]))
    return text + (f", ... {ids[-1]}" if len(ids) > 12 else "")
