"""Tables of classes: which stored ids and colours of label maps mean which class.

A class's position in the table is its id in `Sample.labels`. No class has position 255 (`structures.IGNORE`): in a
table of more than 255 classes that position stays empty, and the 256th class has id 256.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from densevit.errors import ConfigError, DataError
from densevit.model_card import Palette
from densevit.structures import IGNORE

Colour = tuple[int, int, int]

EMPTY = "(no class)"
"""The name of position 255 in a table that reaches beyond it."""

UNKNOWN = -1


@dataclass(frozen=True)
class Entry:
    """One line of a table of classes."""

    id: int  # as stored in label maps
    name: str
    colour: Colour | None = None
    ignored: bool = False  # pixels of this id count nowhere
    thing: bool = True  # its segments are single objects, where there are segments


class ClassTable:
    """The classes of a data set in order, with the ids and colours that label files have for them."""

    def __init__(self, entries: Iterable[Entry], source: str) -> None:
        """Raise DataError: ids or names occur twice, or no entry is a class.

        Args:
            source: for messages, the file that the entries come from.
        """
        entries = list(entries)
        classes = [entry for entry in entries if not entry.ignored]
        if not classes:
            raise DataError(f"{source}: no class in it.")
        _refuse_twice(source, "id", [entry.id for entry in entries])
        _refuse_twice(source, "class", [entry.name for entry in classes])
        class_positions = [nth_class_id(i) for i in range(len(classes))]
        self.where = source
        taken = dict(zip(class_positions, classes, strict=True))
        all_ = [taken.get(position, Entry(position, EMPTY, (0, 0, 0))) for position in range(class_positions[-1] + 1)]
        self.names = tuple(entry.name for entry in all_)
        colours = [entry.colour for entry in all_ if entry.colour is not None]
        self.palette: Palette = tuple(colours) if len(colours) == len(all_) else ()
        self.things = [position for position, entry in taken.items() if entry.thing]
        ignored = {entry.id: IGNORE for entry in entries if entry.ignored}
        self.places: Mapping[int, int] = {**{entry.id: position for position, entry in taken.items()}, **ignored}
        self._ids = np.full(max([*self.places, IGNORE]) + 2, UNKNOWN, np.int64)  # the last is of ids outside
        self._ids[list(self.places)] = list(self.places.values())
        self._colours = _colours(entries, self.places)

    def __len__(self) -> int:
        return len(self.names)

    def map_ids(self, path: Path, stored: Int64[np.ndarray, "h w"]) -> Int64[np.ndarray, "h w"]:
        """Return the positions of stored ids; IGNORE where the table ignores them. `path`: the file, for messages.
        Raises LabelError if pixels hold an id that the table lacks; with the id and their count."""
        # Index -1 and the last one are the same entry: that of all ids outside the table.
        labels: Int64[np.ndarray, "h w"] = np.take(self._ids, np.clip(stored, -1, self._ids.size - 1))
        unknown = labels == UNKNOWN
        if unknown.any():
            raise LabelError(f"{path}: {describe_ids(stored[unknown])} {self._id_range()}")
        return labels

    def check_palette(self, path: Path, stored: Int64[np.ndarray, "h w"], palette: Palette) -> None:
        """Check that a palette has each class's colour at its id: some programs store palettes in another order.
        Raises LabelError if the palette's colours all are classes', but not those of their indices."""
        codes, positions = self._colours
        if not palette or not codes.size:
            return
        used = [i for i in np.flatnonzero(np.bincount(stored.ravel())) if i != IGNORE and i < len(palette)]
        position_of = dict(zip(codes.tolist(), positions.tolist(), strict=True))
        matches = {int(i): position_of.get(_code(palette[i])) for i in used}
        wrong = [i for i, position in matches.items() if position != self.places.get(i)]
        if wrong and None not in matches.values():
            shown, meant = self._name(matches[wrong[0]]), self._name(self.places.get(wrong[0]))
            raise LabelError(
                f"{path}: index {wrong[0]} of its palette has the colour of '{shown}', but id {wrong[0]} is '{meant}' "
                f"in {self.where}. Save colours as RGB, or ids as gray.",
                BAD_LABELS,
            )

    def _name(self, position: int | None) -> str:
        return EMPTY if position is None else "ignored" if position == IGNORE else self.names[position]

    def map_colours(self, path: Path, pixels: UInt8[np.ndarray, "h w 3"]) -> Int64[np.ndarray, "h w"]:
        """Return the positions of RGB colours. Raises LabelError if the table has no colours, or not one that occurs;
        with the colour and its pixels."""
        codes, positions = self._colours
        if not codes.size:
            raise LabelError(
                f"{path}: holds colours, not class ids, and {self.where} says no colour of any class. "
                "Add them, or store a gray or palette PNG.",
                BAD_LABELS,
            )
        packed = pixels.astype(np.int64) @ np.array([65536, 256, 1])
        indices = np.minimum(np.searchsorted(codes, packed), codes.size - 1)
        unknown = codes[indices] != packed
        if unknown.any():
            gray = bool((pixels == pixels[..., :1]).all())
            why = (
                "All are gray: store ids in one channel" if gray else "Anti-aliased or lossy label maps cannot be read"
            )
            raise LabelError(f"{path}: {describe_colours(packed[unknown])} {self.where} has no class. {why}.")
        return np.asarray(positions[indices])

    def _id_range(self) -> str:
        ids = sorted(self.places)
        some = ", ".join(map(str, ids[:12])) + (f", ... {ids[-1]}" if len(ids) > 12 else "")
        span = f"{ids[0]} to {ids[-1]}" if len(ids) == ids[-1] - ids[0] + 1 else some
        return f"that {self.where} has no class for; it has ids {span}."


def nth_class_id(index: int) -> int:
    """Return the id of the n-th class: none has 255."""
    return index + (index >= IGNORE)


def refuse_reordered(source: str, names: Sequence[str], classes: Sequence[str]) -> None:
    """Refuse class names that stand elsewhere in the data: classes would be trained, or scored, as each other. `names`:
    those of a head, or of other data; classes: those of the data. Raises ConfigError: naming the first of them."""
    pairs = enumerate(zip(names, classes, strict=False))
    if moved := [i for i, (name, other) in pairs if name != other and name in classes]:
        raise ConfigError(
            f"{source} has the classes of the data in another order: {moved[0]} is '{names[moved[0]]}', in the data "
            f"'{classes[moved[0]]}'. Give both the same list."
        )


def _refuse_twice(source: str, what: str, values: Sequence[object]) -> None:
    twice = [str(value) for value, count in Counter(values).items() if count > 1]
    if twice:
        raise DataError(f"{source}: {what} {', '.join(twice[:5])} occurs more than once.")


def _colours(
    entries: Sequence[Entry], class_ids: Mapping[int, int]
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Return the colours as sorted numbers, and the position of each."""
    positions: dict[int, int] = {}
    for entry in entries:
        if entry.colour is None:
            continue
        code = _code(entry.colour)
        if positions.setdefault(code, class_ids[entry.id]) != class_ids[entry.id]:
            positions[code] = UNKNOWN  # two classes of one colour: nobody can tell them apart
    positions = {code: position for code, position in positions.items() if position != UNKNOWN}
    ordered = sorted(positions)
    return np.array(ordered, np.int64), np.array([positions[code] for code in ordered], np.int64)


