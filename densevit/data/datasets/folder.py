"""`folder`: a user's own images with depth maps, label maps or both, by folders or by a table.

    ROOT/[train|val|test/]images/kitchen/0001.jpg     any folders below; JPEG, PNG, WEBP, TIFF, BMP
    ROOT/[train|val|test/]depths/kitchen/0001.png     PNG16 or TIFF16 with `depth_scale`; NPY, NPZ, PFM, TIFF, HDF5, EXR
    ROOT/[train|val|test/]labels/kitchen/0001.png     class ids, gray or palette, 8 or 16 bits, 255 = ignore; or colours
    ROOT/[train|val|test/]normals/kitchen/0001.png    RGB PNG of 8 or 16 bits, NPY, EXR: densevit.data.io.normals
    ROOT/[train|val|test/]segments/kitchen/0001.png   numbers of segments, 16-bit gray, or R + 256 G + 65536 B; 0 = void
    ROOT/segments.csv (or .jsonl)                     image, id, class[, crowd]: the class of each, by name or id, and
                                                      whether it is a group; without, that of the pixels in `labels`
    ROOT/classes.json (or .txt)                       what the ids or colours mean: densevit.data.labels.class_lists
    ROOT/intrinsics.json                              optional: one camera, or one per name

or photos in ROOT itself (with `require_depth: false`);
or ROOT/manifest.csv or .jsonl (densevit.data.index.manifest). How names match: densevit.data.index.matching.
"""

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Int64
from pydantic import Field

from densevit.data.datasets.base import DATASETS, Classes, DepthRange, FileDataset, Invalid, folder_of, resolve_root
from densevit.data.index import matching, packed
from densevit.data.index.manifest import read_manifest, read_table
from densevit.data.index.matching import to_nfc
from densevit.data.index.packed import PackedSamples
from densevit.data.index.paths import (
    MissingItem,
    SampleFiles,
    Subset,
    file_version,
    first_five,
    is_collecting,
    list_entry,
    record_missing,
)
from densevit.data.io.coco import BASE
from densevit.data.io.normals import Axes
from densevit.data.io.readers import NOT_MEASURED, image_size, read_stored_labels
from densevit.data.io.video import natural_order
from densevit.data.labels.class_lists import find_classes
from densevit.data.labels.class_table import ClassTable
from densevit.data.recordings.blocks import is_consecutive, split_blocks
from densevit.data.recordings.cameras import camera_of_json, is_camera_object, read_camera
from densevit.errors import DataError, located
from densevit.ops.geometry import check_intrinsics
from densevit.ops.segments import segments_of_ids, segments_of_labels
from densevit.registry import did_you_mean
from densevit.structures import IGNORE
from densevit.utils.json_files import read_json

log = logging.getLogger(__name__)

Split = Literal["all", "train", "val", "test"]
MapKind = Literal["depth", "labels"]


SEGMENT_FILES = ("segments.csv", "segments.jsonl")
CROWD = {"0": False, "1": True, "false": False, "true": True, "0.0": False, "1.0": True}
"""Words of the column; pandas writes numbers beside empty cells as 1.0."""
SEGMENT_COLUMNS = {"image", "id", "class"}


@dataclass
class SegmentRows:
    """The segments of one image."""

    ids: list[int] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    crowd: list[bool] = field(default_factory=list)


