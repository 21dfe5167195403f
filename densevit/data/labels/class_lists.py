"""Lists of classes in files: those that come with densevit, and users' own in JSON or text.

    ["wall", "floor"]                                           ids 0, 1, ... in this order
    {"0": "wall", "1": "floor"}  {"wall": 0, "floor": 1}        ids by name
    {"wall": [120, 120, 120], "floor": "#503232"}               colours, ids in this order
    [{"id": 7, "name": "road", "color": [128, 64, 128]}, {"id": 0, "name": "void", "ignore": true}]

`"isthing": 0` says that the segments of a class are stuff. Text has a name a line; `7: road` gives an id,
`road:128,64,128::` (CVAT's labelmap.txt) a colour; # starts a comment. Stored id 255 is ignored unless an entry claims
it by `id`.

The tables of the published sets (data/labels/tables) are facts of: ADE20K's objectInfo150.txt and color150.mat;
Cityscapes' labels.py; the VOC development kit, also for its colour map; the labels of PASCAL-Context; COCO-Stuff's
labels.txt, which has no colours: they are the VOC colour map's at its ids.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from densevit.data.labels.class_table import ClassTable, Colour, Entry
from densevit.errors import DataError
from densevit.model_card import Palette
from densevit.structures import IGNORE
from densevit.utils.json_files import read_text

# Where a folder's classes are looked for if the user names no file; the last is CVAT's.
DEFAULT_FILES = ("classes.json", "classes.txt", "labelmap.txt")

TABLES = Path(__file__).parent / "tables"

LARGEST = 65535  # id that a label map can hold, in 16 bits

NUMBERED = re.compile(r"(\d+)\s*[:\t]\s*(.+)")
COLOURED = re.compile(r"([^:]+):(\d+),(\d+),(\d+)(?::.*)?")
HEX = re.compile(r"#([0-9a-fA-F]{6})")


@cache
def published_entries(name: str) -> tuple[Entry, ...]:
    """Return the table of a published data set, `ade20k` say, in the order of its ids."""
    with open(TABLES / f"{name}.csv", newline="") as file:
        return tuple(_shipped(row) for row in csv.DictReader(file))


def published_table(name: str, *, converted: bool = False) -> ClassTable:
    """Return the classes of a published data set. `converted`: label maps hold their positions, not published ids."""
    table = ClassTable(published_entries(name), f"densevit's table of {name}")
    if not converted:
        return table
    return table_of_names(table.names, f"densevit's table of converted {name}", table.palette)


def _shipped(row: dict[str, str]) -> Entry:
    colour = (int(row["red"]), int(row["green"]), int(row["blue"])) if row["red"] else None
    return Entry(int(row["id"]), row["name"], colour, ignored=not row["class"])


def find_classes(root: Path, path: Path | None) -> ClassTable | None:
    """Return the classes of the file that the user names, or of the first default one that exists; None without any."""
    if path is not None:
        return read_classes(root / path.expanduser())
    default = next((root / name for name in DEFAULT_FILES if (root / name).is_file()), None)
    return None if default is None else read_classes(default)


def read_classes(path: Path) -> ClassTable:
    """Return a user's list of classes. Raises DataError if it is missing or of none of the forms above; naming the
    entry."""
    text = read_text(path, "the list of classes")
    entries = _of_json(path, text) if path.suffix.lower() == ".json" else _of_text(path, text)
    _check_entries(path, entries)
    return ClassTable(with_ignored(entries, str(path)), str(path))


def table_of_names(names: Sequence[str], source: str, palette: Palette = ()) -> ClassTable:
    """Return the classes with ids 0, 1, ..., and 255 ignored."""
    colours: Sequence[Colour | None] = palette or [None] * len(names)
    entries = [Entry(i, name, colour) for i, (name, colour) in enumerate(zip(names, colours, strict=True))]
    return ClassTable(with_ignored(entries, source), source)


def with_ignored(entries: Sequence[Entry], source: str) -> list[Entry]:
    """Return the entries, and 255 ignored where none claims it. Raises DataError if one has id 255 by its mere place in
    a list."""
    claimed = next((entry for entry in entries if entry.id == IGNORE), None)
    if claimed is None:
        return [*entries, Entry(IGNORE, "ignored", ignored=True)]
    if [entry.id for entry in entries] == list(range(len(entries))) and not claimed.ignored:
        raise DataError(
            f"{source}: '{claimed.name}' would have id 255, which means pixels without a class. "
            'Write {"id": ..., "name": ...} for all classes.'
        )
    return list(entries)


def _check_entries(path: Path, entries: Sequence[Entry]) -> None:
    for entry in entries:
        if len(entry.name.strip().splitlines()) != 1:
            raise DataError(
                f"{path}: the class with id {entry.id} is named {entry.name!r}; a name is one line of text."
            )
        if entry.id > LARGEST or max(entry.colour or (0,)) > 255:
            raise DataError(
                f"{path}: class '{entry.name}' has id {entry.id} and colour {entry.colour}; ids go to {LARGEST}, "
                "colours to 255."
            )


def _of_json(path: Path, text: str) -> list[Entry]:
    try:
        tree = json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not readable JSON ({error}).") from error
    if isinstance(tree, list) and all(isinstance(item, str) for item in tree):
        return _in_order(tree)
    if isinstance(tree, list):
        return [_of_object(path, item) for item in tree]
    if isinstance(tree, dict):
        return [_of_pair(path, i, key, value) for i, (key, value) in enumerate(tree.items())]
    raise DataError(f"{path}: expected a list or an object of classes, got {text.strip()[:60]}.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys are all different: of two alike Python would take the last."""
    counts = Counter(key for key, _ in pairs)
    if twice := [key for key, count in counts.items() if count > 1]:
        raise ValueError(f"key '{twice[0]}' occurs more than once")
    return dict(pairs)


