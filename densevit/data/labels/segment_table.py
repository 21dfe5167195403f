"""Which class each number in maps of segments has, as a table, and the maps.

    image,id,class,crowd
    kitchen/0001,1,chair,
    kitchen/0001,2,3,1            a class by name or by its id among the classes; crowd: a group of objects

CSV or JSONL, `segments.csv` or `segments.jsonl`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from densevit.data.index.manifest import read_table
from densevit.data.io.coco import BASE
from densevit.data.io.readers import read_stored_labels
from densevit.errors import DataError
from densevit.registry import did_you_mean

FILES = ("segments.csv", "segments.jsonl")
COLUMNS = {"image", "id", "class"}


@dataclass
class SegmentRows:
    """The segments of one image."""

    ids: list[int] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    crowd: list[bool] = field(default_factory=list)


def find_segment_table(root: Path, names: Sequence[str], images: Collection[str]) -> dict[str, SegmentRows] | None:
    """The rows of each image; None where there is no table. Raises DataError naming the line: columns are missing, an
    id that is no number or comes twice, a class that is not there, or no row of any image."""
    path = next((root / name for name in FILES if (root / name).is_file()), None)
    if path is None:
        return None
    class_ids = {name: i for i, name in enumerate(names)} | {str(i): i for i in range(len(names))}
    table: dict[str, SegmentRows] = {}
    for line, cells in read_table(path):
        if not cells.keys() >= COLUMNS:
            raise DataError(f"{path}:{line}: needs the columns image, id and class; has {', '.join(cells)}.")
        image, id_, name = (str(cells[column]).strip() for column in ("image", "id", "class"))
        rows = table.setdefault(image, SegmentRows())
        if not id_.isdecimal() or int(id_) < 1 or int(id_) in rows.ids:
            raise DataError(f"{path}:{line}: an id is a whole number from 1 on, once for each image; got '{id_}'.")
        if name not in class_ids:
            raise DataError(f"{path}:{line}: no class '{name}'.{did_you_mean(name, list(names))}")
        rows.ids.append(int(id_))
        rows.classes.append(class_ids[name])
        rows.crowd.append(str(cells.get("crowd") or "0").strip().lower() in ("1", "true"))
    if table.keys().isdisjoint(images):
        raise DataError(f"{path}: no image '{next(iter(table))}'; an image is named as in its folder, without suffix.")
    return table


def read_segment_ids(path: Path) -> Int64[np.ndarray, "h w"]:
    """The numbers in a map of segments: gray, or R + 256 G + 65536 B."""
    pixels = read_stored_labels(path).pixels.astype(np.int64)
    return pixels @ BASE if pixels.ndim == 3 else pixels