@DATASETS.register("folder")
class Folder(FileDataset):
    """A user's own images with depth maps, label maps or both."""

    depth_of_any_size = True
    segment_table: Mapping[str, SegmentRows] | None

    def __init__(
        self,
        *,
        root: Path,
        images: str = "images",
        depths: str = "depths",
        labels: str = "labels",
        normals: str = "normals",
        segments: str = "segments",
        normal_axes: Axes = "opencv",
        classes: Path | None = None,
        intrinsics: str = "intrinsics.json",
        manifest: Path | None = None,
        split: Split = "all",
        val_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        depth_scale: Annotated[float, Field(gt=0)] | None = None,
        depth_range: DepthRange = (1e-3, 80.0),
        invalid: Invalid = NOT_MEASURED,
        require_depth: bool | None = None,
        require_labels: bool | None = None,
        subset: Subset = "full",
        allow_outside_root: bool = False,
    ) -> None:
        """List the files and pair them; nothing is decoded. Raises DataError if nothing is there, names are ambiguous
        or without partner; with the count and the first five.

        Args:
            root: the folder (densevit.data.datasets.base.resolve_root).
            images: folder or pattern under `root`; likewise `depths`, `labels`, `normals` and `segments`.
            normal_axes: axes of the normals: opencv (right, down, forward), opengl (right, up, back; Marigold,
                Hypersim) or dsine (left, up, back).
            classes: file under `root` that says what ids or colours mean (densevit.data.labels.class_lists); default
                `classes.json`, `classes.txt` or `labelmap.txt`. Where there is none, ids are taken as stored.
            intrinsics: file under `root`: one camera in a form of densevit.data.recordings.cameras, or JSON of names
                with one each; where it is missing, intrinsics are not known. Distortion is undone.
            manifest: CSV or JSONL table under `root`, instead of the folders.
            split: a folder of that name, or the table's column; else `val_fraction` decides.
            val_fraction: share of `val`. Of a folder whose images are numbered like the frames of a video its end, with
                a gap before it (densevit.data.recordings.blocks); else drawn by a hash of the name, so that it stays
                when files are added; at least one image, and not all.
            depth_scale: stored units per metre: 1000 for millimetres. Float files need none.
            depth_range: metres that the ground truth can have.
            require_depth: false takes images without depth, too. Default: true, unless there are labels and no depth.
            require_labels: likewise; default: true where there are labels and no depth.
            subset: `available` leaves out what has no partner, and says how much that is.
            allow_outside_root: follow links and table entries that lead out of `root`.
        """
        self.root = resolve_root(root, "folder")
        self.depth_scale = depth_scale
        self.depth_range, self.invalid = depth_range, invalid
        self.normal_axes = normal_axes
        self.table = find_classes(self.root, classes)
        if self.table is not None:
            self.classes, self.palette = self.table.names, self.table.palette
        what = f"folder '{split}' in {self.root}"
        self.split_by_fraction = bool(val_fraction)  # a folder is then in both splits
        options = [split, val_fraction, require_depth, require_labels, images, depths, labels, normals, segments]
        entry = None
        if subset == "full" and not allow_outside_root and not is_collecting():  # messages come anew each time
            entry = list_entry(self.root, [*options, str(intrinsics), str(manifest)])
        if entry is not None and self._is_stored(entry):
            return
        started = time.time_ns()
        samples: Sequence[SampleFiles]
        walk = matching.Walk(self.root, allow_outside=allow_outside_root)
        if manifest is not None:
            table = self.root / manifest.expanduser()
            samples = read_manifest(table, self.root, allow_outside=allow_outside_root)
            _check_names(samples, what)
        else:
            base = self.root / split if split != "all" and (self.root / split).is_dir() else self.root
            if base != self.root:
                split = "all"
            globs = {"images": images, "depths": depths, "labels": labels, "normals": normals, "segments": segments}
            samples = find_samples(base, globs, subset, walk, require_depth=require_depth)
        samples = with_intrinsics(samples, self.root / intrinsics)
        self.video = not val_fraction or is_consecutive(packed.column(samples, "name"))
        samples = pick_split(samples, split, val_fraction, what)
        for kind in required(samples, require_depth, require_labels):
            samples = _with_map(kind, samples, subset, what)
        self.segment_table = None
        if packed.has(samples, "segments").any():
            self.segment_table = find_segment_table(self.root, self.table, set(packed.column(samples, "name")))
            self.version = " ".join(file_version(self.root / f) for f in SEGMENT_FILES if (self.root / f).is_file())
            self.things = self._things()
        self.facts = folder_facts(samples, self.root / intrinsics, blocks=bool(val_fraction) and self.video)
        super().__init__(samples, subset, what)
        if entry is not None and isinstance(self.samples, PackedSamples) and self.segment_table is None:
            files = [self.root / file for file in (intrinsics, manifest) if file is not None]
            if (stored := self.samples.stored()) is not None:
                stored[0].update(facts=self.facts, video=self.video)
            folders = (
                packed.folders_below(self.root)
                if manifest is not None
                else [self.root, base, *(base / x for x in globs.values() if not matching.is_pattern(x)), *walk.folders]
            )
            packed.store(entry, packed.state_of([*folders, *files]), stored, started)
            self._is_stored(entry)  # mapped from now on, as in every other process

    def _is_stored(self, entry: Path) -> bool:
        """Take the list from the cache, if it is there."""
        stored = packed.load(entry)
        if stored is not None:
            tree, arrays = stored
            self.samples = listed = PackedSamples.of_stored(tree, arrays)
            self.names, self.facts, self.video, self.segment_table = listed.names, tree["facts"], tree["video"], None
            self.things = self._things() if packed.has(listed, "segments").any() else ()
        return stored is not None

    def _things(self) -> Sequence[int]:
        return self.table.things if self.table else range(len(self.classes))

    def decode_classes(self, files: SampleFiles, size: tuple[int, ...]) -> Classes:
        labels = self.decode_labels(files)
        if files.segments is None:
            return labels, None
        ids = read_segment_ids(files.segments)
        if self.segment_table is not None:
            rows = self.segment_table.get(files.name, SegmentRows())
            segments, unknown = segments_of_ids(ids, rows.ids, rows.classes, rows.crowd)
            if unknown:
                raise DataError(f"{files.segments}: segment {unknown[0]} has no row in the table of segments.")
            return segments.labels() if labels is None else labels, segments
        if labels is None or labels.shape != ids.shape:
            raise DataError(f"{files.segments}: neither segments.csv nor a label map of its size says its classes.")
        return labels, segments_of_labels(labels, ids, self.things)

    def scene(self, index: int) -> str:
        return "" if self.split_by_fraction else folder_of(self.names[index])


