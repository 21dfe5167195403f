"""`webdataset`: samples in tar archives, as the webdataset library packs them.

shard-000000.tar
    kitchen_0001.jpg          a sample is what shares a name up to its first dot;
    kitchen_0001.depth.png    what comes after it says which part of the sample this is
    kitchen_0001.labels.png
"""

import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from glob import glob
from pathlib import Path, PurePosixPath
from typing import Annotated

import numpy as np
from pydantic import Field

from densevit.data.datasets.base import DATASETS, Dataset, DepthRange, resolve_root
from densevit.data.index import packed
from densevit.data.index.paths import SampleFiles, Subset, confine, first_five, list_entry
from densevit.data.io.readers import read_depth, read_image, read_labels
from densevit.data.io.samples import make_sample
from densevit.data.io.tar import Member, list_members
from densevit.errors import DataError
from densevit.structures import Sample

BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}")
IMAGES = ("jpg", "jpeg", "png", "webp")


@DATASETS.register("webdataset")
class WebDataset(Dataset):
    """Images with depth, labels or both in tar archives, read in any order: training shuffles over all shards, and a
    run resumes where it was."""

    def __init__(
        self,
        *,
        root: Path,
        shards: str = "*.tar",
        depth: str | None = "depth.png",
        labels: str | None = None,
        depth_scale: Annotated[float, Field(gt=0)] | None = None,
        depth_range: DepthRange = (1e-3, 80.0),
        subset: Subset = "full",
    ) -> None:
        """Reads the headers of all shards; nothing is decoded. Raises DataError: no shards, a bad one, samples without
        a part, or a name in two shards; with the first five.

        Args:
            root: the folder (densevit.data.datasets.base.resolve_root).
            shards: a pattern of archives below it; of what `{000..127}` or `{a,b}` stands for, each must be there.
            depth: the suffix of depth maps, all behind the first dot of the name; None for images without.
            labels: the same of label maps.
            depth_scale: stored units per metre; float files need none.
            depth_range: metres that the ground truth can have.
            subset: `available` leaves out samples that lack a part.
        """
        self.root = resolve_root(root, "webdataset")
        archives = sorted({archive for pattern in expand_braces(shards) for archive in find_shards(self.root, pattern)})
        self.suffixes = {kind: ending for kind, ending in (("depth", depth), ("labels", labels)) if ending is not None}
        self.scale, self.depth_range = depth_scale, depth_range
        entry = list_entry(self.root, [shards, depth, labels]) if subset == "full" else None
        stored, started = None if entry is None else packed.load(entry), time.time_ns()
        if stored is None:
            samples = keep_complete(group_by_sample(archives), self.suffixes, subset, self.root)
            stored = pack_members(samples, archives)
            if entry is not None and len(samples) >= packed.PACKED_FROM:
                packed.store(entry, packed.state_of(self.root, archives), stored, started)
        self.archives, (self.endings, self.places) = archives, stored
        self.names = packed.Texts(self.places["content"], self.places["ends"])

    def members(self, index: int) -> dict[str, Member]:
        """The files of a sample, by `image`, `depth` or `labels`."""
        name, found = self.names[index], {}
        for kind, endings in self.endings.items():
            archive, ending, offset, size = map(int, self.places[kind][index])
            found[kind] = Member(self.archives[archive], f"{name}.{endings[ending]}", offset, size)
        return found

    def read(self, index: int) -> Sample:
        name, parts = self.names[index], self.members(index)
        with ExitStack() as stack:
            paths = {kind: stack.enter_context(member.file()) for kind, member in parts.items()}
            files = SampleFiles(name, paths["image"], paths.get("depth"), paths.get("labels"))
            return make_sample(
                files,
                read_image(files.image),
                depth=None if files.depth is None else read_depth(files.depth, self.scale),
                labels=None if files.labels is None else read_labels(files.labels),
            )

    def scene(self, index: int) -> str:
        return self.names[index].rpartition("/")[0]


