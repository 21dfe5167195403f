"""Which classes NYU's 894 labels are read as: some by name, all, or those of published mapping files.

A mapping gives the number of the target class for each source class; mappings can be chained,
894 to 40 to 13 say. In files:

    classMapping40.mat   mapClass 1 x 894: 1 to 40; allClassName, className: the texts       (Gupta et al. 2013)
    class13Mapping.mat   classMapping13: labels13 1 x 40: 1 to 13; classNames: the texts     (Couprie et al. 2013)
    mine.json            {"classes": ["wall", "seat"], "of": {"wall": "wall", "chair": "seat", "sofa": "seat"}}

Both .mat files are in the repository ankurhanda/nyuv2-meta-data. Classes that no mapping names are ignored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Int64

from densevit.data.index.paths import first_five
from densevit.data.io import matlab
from densevit.data.labels.class_table import ClassTable, Entry, LabelError
from densevit.errors import DataError
from densevit.registry import did_you_mean
from densevit.utils.json_files import read_object

LabelMap = Literal["raw"] | Path | tuple[Path, ...] | None


@dataclass(frozen=True, eq=False)
class ClassMapping:
    """Numbers of source classes (1 is the first, 0 none) -> numbers of target classes."""

    numbers: Int64[np.ndarray, " sources"]
    classes: Sequence[str]


class NyuLabels:
    """Turns NYU's stored labels into class ids."""

    def __init__(self, mapping: ClassMapping, source: str) -> None:
        named = [Entry(i, name) for i, name in enumerate(mapping.classes, 1)]
        self.numbers = mapping.numbers
        self.table = ClassTable([Entry(0, "unlabelled", ignored=True), *named], source)

    def __call__(self, path: Path, stored: Int64[np.ndarray, "h w"]) -> Int64[np.ndarray, "h w"]:
        """Raise LabelError: labels beyond the names of the file."""
        largest = int(stored.max())
        if largest >= self.numbers.size:
            count = np.count_nonzero(stored >= self.numbers.size)
            raise LabelError(
                f"{path}: {count:,} pixels have labels up to {largest}; the file names {self.numbers.size - 1}."
            )
        return self.table.map_ids(path, self.numbers[stored])


def labels_of_classes(path: Path, names: Sequence[str], classes: Sequence[str]) -> NyuLabels:
    """Return the named classes, in this order. `path`: the .mat, for messages; `names`: its names."""
    for name in classes:
        if name not in names:
            raise DataError(f"{path}: no class '{name}'.{did_you_mean(name, names[:1000])}")
    return NyuLabels(_by_name(names, {name: name for name in classes}, classes), str(path))


def mapped_labels(path: Path, names: Sequence[str], files: Sequence[Path]) -> NyuLabels:
    """Return the classes of the last of some mapping files; all names without any. 255 is no class: the 256th name has
    id 256. Raises DataError if a file is no mapping, or not of these names."""
    total = ClassMapping(np.arange(len(names) + 1), names)
    for file in files:
        mapping = read_mapping(file, total.classes)
        total = ClassMapping(mapping.numbers[total.numbers], mapping.classes)
    return NyuLabels(total, str(files[-1] if files else path))


def read_mapping(path: Path, sources: Sequence[str]) -> ClassMapping:
    """Return one file, from `sources` to its own classes. Raises DataError if it is no mapping, or one of other
    classes."""
    if path.suffix.lower() == ".json":
        return _of_json(path, sources)
    keys = matlab.array_names(path)
    if "mapClass" in keys:
        names = matlab.cell_texts(path, matlab.load(path, "allClassName"))
        classes = matlab.cell_texts(path, matlab.load(path, "className"))
        targets = matlab.load(path, "mapClass").ravel()
        return _of_targets(path, sources, dict(zip(names, map(int, targets), strict=False)), classes)
    if "classMapping13" in keys:
        mapping = matlab.load(path, "classMapping13")
        classes = matlab.cell_texts(path, mapping["classNames"][0, 0])
        targets = mapping["labels13"][0, 0].ravel()
        return _of_targets(path, sources, dict(zip(sources, map(int, targets), strict=False)), classes)
    raise DataError(f"{path}: holds {', '.join(keys) or 'nothing'}; expected mapClass or classMapping13.")


def _of_json(path: Path, sources: Sequence[str]) -> ClassMapping:
    try:
        tree = read_object(path)
        classes, of = list(map(str, tree["classes"])), dict(tree["of"])
    except (ValueError, TypeError, LookupError) as error:
        raise DataError(f'{path}: expected {{"classes": [...], "of": {{source: class}}}} ({error}).') from error
    unknown = [f"{source}: {target}" for source, target in of.items() if target not in classes]
    unknown += [source for source in of if source not in sources]
    if unknown:
        raise DataError(f"{path}: {len(unknown)} entries name no class:{first_five(unknown)}")
    return _by_name(sources, of, classes)


def _of_targets(path: Path, sources: Sequence[str], of: Mapping[str, int], classes: Sequence[str]) -> ClassMapping:
    missing = [name for name in sources if name not in of]
    beyond = [f"{name}: {target}" for name, target in of.items() if not 0 <= target <= len(classes)]
    if missing or beyond:
        raise DataError(
            f"{path}: is no mapping of these {len(sources)} classes to {len(classes)}:{first_five([*missing, *beyond])}"
        )
    return ClassMapping(np.array([0, *(of[name] for name in sources)]), classes)


def _by_name(sources: Sequence[str], of: Mapping[str, str], classes: Sequence[str]) -> ClassMapping:
    number = {name: i for i, name in enumerate(classes, 1)}
    return ClassMapping(np.array([0, *(number[of[name]] if name in of else 0 for name in sources)]), classes)