def folder_facts(samples: Sequence[SampleFiles], camera: Path, *, blocks: bool) -> list[str]:
    """Return what was found, for `check-data`."""
    count = sum(camera is not None for camera in packed.column(samples, "intrinsics"))
    source = camera.name if camera.is_file() else "the table" if count else f"unknown, without {camera.name}"
    drawn = ["val is the last block of each folder of numbered images, behind a gap"] if blocks else []
    return [f"camera of {count:,} of {len(samples):,} images: {source}", *drawn]


def find_samples(
    base: Path, globs: Mapping[str, str], subset: Subset, walk: matching.Walk, *, require_depth: bool | None
) -> Sequence[SampleFiles]:
    """Return one sample per image, with the depth, labels, normals and segments that match it. `globs`: folder or
    pattern of each. Raises DataError if a folder is missing, or maps are there that belong to no image and `subset` is
    full."""
    has = {kind: matching.exists(base, globs[kind]) for kind in globs}
    pattern = "." if not any(has.values()) and globs["images"] == "images" and is_flat(base) else globs["images"]
    images = matching.find_by_key(base, pattern, matching.IMAGE_SUFFIXES, walk)
    if not images:
        raise DataError(f"{base / pattern}: no images ({', '.join(sorted(matching.IMAGE_SUFFIXES))}).")

    def matching_maps(kind: str, suffixes: frozenset[str]) -> dict[str, matching.Around]:
        maps = matching.find_by_key(base, globs[kind], suffixes, walk)
        if list(maps) == list(images):  # both are sorted
            return maps
        pairs = matching.match_names(images, maps)
        unmatched = maps.keys() - set(pairs.values())
        _report_unmatched(base, kind, [matching.path_of(key, maps[key]) for key in unmatched], subset)
        return {name: matching.around_of(name, matching.path_of(key, maps[key])) for name, key in pairs.items()}

    needed = not (has["labels"] or has["segments"]) if require_depth is None else require_depth
    depths = matching_maps("depths", matching.DEPTH_SUFFIXES) if needed or has["depths"] else {}
    labels = matching_maps("labels", matching.LABEL_SUFFIXES) if has["labels"] else {}
    normals = matching_maps("normals", matching.NORMAL_SUFFIXES) if has["normals"] else {}
    segments = matching_maps("segments", matching.LABEL_SUFFIXES) if has["segments"] else {}
    maps = {"depth": depths, "labels": labels, "normals": normals, "segments": segments}
    long = len(images) >= packed.PACKED_FROM and not walk.broken
    if long and (samples := PackedSamples.of_paths(images, maps)) is not None:
        return samples

    def paths_of(name: str) -> dict[str, Any]:
        columns = {"image": images, **maps}
        return {kind: Path(matching.path_of(name, paths[name])) for kind, paths in columns.items() if name in paths}

    return [SampleFiles(name, **paths_of(name)) for name in images]