def _of_object(path: Path, item: Any) -> Entry:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not _is_id(item.get("id")):
        raise DataError(f'{path}: expected {{"id": 7, "name": "road", ...}}, got {json.dumps(item)[:80]}.')
    colour = item.get("color", item.get("colour"))
    flags = {"ignore": item.get("ignore", item.get("ignored", False)), "isthing": item.get("isthing", True)}
    for key, flag in flags.items():
        if flag not in (False, True):
            raise DataError(f"{path}: {key} of '{item['name']}' is true or false, got {json.dumps(flag)[:40]}.")
    rgb = None if colour is None else _colour(path, colour)
    return Entry(item["id"], item["name"], rgb, bool(flags["ignore"]), bool(flags["isthing"]))


def _of_pair(path: Path, position: int, key: str, value: Any) -> Entry:
    """Return an item of an object: id -> name, name -> id, or name -> colour."""
    if isinstance(value, str) and key.isdecimal():
        return Entry(int(key), value)
    if _is_id(value):
        return Entry(value, key)
    return Entry(position, key, _colour(path, value))


def _colour(path: Path, value: Any) -> Colour:
    hit = HEX.fullmatch(value) if isinstance(value, str) else None
    if hit:
        value = list(bytes.fromhex(hit[1]))
    if isinstance(value, list) and len(value) == 3 and all(_is_id(v) and v < 256 for v in value):
        return value[0], value[1], value[2]
    raise DataError(f'{path}: expected a colour as [128, 64, 128] or "#804080", got {json.dumps(value)[:40]}.')


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _of_text(path: Path, text: str) -> list[Entry]:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    coloured, numbered = ([form.fullmatch(line) for line in lines] for form in (COLOURED, NUMBERED))
    if lines and all(coloured):
        return [Entry(i, hit[1], (int(hit[2]), int(hit[3]), int(hit[4]))) for i, hit in enumerate(coloured) if hit]
    for hits, what in ((coloured, "a colour"), (numbered, "an id")):
        if any(hits) and not all(hits):
            raise DataError(f"{path}: {lines[hits.index(None)]!r} lacks {what}, which other lines have.")
    if lines and all(numbered):
        return [Entry(int(hit[1]), hit[2]) for hit in numbered if hit]
    return _in_order(lines)


def _in_order(names: Iterable[str]) -> list[Entry]:
    return [Entry(i, name) for i, name in enumerate(names)]
