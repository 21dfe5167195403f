"""A look at a user's folder: which folders hold what, sizes, the unit of depth, classes."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from densevit.config.starter import FolderFacts
from densevit.data.datasets.base import Dataset, FileDataset, evenly_spaced, open_dataset
from densevit.data.datasets.folder import Folder, MapKind, hash_fraction
from densevit.data.datasets.named import NAMES, SPLITS, find_names, other_names, split_folders, type_of_folder
from densevit.data.datasets.recording import Recording
from densevit.data.index.paths import SampleFiles
from densevit.data.io.images import file_format
from densevit.data.io.readers import SCALE_KEY, image_size, read_stored_labels, read_values, read_wide
from densevit.data.recordings.blocks import is_consecutive
from densevit.errors import DataError
from densevit.structures import IGNORE

LOOKED_AT = 48  # samples, evenly spaced
VAL_FRACTION, FEWEST = 0.1, 4  # share of validation images, and how many there are at least
SPARSE = 0.4  # share of valid pixels below which depth is a laser scanner's,
SENSOR_RANGE = 8  # if it reaches further than depth cameras see, in metres, were it millimetres
UINT16_MAX = 65535  # marks missing depth in 7-Scenes and others


def look_at_folder(root: Path) -> FolderFacts:
    """Pair the files and decode some of them. Raises DataError: no folder of images, images without maps, or files
    that cannot be read."""
    root = root.expanduser().absolute()
    if not root.is_dir():
        raise DataError(f"{root}: no such folder.")
    kind = type_of_folder(root)
    if kind == "recording":
        return look_at_recording(root)
    if kind in ("coco", "yolo"):
        return look_at_annotations(root, kind)
    splits = tuple(split for split in SPLITS if any((root / split / name).is_dir() for name in NAMES["images"]))
    if splits and "train" not in splits:
        raise DataError(f"{root}: has folders {', '.join(splits)}, and no 'train'.")
    options = other_names(find_names(root / "train" if splits else root))
    common: dict[str, Any] = {
        "root": root,
        "depth_scale": 1.0,
        "require_depth": False,
        "require_labels": False,
        **options,
    }
    try:
        train = Folder(**common, split="train" if splits else "all")
    except DataError:  # maps without an image
        options["subset"] = common["subset"] = "available"
        train = Folder(**common, split="train" if splits else "all")
        if not any(files.depth or files.labels or files.segments for files in train.samples):
            raise  # names that do not match
    fraction = val_fraction(train.names)
    val = Folder(**common, split="val", val_fraction=0.0 if "val" in splits else fraction)
    sampled = looked_at(train)
    depths, labels = with_map(sampled, "depth"), with_map(sampled, "labels")
    with_segments = with_map(sampled, "segments")
    segments = segments_of_classes(train) if with_segments and train.classes and not depths else None
    facts = [] if "val" in splits else list(val.facts[1:])
    if with_segments and not segments:
        facts.append("segments/ is left out; recipe panoptic/folder learns it, if classes.json names the classes")
    if not depths and not labels and not segments:
        advice = "depth lies in 'depths', classes in 'labels', or in 'segments' with their names in classes.json"
        raise DataError(f"{root}: {len(train):,} images and no maps; {advice}.")
    sizes = tuple(dict.fromkeys(image_size(files.image) for files in sampled))
    scale, guess, metres = depth_facts(depths) if depths else (None, "", None)
    classes, hint = class_facts(train, labels) if labels or segments else (None, "")
    return FolderFacts(
        root=str(root),
        options=options,
        splits=splits if "val" in splits else (),
        images=len(train if "val" in splits else Folder(**common, split="train", val_fraction=fraction)),
        val_images=len(val),
        val_fraction=fraction,
        sizes=sizes,
        depth_scale=scale,
        depth_guess=guess,
        depth_metres=metres,
        classes=classes,
        class_hint=hint,
        segments=segments,
        facts=facts,
    )


def looked_at(data: FileDataset) -> list[SampleFiles]:
    """Return some samples, evenly spaced."""
    return [data.samples[i] for i in evenly_spaced(len(data), LOOKED_AT)]


def segments_of_classes(data: Dataset) -> Literal["panoptic", "instances"]:
    """Return what is learned of a data set's segments: objects alone, where no class is stuff."""
    return "panoptic" if len(data.things) < len(data.classes) else "instances"