def is_flat(folder: Path) -> bool:
    """Return whether images lie in a folder itself."""
    return any(path.suffix.lower() in matching.IMAGE_SUFFIXES for path in folder.iterdir() if path.is_file())


def pick_split(samples: Sequence[SampleFiles], split: Split, val_fraction: float, what: str) -> Sequence[SampleFiles]:
    """Return the samples of a split, by their own `split` or by a hash of their names."""
    if split == "all":
        return samples
    splits, names = packed.column(samples, "split"), packed.column(samples, "name")
    if any(splits):
        picked = [i for i, came in enumerate(splits) if came == split]
        came = f"the splits are {', '.join(sorted(set(map(str, splits))))}"
    elif split == "test" or not val_fraction:
        raise DataError(
            f"{what}: no folder '{split}', nor a column `split` of a table. Make one, or set `val_fraction`."
        )
    else:
        folders: dict[str, list[int]] = {}
        names = list(names)
        for i, name in enumerate(names):
            folders.setdefault(folder_of(name), []).append(i)
        blocks = {folder: is_consecutive([names[i] for i in group]) for folder, group in folders.items()}
        shares, limit = [*map(hash_fraction, names)], val_fraction
        if len(names) > 1 and not any(blocks.values()):  # at least one image in each split
            limit = min(max(val_fraction, sorted(shares)[1]), max(shares))
        picked = []
        for folder, group in folders.items():
            if blocks[folder]:
                picked += split_blocks(sorted(group, key=lambda i: natural_order(names[i])), split, val_fraction)
            else:
                picked += [i for i in group if (shares[i] < limit) == (split == "val")]
        came = f"val_fraction is {val_fraction} of {len(samples)} samples"
    if not picked:
        raise DataError(f"{what}: no samples; {came}.")
    return packed.take(samples, picked)


