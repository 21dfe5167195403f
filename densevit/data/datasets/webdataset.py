"""`webdataset`: samples in tar archives, as the webdataset library packs them.

shard-000000.tar
    kitchen_0001.jpg          a sample is what shares a name up to its first dot;
    kitchen_0001.depth.png    what comes after it says which part of the sample this is
    kitchen_0001.labels.png
"""

import re
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from glob import glob
from pathlib import Path, PurePosixPath
from typing import Annotated

import numpy as np
from pydantic import Field

from densevit.data.datasets.base import DATASETS, Dataset, DepthRange, Invalid, resolve_root
from densevit.data.index import packed
from densevit.data.index.paths import SampleFiles, Subset, confine, first_five, list_entry
from densevit.data.io.readers import NOT_MEASURED, read_depth, read_image, read_labels
from densevit.data.io.samples import make_sample
from densevit.data.io.tar import TarMember, list_members
from densevit.errors import DataError
from densevit.structures import Sample

BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}")
THREADS = 8  # that read headers: of a network disk, each takes milliseconds
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
        invalid: Invalid = NOT_MEASURED,
        subset: Subset = "full",
    ) -> None:
        """Read the headers of all shards; nothing is decoded. Raises DataError: no shards, a bad one, samples without
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
        self.scale, self.depth_range, self.invalid = depth_scale, depth_range, invalid
        entry = list_entry(self.root, [shards, depth, labels]) if subset == "full" else None
        stored, started = None if entry is None else packed.load(entry), time.time_ns()
        if stored is None:
            stored = list_samples(archives, self.suffixes, subset, self.root)
            if entry is not None and len(stored[1]["ends"]) >= packed.PACKED_FROM:
                packed.store(entry, packed.state_of([*packed.folders_below(self.root), *archives]), stored, started)
        self.archives, (self.endings, self.places) = archives, stored
        self.names = packed.Texts(self.places["content"], self.places["ends"])

    def members(self, index: int) -> dict[str, TarMember]:
        """Return the files of a sample, by `image`, `depth` or `labels`."""
        name, members = self.names[index], {}
        for kind, endings in self.endings.items():
            archive, ending, offset, size = map(int, self.places[kind][index])
            members[kind] = TarMember(self.archives[archive], f"{name}.{endings[ending]}", offset, size)
        return members

    def read(self, index: int) -> Sample:
        name, members = self.names[index], self.members(index)
        with ExitStack() as stack:
            paths = {kind: stack.enter_context(member.file()) for kind, member in members.items()}
            files = SampleFiles(name, paths["image"], paths.get("depth"), paths.get("labels"))
            return make_sample(
                files,
                read_image(files.image),
                depth=None if files.depth is None else read_depth(files.depth, self.scale, invalid=self.invalid),
                labels=None if files.labels is None else read_labels(files.labels),
            )

    def scene(self, index: int) -> str:
        return self.names[index].rpartition("/")[0]


def expand_braces(pattern: str) -> list[str]:
    """Return the patterns that one with braces stands for, as a shell spells them out: `{008..010}`, `{train,val}`."""
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
    """Raise DataError if it leads out, or matches nothing."""
    confine(root, pattern, allow_outside=False)
    matches = glob(pattern, root_dir=root, recursive=True)  # noqa: PTH207 (Path.glob takes hidden files, too)
    if not matches:
        raise DataError(f"{root / pattern}: matches no archive.")
    return [root / path for path in matches]


def list_samples(archives: Sequence[Path], suffixes: Mapping[str, str], subset: Subset, root: Path) -> packed.Stored:
    """Return the endings of each kind of file, the names of samples that have an image and a file of each suffix, and
    their places: number of the archive, of the ending, offset and size. Raises DataError: a bad archive, a sample in
    two of them, a file that comes in two spellings; no file; samples lack a part and `subset` is full, or all do."""
    images = [ending for ending in IMAGES if ending not in map(str.lower, suffixes.values())]
    required = {"image": images} | {kind: [ending.lower()] for kind, ending in suffixes.items()}
    endings: dict[str, dict[str, int]] = {kind: {} for kind in required}
    positions = {kind: array("q") for kind in required}
    archive_of: dict[str, int] = {}
    incomplete = {}
    with ThreadPoolExecutor(THREADS) as threads:
        for number, members in enumerate(threads.map(list_members, archives)):
            for name, files in group_by_sample(members).items():
                if (first := archive_of.setdefault(name, number)) != number:
                    raise DataError(
                        f"sample {name!r} is in two shards, {archives[first]} and {archives[number]}. Names must be "
                        "unique over all shards; pack them anew with the shard's name in front, say."
                    )
                by_kind = {kind: next((files[x] for x in some if x in files), None) for kind, some in required.items()}
                if absent := ", ".join(kind for kind in (*suffixes, "image") if by_kind[kind] is None):
                    incomplete[name] = f"{PurePosixPath(name)}: no {absent}; it has {', '.join(files)}"
                    continue
                for kind, file in by_kind.items():
                    assert file is not None
                    ending = endings[kind].setdefault(file.name[len(name) + 1 :], len(endings[kind]))
                    positions[kind].extend((number, ending, file.offset, file.size))
    if not archive_of:
        raise DataError(
            f"{root}: the shards hold no file; a sample is NAME.jpg{''.join(f', NAME.{e}' for e in suffixes.values())}."
        )
    if incomplete and (subset == "full" or len(incomplete) == len(archive_of)):
        hint = "" if subset == "available" else "\nFor those that are complete, set `subset: available`."
        lacking = f"{len(incomplete):,} of {len(archive_of):,} samples lack a part"
        raise DataError(f"{root}: {lacking}:{first_five(incomplete.values())}{hint}")
    names = packed.Texts.of(name for name in archive_of if name not in incomplete)
    arrays = {kind: np.array(rows, np.int64).reshape(-1, 4) for kind, rows in positions.items()}
    return {kind: list(some) for kind, some in endings.items()}, {**names.arrays(), **arrays}


def group_by_sample(members: Iterable[TarMember]) -> dict[str, dict[str, TarMember]]:
    """Sample name -> what its file names end in -> the file. Raises DataError: a file comes in two spellings."""
    samples: dict[str, dict[str, TarMember]] = {}
    for member in members:
        folder, slash, file = member.name.rpartition("/")
        stem, _, ending = file.partition(".")
        if not stem:
            continue  # a hidden file
        other = samples.setdefault(folder + slash + stem, {}).setdefault(ending.lower(), member)
        if other is not member:
            raise DataError(
                f"{member.archive}: holds {other.name!r} and {member.name!r}, which are one part of a sample."
            )
    return samples
