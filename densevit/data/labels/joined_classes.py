"""Class lists of several data sets joined into one: by equal names, or by a table.

A class that a data set does not annotate is no class of it: its pixels there are what that data set says, and ids that
the table leaves out count nowhere (IGNORE).
"""

import csv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from densevit.data.datasets.base import Dataset
from densevit.data.io.samples import segments_of, with_segments
from densevit.data.labels.class_table import EMPTY, nth_class_id
from densevit.errors import DataError
from densevit.model_card import Palette
from densevit.registry import did_you_mean
from densevit.structures import IGNORE, NO_LABEL, Sample


@dataclass(frozen=True)
class JoinedClasses:
    """The classes of a mixture."""

    names: tuple[str, ...] = ()  # in the order of their ids
    palette: Palette = ()  # colours of the classes; empty unless all have one
    # data set -> the joint id of each of its own, IGNORE where it has none
    lookups: Mapping[str, Int64[np.ndarray, " ids"]] = field(default_factory=dict)

    def map_ids(self, source: str, ids: Int64[np.ndarray, "..."]) -> Int64[np.ndarray, "..."]:
        lookup = self.lookups.get(source)
        if lookup is None:
            return ids
        return np.asarray(lookup[np.minimum(ids, lookup.size - 1)])

    def map_sample(self, source: str, sample: Sample, things: Collection[int]) -> Sample:
        """Return the sample with joint ids. `things`: the joint classes of single objects."""
        if source not in self.lookups:
            return sample
        labels = None if sample.labels is None else self.map_ids(source, sample.labels)
        label = sample.label
        if label is not None and label != NO_LABEL:
            joint = int(self.lookups[source][label])
            label = NO_LABEL if joint == IGNORE else joint
        sample = replace(sample, labels=labels, label=label)
        segments = segments_of(sample)
        if segments is None:
            return sample
        return with_segments(sample, segments.mapped(self.lookups[source][segments.classes], things))


def normalised(name: str) -> str:
    """Join names that differ in case, spaces, `_` and `-` only."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def join_by_name(sources: Mapping[str, Dataset], classes: Sequence[str] = ()) -> JoinedClasses:
    """Join equal names to one class; all others are appended in the order of the data sets. `classes`: only
    these; others are ignored."""
    names: dict[str, str] = {}
    for name in classes or [name for data in sources.values() for name in data.classes]:
        if name != EMPTY:
            names.setdefault(normalised(name), name)
    return _joined({name: {source: [name] for source in sources} for name in names.values()}, sources)


def join_by_table(path: Path, sources: Mapping[str, Dataset]) -> JoinedClasses:
    """Return the classes that a table joins; what it leaves out is ignored. Raises DataError: no such file; a column
    that is no source, a source without a column; a class that a data set has not, or that stands in two rows."""
    try:
        with open(path.expanduser(), encoding="utf-8-sig", newline="") as file:
            header, *lines = [[cell.strip() for cell in row] for row in csv.reader(file) if any(row)]
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"classes: {path} is no readable CSV table ({error}).") from None
    for column in header[1:]:
        if column not in sources:
            raise DataError(f"{path}: column '{column}' is no source with classes.{did_you_mean(column, sources)}")
    if missing := [name for name in sources if name not in header[1:]]:
        raise DataError(f"{path}: no column for {', '.join(missing)}; its columns are {', '.join(header)}.")
    rows: dict[str, dict[str, list[str]]] = {}
    for number, (name, *cells) in enumerate(lines, 2):
        if not name or name in rows:
            raise DataError(f"{path}:{number}: a class needs a name of its own, got '{name}'.")
        rows[name] = {
            source: [class_name.strip() for class_name in cell.split("|") if class_name.strip()]
            for source, cell in zip(header[1:], cells, strict=False)
        }
    _check_rows(path, rows, sources)
    return _joined(rows, sources)


def _check_rows(path: Path, rows: Mapping[str, Mapping[str, list[str]]], sources: Mapping[str, Dataset]) -> None:
    for source, data in sources.items():
        names = {normalised(name): name for name in data.classes}
        taken: dict[str, str] = {}
        for row, cells in rows.items():
            for name in cells.get(source, []):
                key = normalised(name)
                if key not in names:
                    raise DataError(f"{path}: '{source}' has no class '{name}'.{did_you_mean(name, data.classes)}")
                if key in taken:
                    raise DataError(f"{path}: '{name}' of '{source}' stands in the rows {taken[key]} and {row}.")
                taken[key] = row


def _joined(rows: Mapping[str, Mapping[str, list[str]]], sources: Mapping[str, Dataset]) -> JoinedClasses:
    positions = [nth_class_id(i) for i in range(len(rows))]
    names = [EMPTY] * (positions[-1] + 1 if positions else 0)
    colours: list[tuple[int, int, int] | None] = [(0, 0, 0) if name == EMPTY else None for name in names]
    lookups = {source: np.full(max(IGNORE, len(data.classes)) + 1, IGNORE) for source, data in sources.items()}
    for position, (row, cells) in zip(positions, rows.items(), strict=True):
        names[position], colours[position] = row, None
        for source, classes in cells.items():
            joined_names = {normalised(name) for name in classes}
            for id_, name in enumerate(sources[source].classes):
                if normalised(name) in joined_names:
                    lookups[source][id_] = position
                    if sources[source].palette:
                        colours[position] = colours[position] or sources[source].palette[id_]
    palette = tuple(colour for colour in colours if colour is not None)
    return JoinedClasses(tuple(names), palette if len(palette) == len(names) else (), lookups)