def with_map(samples: Sequence[SampleFiles], kind: MapKind | Literal["segments"]) -> list[SampleFiles]:
    return [files for files in samples if getattr(files, kind) is not None]


def guesses(data: Folder) -> Iterator[tuple[str, str]]:
    """Yield what `init` guesses of a folder, for `check-data`: types of issues and reasons; nothing of damaged
    files."""
    sampled = looked_at(data)
    depths, labels = with_map(sampled, "depth"), with_map(sampled, "labels")
    with suppress(DataError):
        if depths and data.depth_scale is None:
            scale, guess, _ = depth_facts(depths)
            if guess:
                yield "guessed_unit", f"--data-options depth_scale={scale:g} is a guess: {guess}"
    with suppress(DataError):
        if labels and (hint := class_facts(data, labels)[1]):
            yield "likely_void", hint


def look_at_recording(root: Path) -> FolderFacts:
    """Open a recording and decode some of its frames. Raises DataError: one of them cannot be read."""
    options: dict[str, Any] = {}
    try:
        whole = Recording(root=root)
    except DataError:  # a list may name images that are gone
        options = {"subset": "available"}
        whole = Recording(root=root, **options)
    scale, guess = None, ""
    if whole.layouts <= {"folders", "colmap"}:  # maps of any program
        scale, guess, _ = depth_facts(looked_at(whole))
    train, val = (Recording(root=root, split=split, depth_scale=scale, **options) for split in ("train", "val"))
    try:
        sampled = [train.read(i) for i in evenly_spaced(len(train), LOOKED_AT)]
    except DataError as error:
        raise DataError(f"{error} `densevit check-data {shlex.quote(str(root))}` lists all such files.") from None
    depths = np.concatenate([s.depth[s.valid][::50] for s in sampled if s.depth is not None and s.valid is not None])
    if not depths.size:
        raise DataError(f"{root}: none of {len(sampled)} depth maps has a value over 0.")
    near, median, far = np.quantile(depths, (0.01, 0.5, 0.99)).tolist()
    return FolderFacts(
        type="recording",
        root=str(root),
        options=options,
        images=len(train),
        val_images=len(val),
        val_fraction=0.0,
        sizes=tuple(dict.fromkeys((s.image.shape[0], s.image.shape[1]) for s in sampled)),
        depth_scale=scale,
        depth_guess=guess,
        depth_metres=(near, median, far),
        facts=whole.facts,
    )


def look_at_annotations(root: Path, kind: str) -> FolderFacts:
    """Open the annotation files of COCO or YOLO, and decodes some of the images."""
    spec: dict[str, Any] = {"type": kind, "root": str(root), **({"background": False} if kind == "yolo" else {})}
    whole = kind == "coco" and not split_folders(spec)
    train = open_dataset(spec if whole else {**spec, "split": "train"})
    fraction = val_fraction(train.names) if whole else 0.0
    splits = [open_dataset({**spec, "split": split, **({"val_fraction": fraction} if whole else {})})
             for split in ("train", "val")]  # fmt: skip
    sampled = [train.read(i) for i in evenly_spaced(len(train), LOOKED_AT)]
    segments = sum(0 if sample.segment_classes is None else len(sample.segment_classes) for sample in sampled)
    return FolderFacts(
        type=kind,
        root=str(root),
        options={"background": False} if kind == "yolo" else {},
        splits=() if whole else SPLITS[:2],
        images=len(splits[0]),
        val_images=len(splits[1]),
        val_fraction=fraction,
        sizes=tuple(dict.fromkeys((s.image.shape[0], s.image.shape[1]) for s in sampled)),
        classes=tuple(train.classes),
        segments=segments_of_classes(train),
        facts=[f"{segments / len(sampled):.1f} segments in an image, of {len(sampled)} looked at"],
    )