def pack_members(samples: Mapping[str, Mapping[str, Member]], archives: Sequence[Path]) -> packed.Stored:
    """The endings of each kind of file, and its places: number of the archive, of the ending, offset and size."""
    numbers = {archive: number for number, archive in enumerate(archives)}
    arrays, tree = packed.Texts.of(samples).arrays(), {}
    for kind in next(iter(samples.values())):
        endings: dict[str, int] = {}
        rows = []
        for name, parts in samples.items():
            part = parts[kind]
            ending = endings.setdefault(part.name[len(name) + 1 :], len(endings))
            rows.append((numbers[part.archive], ending, part.offset, part.size))
        tree[kind], arrays[kind] = list(endings), np.array(rows, np.int64)
    return tree, arrays


def expand_braces(pattern: str) -> list[str]:
    """The patterns that one with braces stands for, as a shell spells them out: `{008..010}`, `{train,val}`."""
    braces = BRACES.search(pattern)
    if braces is None:
        return [pattern]
    first, last, words = braces.groups()
    width = len(first) if words is None and first.startswith("0") else 0
    inner = words.split(",") if words else [f"{i:0{width}}" for i in range(int(first), int(last) + 1)]
    return [
        each for word in inner for each in expand_braces(pattern[: braces.start()] + word + pattern[braces.end() :])
    ]


def find_shards(root: Path, pattern: str) -> list[Path]:
    """Raises DataError if it leads out, or matches nothing."""
    confine(root, pattern, allow_outside=False)
    found = glob(pattern, root_dir=root, recursive=True)  # noqa: PTH207 (Path.glob takes hidden files, too)
    if not found:
        raise DataError(f"{root / pattern}: matches no archive.")
    return [root / path for path in found]


def group_by_sample(archives: list[Path]) -> dict[str, dict[str, Member]]:
    """Sample name -> what its file names end in -> the file. Raises DataError: a bad archive, a sample in two of them,
    or a file that comes in two spellings."""
    found: dict[str, dict[str, Member]] = defaultdict(dict)
    archive_of: dict[str, Path] = {}
    for archive in archives:
        for member in list_members(archive):
            folder, slash, file = member.name.rpartition("/")
            stem, _, ending = file.partition(".")
            name = folder + slash + stem
            if not stem:
                continue  # a hidden file
            if archive_of.setdefault(name, archive) != archive:
                raise DataError(
                    f"sample {name!r} is in two shards, {archive_of[name]} and {archive}. Names must be unique over "
                    "all shards; pack them anew with the shard's name in front, say."
                )
            other = found[name].setdefault(ending.lower(), member)
            if other is not member:
                raise DataError(f"{archive}: holds {other.name!r} and {member.name!r}, which are one part of a sample.")
    return dict(found)


def keep_complete(
    found: Mapping[str, Mapping[str, Member]], suffixes: Mapping[str, str], subset: Subset, root: Path
) -> dict[str, dict[str, Member]]:
    """The samples that have an image and a file of each suffix, by kind. Raises DataError if there are none; some lack
    a part and `subset` is full, or none is complete."""
    if not found:
        raise DataError(
            f"{root}: the shards hold no file; a sample is NAME.jpg{''.join(f', NAME.{e}' for e in suffixes.values())}."
        )
    samples: dict[str, dict[str, Member]] = {}
    incomplete = []
    images = [ending for ending in IMAGES if ending not in map(str.lower, suffixes.values())]
    for name, parts in found.items():
        image = next((parts[ending] for ending in images if ending in parts), None)
        kinds = {kind: parts.get(ending.lower()) for kind, ending in suffixes.items()} | {"image": image}
        have = {kind: member for kind, member in kinds.items() if member is not None}
        if len(have) == len(kinds):
            samples[name] = have
        else:
            absent = ", ".join(kind for kind, member in kinds.items() if member is None)
            incomplete.append(f"{PurePosixPath(name)}: no {absent}; it has {', '.join(parts)}")
    if incomplete and (subset == "full" or not samples):
        hint = "" if subset == "available" else "\nFor those that are complete, set `subset: available`."
        raise DataError(
            f"{root}: {len(incomplete):,} of {len(found):,} samples lack a part:{first_five(incomplete)}{hint}"
        )
    return samples