def hash_fraction(name: str) -> float:
    """Return a number in [0, 1) that depends on the name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64


def required(samples: Sequence[SampleFiles], depth: bool | None, labels: bool | None) -> list[MapKind]:
    """Return what every image must have: what the user asks for; by default depth, or labels where there is no
    depth."""
    classes = packed.has(samples, "labels").any() or packed.has(samples, "segments").any()
    labels_only = bool(classes and not packed.has(samples, "depth").any())
    usual: dict[MapKind, bool] = {"depth": not labels_only, "labels": labels_only and depth is None}
    asked: dict[MapKind, bool | None] = {"depth": depth, "labels": labels}
    return [kind for kind, needed in usual.items() if (needed if asked[kind] is None else asked[kind])]


def _with_map(kind: MapKind, samples: Sequence[SampleFiles], subset: Subset, what: str) -> Sequence[SampleFiles]:
    """Return the samples that have a depth map, or a label map."""
    has = packed.has(samples, kind)
    if kind == "labels":
        has |= packed.has(samples, "segments")
    if has.all():
        return samples
    with_map = packed.take(samples, np.flatnonzero(has).tolist())
    missing = [samples[i].image for i in np.flatnonzero(~has).tolist()]
    reason = f"this image has no {'depth' if kind == 'depth' else 'label'} map"
    if record_missing([MissingItem("missing", str(path), reason) for path in missing], subset):
        return with_map
    if subset == "full" or not with_map:
        raise DataError(
            f"{what}: {len(missing):,} of {len(samples):,} images have no {kind}:{first_five(missing)}\n"
            f"Set `require_{kind}: false` to keep them, or `subset: available` to leave them out."
        )
    log.warning(
        "%s: left out %d of %d images without %s:%s", what, len(missing), len(samples), kind, first_five(missing)
    )
    return with_map


def _report_unmatched(base: Path, kind: str, unmatched: list[str], subset: Subset) -> None:
    """Map without an image: a sign that names do not match as the user thinks."""
    items = [MissingItem("unpaired", path, f"a file of `{kind}` that matches no image") for path in unmatched]
    if not unmatched or record_missing(items, subset):
        return
    text = f"{base}: no image for {len(unmatched):,} of the files of `{kind}`:{first_five(sorted(unmatched))}"
    if subset == "full":
        raise DataError(f"{text}\nName them alike, say how they match by patterns, or set `subset: available`.")
    _warn_once(text)  # each split is opened by itself


@cache
def _warn_once(text: str) -> None:
    log.warning("%s", text)


def _check_names(samples: Sequence[SampleFiles], what: str) -> None:
    twice = [name for name, count in Counter(packed.column(samples, "name")).items() if count > 1]
    if twice and not record_missing(
        MissingItem("duplicate_name", name, "this name occurs more than once") for name in twice
    ):
        raise DataError(f"{what}: {len(twice):,} names occur more than once:{first_five(twice)}")


def with_intrinsics(samples: Sequence[SampleFiles], file: Path) -> Sequence[SampleFiles]:
    """Return the samples with the intrinsics of a JSON file, where it is there; those of a manifest stay. Raises
    DataError if the file is not of the form that `Folder` says."""
    if not file.is_file():
        return samples
    tree = read_json(file) if file.suffix.lower() == ".json" else None
    names = tree if isinstance(tree, dict) and not is_camera_object(tree) else {}
    cameras = {to_nfc(name): camera_of_json(value, file) for name, value in names.items()}
    per_name, shared = bool(names), None if names else read_camera(file)
    size = None
    with suppress(DataError, IndexError):  # an image that cannot be read is told where it is
        size = image_size(samples[0].image)
    if size is not None and isinstance(shared, np.ndarray):
        with located(file):
            check_intrinsics(shared, size)
    if isinstance(samples, PackedSamples) and not per_name:
        return PackedSamples(samples.names, samples.paths, {**samples.shared, "intrinsics": shared})
    missing = [files.name for files in samples if per_name and files.name not in cameras]
    if missing:
        log.warning("%s: no intrinsics for %d of %d samples:%s", file, len(missing), len(samples), first_five(missing))
    return [r if r.intrinsics is not None else replace(r, intrinsics=cameras.get(r.name, shared)) for r in samples]


def find_segment_table(
    root: Path, classes: ClassTable | None, images: Collection[str]
) -> dict[str, SegmentRows] | None:
    """Return the rows of each image; None where there is no table. `classes`: a number in the table is one of their
    stored ids, as in label maps. Raises DataError naming the line: columns are missing, an id that is no number or
    comes twice, a class that is not there, or no row of any image."""
    path = next((root / name for name in SEGMENT_FILES if (root / name).is_file()), None)
    if path is None:
        return None
    names = () if classes is None else classes.names
    places = {} if classes is None else classes.places
    class_ids = {name: i for i, name in enumerate(names)}
    class_ids |= {str(id_): place for id_, place in places.items() if place != IGNORE}
    table: dict[str, SegmentRows] = {}
    for line, cells in read_table(path):
        if not cells.keys() >= SEGMENT_COLUMNS:
            raise DataError(f"{path}:{line}: needs the columns image, id and class; has {', '.join(cells)}.")
        image, id_, name = (str(cells[column]).strip() for column in ("image", "id", "class"))
        rows = table.setdefault(image, SegmentRows())
        if not id_.isdecimal() or int(id_) < 1 or int(id_) in rows.ids:
            raise DataError(f"{path}:{line}: an id is a whole number from 1 on, once for each image; got '{id_}'.")
        if name not in class_ids:
            raise DataError(f"{path}:{line}: no class '{name}'.{did_you_mean(name, list(names))}")
        rows.ids.append(int(id_))
        rows.classes.append(class_ids[name])
        crowd = str(cells.get("crowd") or "0").strip().lower() or "0"
        if crowd not in CROWD:
            raise DataError(f"{path}:{line}: crowd is 0 or 1, or false or true; got '{crowd}'.")
        rows.crowd.append(CROWD[crowd])
    if table.keys().isdisjoint(images):
        raise DataError(f"{path}: no image '{next(iter(table))}'; an image is named as in its folder, without suffix.")
    return table


def read_segment_ids(path: Path) -> Int64[np.ndarray, "h w"]:
    """Return the numbers in a map of segments: gray, or R + 256 G + 65536 B. Raises DataError: one is below 0."""
    pixels = read_stored_labels(path).pixels.astype(np.int64)
    if (least := int(pixels.min())) < 0:
        raise DataError(f"{path}: segment {least}; numbers of segments go from 1 on, and 0 is void.")
    return pixels @ BASE if pixels.ndim == 3 else pixels