def _code(colour: Colour) -> int:
    return (colour[0] << 16) | (colour[1] << 8) | colour[2]


# What is wrong with a label map, as types of validation issues (densevit.data.validation.issues).
BAD_LABELS = "bad_labels"
ID_BEYOND_CLASSES = "label_beyond_classes"


class LabelError(DataError):
    """A label map that does not fit its classes.

    Attributes:
        kind: ID_BEYOND_CLASSES or BAD_LABELS.
    """

    def __init__(self, message: str, kind: str = ID_BEYOND_CLASSES) -> None:
        super().__init__(message)
        self.kind = kind


def describe_ids(unknown: Int64[np.ndarray, " pixels"]) -> str:
    """Return which ids, the most frequent first, and how many pixels hold them, in words."""
    ids, counts = np.unique(unknown, return_counts=True)
    most = np.argsort(-counts)[:3]
    text = ", ".join(f"id {ids[i]} in {counts[i]:,} pixels" for i in most)
    return text + (f" (and {len(ids) - 3} other ids)" if len(ids) > 3 else "")


def describe_colours(unknown: Int64[np.ndarray, " pixels"]) -> str:
    """Return the most frequent colour, as 0xRRGGBB, and its pixels, in words."""
    codes, counts = np.unique(unknown, return_counts=True)
    most = int(np.argmax(counts))
    code = int(codes[most])
    others = f" (and {len(codes) - 1:,} other colours)" if len(codes) > 1 else ""
    return f"{counts[most]:,} pixels of colour {code >> 16, code >> 8 & 255, code & 255}{others}, for which"
