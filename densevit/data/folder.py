"""`folder`: one's own images with depth maps, by folders or by a table.

    ROOT/[train|val|test/]images/kitchen/0001.jpg     any folders below; JPEG, PNG, WEBP, TIFF, BMP
    ROOT/[train|val|test/]depths/kitchen/0001.png     PNG16 or TIFF16 with `depth_scale`; NPY, NPZ, PFM, TIFF, HDF5, EXR
    ROOT/[train|val|test/]labels/kitchen/0001.png     optional: class ids, 255 = ignore
    ROOT/intrinsics.json                              optional: one camera, or one per name

or ROOT/manifest.csv or .jsonl with what densevit.data.manifest says. How names match: densevit.data.matching.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float64
from pydantic import Field

from densevit.data import matching
from densevit.data.dataset import DATASETS, Dataset, resolve_root
from densevit.data.manifest import CAMERA, Row, read_manifest
from densevit.data.pairs import pinhole, read_pair
from densevit.data.paths import Lack, Subset, first_five, keep_present, note
from densevit.errors import DataError
from densevit.structures import Sample

log = logging.getLogger(__name__)

Split = Literal["all", "train", "val", "test"]


@DATASETS.register("folder")
class Folder(Dataset):
    """Images and depth maps of one's own."""

    def __init__(
        self,
        *,
        root: Path,
        images: str = "images",
        depths: str = "depths",
        labels: str = "labels",
        intrinsics: str = "intrinsics.json",
        manifest: Path | None = None,
        split: Split = "all",
        val_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        depth_scale: Annotated[float, Field(gt=0)] | None = None,
        depth_range: tuple[float, float] = (1e-3, 80.0),
        require_depth: bool = True,
        subset: Subset = "full",
        allow_outside_root: bool = False,
    ) -> None:
        """Lists the files and pairs them; nothing is decoded.

        Args:
            root: the folder (densevit.data.dataset.resolve_root).
            images: folder or pattern under `root`; likewise `depths`, and `labels` where there are any.
            intrinsics: JSON file under `root`: {"fx", "fy", "cx", "cy"} or a 3 x 3 list in pixels, or names with
                either; where it is missing, intrinsics are not known.
            manifest: CSV or JSONL table under `root`, instead of the folders.
            split: a folder of that name, or the table's column; else `val_fraction` decides.
            val_fraction: share of `val`, drawn by a hash of the name, so that it stays when files are added.
            depth_scale: stored units per metre: 1000 for millimetres. Float files need none.
            depth_range: metres that the truth can mean.
            require_depth: false takes images without depth, too.
            subset: `available` goes on without what has no partner, and says how much that is.
            allow_outside_root: follow links and table entries that lead out of `root`.

        Raises:
            DataError: nothing is there, names are ambiguous or without partner; with the count and the first five.
        """
        self.root = resolve_root(root, "folder")
        self.scale = depth_scale
        self.depth_range = depth_range
        what = f"folder '{split}' in {self.root}"
        if manifest is not None:
            table = self.root / manifest.expanduser()
            rows = read_manifest(table, self.root, allow_outside=allow_outside_root)
        else:
            base = self.root / split if split != "all" and (self.root / split).is_dir() else self.root
            if base != self.root:
                split = "all"
            where = {"images": images, "depths": depths, "labels": labels}
            rows = find_rows(base, where, subset, require_depth=require_depth, allow_outside=allow_outside_root)
        rows = with_intrinsics(rows, self.root / intrinsics)
        self.drawn = bool(val_fraction)  # folders are then in both splits, on purpose
        rows = pick_split(rows, split, val_fraction, what)
        if require_depth:
            rows = _with_depth(rows, subset, what)
        _check_names(rows, what)
        self.rows = keep_present(rows, Row.files, subset, what)
        self.names = [row.name for row in self.rows]

    def read(self, index: int) -> Sample:
        row = self.rows[index]
        return read_pair(row.name, row.image, row.depth, self.scale, labels_path=row.labels, intrinsics=row.intrinsics)

    def files(self, index: int) -> Mapping[str, Path]:
        row = self.rows[index]
        kinds = {"image": row.image, "depth": row.depth, "labels": row.labels}
        return {kind: path for kind, path in kinds.items() if path is not None}

    def scene(self, index: int) -> str:
        return "" if self.drawn else self.names[index].rpartition("/")[0]