def val_fraction(names: Sequence[str]) -> float:
    """Return the smallest share from a tenth on that gives some validation images: the end of a video, else those that
    the hash of their names draws."""
    if is_consecutive(names):
        return max(VAL_FRACTION, FEWEST / len(names))
    shares = sorted(hash_fraction(name) for name in names)
    last = min(FEWEST, max(1, len(names) // 2)) - 1
    needed = np.ceil(100 * (shares[last] + 1e-9)) / 100
    return round(min(0.9, max(VAL_FRACTION, float(needed))), 2)


def depth_facts(samples: Sequence[SampleFiles]) -> tuple[float | None, str, tuple[float, float, float]]:
    """Return the units per metre (None where files hold metres or say it), why it is a guess, percentiles in metres.
    Raises DataError if no depth is valid in any of them."""
    first, *others = (files.depth for files in samples if files.depth is not None)
    whole, coding = read_wide(first)
    unit = coding.get(SCALE_KEY)
    values, share = [], []
    for stored in chain([whole], map(read_values, others)):
        valid = stored[np.isfinite(stored) & (stored > 0) & (stored != UINT16_MAX)]
        values.append(valid[:: max(1, valid.size // 10_000)])
        share.append(valid.size / stored.size)
    together = np.concatenate(values)
    if not together.size:
        raise DataError(f"{samples[0].depth}: none of {len(samples)} depth maps has a value over 0.")
    percentiles = np.quantile(together, (0.01, 0.5, 0.99))
    scale, guess = unit_of(first, whole, percentiles, float(np.mean(share))) if unit is None else (None, "")
    near, median, far = (percentiles / (scale or unit or 1.0)).tolist()
    return scale, guess, (near, median, far)


def unit_of(path: Path, values: np.ndarray, percentiles: np.ndarray, share: float) -> tuple[float | None, str]:
    """Return the units per metre of a kind of file; whole numbers do not say theirs, so that is a guess. `values`: of
    the file."""
    stored = np.asarray(percentiles)
    if file_format(path) in ("PFM", "EXR") or not (np.isfinite(values) & (values == np.trunc(values))).all():
        if stored[1] > 200:
            return 1000.0, f"the median is {stored[1]:.0f}, so these floats are hardly metres but millimetres"
        return None, ""
    if share < SPARSE and stored[2] > SENSOR_RANGE * 1000 and stored[2] / 256 < 130:
        scale, why = 256.0, "few pixels are measured, as in KITTI's PNGs"
    elif stored[2] / 1000 > 12 and stored[2] / 5000 < 13.2:  # beyond a depth camera's range, at the end of 16 bits
        scale, why = 5000.0, "as in TUM's PNGs"
    elif stored[2] <= 200:
        return 1.0, f"the values look like metres; the median is {stored[1]:.2f}"
    else:
        scale, why = 1000.0, "millimetres are usual"
    medians = ", ".join(f"{stored[1] / unit:.2f} m at {unit}" for unit in (256, 1000, 5000))
    return scale, f"{why}; the median is {medians}"


def class_facts(data: Folder, samples: Sequence[SampleFiles]) -> tuple[tuple[str, ...] | int, str]:
    """Return the names of the classes, or how many ids occur where no file names them, and which one looks like void.
    Raises DataError if the maps hold colours that no file explains, or one class only."""
    if data.classes:
        return tuple(data.classes), ""
    largest, ignored, border = 0, False, Counter[int]()
    for files in samples:
        assert files.labels is not None
        stored = read_stored_labels(files.labels)
        if stored.pixels.ndim == 3:
            raise DataError(
                f"{files.labels}: holds colours; say in {data.root / 'classes.json'} what they mean: "
                '{"wall": [120, 120, 120], "floor": "#503232"}.'
            )
        ids = stored.pixels[stored.pixels != IGNORE]
        largest, ignored = max(largest, int(ids.max(initial=0))), ignored or ids.size < stored.pixels.size
        for line in (stored.pixels[0], stored.pixels[-1], stored.pixels[:, 0], stored.pixels[:, -1]):
            border.update(line.tolist())
    if largest == 0:
        values = f"0 and {IGNORE}, which means no class" if ignored else "0"
        example = f'[{{"id": 0, "name": "background"}}, {{"id": {IGNORE}, "name": "thing"}}]'
        raise DataError(
            f"{samples[0].labels}: {len(samples)} label maps looked at hold nothing but {values}; a model needs two "
            f"classes. If {IGNORE} is one, say so in {data.root / 'classes.json'}: {example}."
        )
    id_, count = border.most_common(1)[0]
    hint = ""
    if len(samples) > 1 and id_ != IGNORE and 2 * count > border.total():
        entry = f'{{"id": {id_}, "name": "void", "ignore": true}}'
        share = f"{count / border.total():.0%} of the border pixels"
        hint = f"id {id_} has no name and fills {share}; if it means no class, list all in classes.json, it as {entry}"
    return largest + 1, hint
