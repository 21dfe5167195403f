"""The data set `tar`: samples out of WebDataset's shards.

shard-000000.tar
    kitchen_0001.jpg          a sample is what shares a name up to its first dot;
    kitchen_0001.depth.png    what comes after it says which part of the sample this is
    kitchen_0001.labels.png
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from glob import glob
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field

from densevit.data.datasets.base import DATASETS, Dataset, DepthRange, resolve_root
from densevit.data.index.paths import SampleFiles, Subset, confine, first_five
from densevit.data.io.readers import read_depth, read_image, read_labels
from densevit.data.io.samples import make_sample
from densevit.data.io.tar import Member, members
from densevit.errors import DataError
from densevit.structures import Sample

BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}")
IMAGES = ("jpg", "jpeg", "png", "webp")


@DATASETS.register("webdataset")
class TarShards(Dataset):
    """Images with depth, labels or both in tar archives. Any sample can be read at any time, so training shuffles
    over all shards and not within a window, and a run resumes where it was."""

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
        """Reads the headers of all shards; nothing is decoded.

        Args:
            root: the folder (densevit.data.datasets.base.resolve_root).
            shards: a pattern of archives below it; of what `{000..127}` or `{a,b}` stands for, each must be there.
            depth: what names of depth maps end in behind the first dot; None for images without.
            labels: the same of label maps.
            depth_scale: stored units per metre; float files need none.
            depth_range: metres that the truth can mean.
            subset: `available` leaves out samples that lack a part.

        Raises:
            DataError: no shards, a bad one, samples without a part, or a name in two shards; with the first five.
        """
        self.root = resolve_root(root, "tar")
        archives = sorted({archive for pattern in spelled_out(shards) for archive in matching(self.root, pattern)})
        self.wanted = {kind: ending for kind, ending in (("depth", depth), ("labels", labels)) if ending is not None}
        self.scale, self.depth_range = depth_scale, depth_range
        self.samples = complete(collect(archives), self.wanted, subset, self.root)
        self.names = list(self.samples)

    def read(self, index: int) -> Sample:
        name = self.names[index]
        parts = self.samples[name]
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


def spelled_out(pattern: str) -> list[str]:
    """The patterns that one with braces stands for, as a shell spells them out: `{008..010}`, `{train,val}`."""
    braces = BRACES.search(pattern)
    if braces is None:
        return [pattern]
    first, last, words = braces.groups()
    width = len(first) if words is None and first.startswith("0") else 0
    inner = words.split(",") if words else [f"{i:0{width}}" for i in range(int(first), int(last) + 1)]
    return [each for word in inner for each in spelled_out(pattern[: braces.start()] + word + pattern[braces.end() :])]


def matching(root: Path, pattern: str) -> list[Path]:
    """
    Raises:
        DataError: it leads out, or matches nothing.
    """
    confine(root, pattern, allow_outside=False)
    found = glob(pattern, root_dir=root, recursive=True)  # noqa: PTH207 (Path.glob takes hidden files, too)
    if not found:
        raise DataError(f"{root / pattern}: matches no archive.")
    return [root / path for path in found]


def collect(archives: list[Path]) -> dict[str, dict[str, Member]]:
    """Sample name -> what its file names end in -> the file.

    Raises:
        DataError: a bad archive, a sample in two of them, or a file that comes in two spellings.
    """
    found: dict[str, dict[str, Member]] = defaultdict(dict)
    homes: dict[str, Path] = {}
    for archive in archives:
        for member in members(archive):
            folder, slash, file = member.name.rpartition("/")
            stem, _, ending = file.partition(".")
            name = folder + slash + stem
            if not stem:
                continue  # a hidden file
            if homes.setdefault(name, archive) != archive:
                raise DataError(
                    f"sample {name!r} stands in two shards, {homes[name]} and {archive}. Names are one for all shards; "
                    "pack them anew with the shard's name in front, say."
                )
            other = found[name].setdefault(ending.lower(), member)
            if other is not member:
                raise DataError(f"{archive}: holds {other.name!r} and {member.name!r}, which are one part of a sample.")
    return dict(found)


def complete(
    found: Mapping[str, Mapping[str, Member]], wanted: Mapping[str, str], subset: Subset, root: Path
) -> dict[str, dict[str, Member]]:
    """The samples that have an image and all that is wanted, by kind.

    Raises:
        DataError: there are none; some lack a part and `subset` is full, or none is complete.
    """
    if not found:
        raise DataError(
            f"{root}: the shards hold no file; a sample is NAME.jpg{''.join(f', NAME.{e}' for e in wanted.values())}."
        )
    samples: dict[str, dict[str, Member]] = {}
    lacking = []
    images = [ending for ending in IMAGES if ending not in map(str.lower, wanted.values())]
    for name, parts in found.items():
        image = next((parts[ending] for ending in images if ending in parts), None)
        kinds = {kind: parts.get(ending.lower()) for kind, ending in wanted.items()} | {"image": image}
        have = {kind: member for kind, member in kinds.items() if member is not None}
        if len(have) == len(kinds):
            samples[name] = have
        else:
            absent = ", ".join(kind for kind, member in kinds.items() if member is None)
            lacking.append(f"{PurePosixPath(name)}: no {absent}; it has {', '.join(parts)}")
    if lacking and (subset == "full" or not samples):
        hint = "" if subset == "available" else "\nFor those that are complete, set `subset: available`."
        raise DataError(f"{root}: {len(lacking):,} of {len(found):,} samples lack a part:{first_five(lacking)}{hint}")
    return samples