def find_rows(
    base: Path, where: Mapping[str, str], subset: Subset, *, require_depth: bool, allow_outside: bool
) -> list[Row]:
    """One row per image, with the depth and labels that match it.

    Args:
        where: folder or pattern of `images`, `depths` and `labels`.

    Raises:
        DataError: a folder is missing, or maps are there that belong to no image and `subset` is full.
    """
    images = matching.find(base, where["images"], matching.IMAGE_SUFFIXES, allow_outside=allow_outside)
    if not images:
        raise DataError(f"{base / where['images']}: no images ({', '.join(sorted(matching.IMAGE_SUFFIXES))}).")

    def mates(kind: str, suffixes: frozenset[str]) -> dict[str, Path]:
        maps = matching.find(base, where[kind], suffixes, allow_outside=allow_outside)
        pairs = matching.partners(list(images), list(maps))
        _report(base, kind, [maps[key] for key in maps.keys() - set(pairs.values())], subset)
        return {name: maps[key] for name, key in pairs.items()}

    depths = mates("depths", matching.DEPTH_SUFFIXES) if require_depth or matching.exists(base, where["depths"]) else {}
    labels = mates("labels", matching.LABEL_SUFFIXES) if matching.exists(base, where["labels"]) else {}
    return [
        Row(name=name, image=path, depth=depths.get(name), labels=labels.get(name)) for name, path in images.items()
    ]


def with_intrinsics(rows: list[Row], file: Path) -> list[Row]:
    """Rows with the cameras of a JSON file, where it is there; a table's own stay.

    Raises:
        DataError: the file is not of the form that `Folder` says.
    """
    if not file.is_file():
        return rows
    try:
        tree = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: is not readable JSON ({error}).") from error
    per_name = isinstance(tree, dict) and not set(CAMERA) <= set(tree)
    cameras = {name: _camera(file, value) for name, value in tree.items()} if per_name else {}
    shared = None if per_name else _camera(file, tree)
    lost = [row.name for row in rows if per_name and row.name not in cameras]
    if lost:
        log.warning("%s: no intrinsics for %d of %d samples:%s", file, len(lost), len(rows), first_five(lost))
    return [r if r.intrinsics is not None else replace(r, intrinsics=cameras.get(r.name, shared)) for r in rows]


def pick_split(rows: list[Row], split: Split, val_fraction: float, what: str) -> list[Row]:
    """The rows of a split, by their own word or by a hash of their names."""
    if split == "all":
        return rows
    if any(row.split for row in rows):
        picked = [row for row in rows if row.split == split]
        came = f"the splits are {', '.join(sorted({str(row.split) for row in rows}))}"
    elif split == "test" or not val_fraction:
        raise DataError(f"{what}: no folder '{split}' in it. Make one, or set `val_fraction` to draw train and val.")
    else:
        picked = [row for row in rows if (draw(row.name) < val_fraction) == (split == "val")]
        came = f"val_fraction is {val_fraction} of {len(rows)} samples"
    if not picked:
        raise DataError(f"{what}: no samples; {came}.")
    return picked


def draw(name: str) -> float:
    """A number in [0, 1) that is the same for a name everywhere and always."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def _with_depth(rows: list[Row], subset: Subset, what: str) -> list[Row]:
    lost = [row.image for row in rows if row.depth is None]
    if note([Lack("missing", str(path), "this image has no depth map") for path in lost], subset):
        return [row for row in rows if row.depth is not None]
    if lost and (subset == "full" or len(lost) == len(rows)):
        raise DataError(
            f"{what}: {len(lost):,} of {len(rows):,} images have no depth:{first_five(lost)}\n"
            "Set `require_depth: false` to keep them, or `subset: available` to leave them out."
        )
    if lost:
        log.warning("%s: left out %d of %d images without depth:%s", what, len(lost), len(rows), first_five(lost))
    return [row for row in rows if row.depth is not None]


def _report(base: Path, kind: str, alone: list[Path], subset: Subset) -> None:
    """Maps without an image: a sign that names match otherwise than was thought."""
    lacks = [Lack("unpaired", str(path), f"a file of `{kind}` that matches no image") for path in alone]
    if not alone or note(lacks, subset):
        return
    text = f"{base}: {len(alone):,} files of `{kind}` match no image:{first_five(sorted(alone))}"
    if subset == "full":
        raise DataError(f"{text}\nName them alike, say how they match by patterns, or set `subset: available`.")
    log.warning("%s", text)


def _check_names(rows: list[Row], what: str) -> None:
    twice = [name for name, count in Counter(row.name for row in rows).items() if count > 1]
    if twice and not note(Lack("duplicate_name", name, "this name occurs more than once") for name in twice):
        raise DataError(f"{what}: {len(twice):,} names occur more than once:{first_five(twice)}")


def _camera(file: Path, value: Any) -> Float64[np.ndarray, "3 3"]:
    """A camera as JSON has it: fx, fy, cx, cy by name, or three rows."""
    try:
        matrix = pinhole(*(float(value[key]) for key in CAMERA)) if isinstance(value, dict) else np.array(value, float)
    except (KeyError, TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        raise DataError(f"{file}: expected fx, fy, cx, cy or a 3 x 3 matrix, got {str(value)[:80]}.")
    return matrix
