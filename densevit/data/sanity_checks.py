"""Checks some training samples before the first step: depth against the head's range, labels, train/val overlap."""

import math
import re
import weakref
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Float32

from densevit.config.schema import TrainConfig
from densevit.data.datasets.base import Dataset, MixtureSource, evenly_spaced, resolve_root
from densevit.data.loading.augmented import transforms_by_source, with_sample_name
from densevit.data.loading.dataloader import OnError
from densevit.data.transforms.affine import Transform
from densevit.errors import DataError
from densevit.ops.geometry import field_of_view, is_camera
from densevit.ops.normals import KINDS_WITH_NORMALS
from densevit.structures import IGNORE, NO_LABEL

T = TypeVar("T")

NON_COMMERCIAL = re.compile(r"\bnc\b|non-?commercial|research", re.IGNORECASE)

NUM_SAMPLES = 16
DRAWS = 4  # of the transforms of a sample, which may crop its few measured pixels away
LOOKS = 4  # of them, that are read to see what ground truth a source of a mixture has
PIXELS = 4096  # of each sample; enough for percentiles
UNITS = {1000.0: "millimetres", 100.0: "centimetres", 256.0: "KITTI's 1/256 m", 0.001: "kilometres"}
MAX_OUTSIDE, MIN_USED = 0.5, 0.25  # fractions beyond which a warning is given

# Times that the medians of two samples differ where their units do: scenes differ less, usual units by 256 or 1000.
MIXED_UNITS = 100


def check_ground_truth(dataset: Dataset, *, depth: bool, labels: bool, on_corrupt: OnError = "raise") -> None:
    """Read samples until one has a valid pixel of depth, or of a class. Raises DataError: none of all has."""
    for index in range(len(dataset)):
        if (depth and _depth(dataset, index, on_corrupt).size) or (labels and _ids(dataset, index, on_corrupt)):
            return
    needed = " or ".join(["valid depth"] * depth + ["a class"] * labels)
    raise DataError(f"data.train: nothing to learn from: none of all {len(dataset):,} samples has a pixel of {needed}.")


def check_transforms(
    dataset: Dataset, transform: Transform, seed: int, *, depth: bool, labels: bool, on_corrupt: OnError = "raise"
) -> list[str]:
    """Check that transforms leave some samples, spread over the data set, ground truth to learn from. Returns a
    warning, where they leave none."""
    transforms, indices = transforms_by_source(dataset, transform), evenly_spaced(len(dataset), NUM_SAMPLES)
    for draw in range(DRAWS):
        for index in indices:
            if (sample := attempted(dataset.read, dataset, index, on_corrupt)) is None:
                continue
            sample = transforms[sample.source](sample, np.random.default_rng((seed, draw, index)))
            if depth and sample.valid is not None and sample.valid.any():
                return []
            if labels and sample.labels is not None and (sample.labels != IGNORE).any():
                return []
    return [f"data.transforms: none of {len(indices)} samples looked at has any ground truth left to learn from."]


def check_depth_range(
    dataset: Dataset,
    low: float,
    high: float,
    *,
    loaded: bool = False,
    on_corrupt: OnError = "raise",
    source: str = "data.train",
) -> list[str]:
    """Compare the depth of some samples, spread over the data set, with a head's range in metres. Raises DataError:
    all of the depth lies outside the range. `loaded`: the range belongs to loaded weights, so no other is advised;
    `on_corrupt`: skip ignores unreadable samples; the loader counts them; `source`: what messages call the data set.
    Returns warnings, each with what to do."""
    indices = evenly_spaced(len(dataset), NUM_SAMPLES)
    looks = {dataset.names[index]: _depth(dataset, index, on_corrupt) for index in indices}
    depth = np.concatenate(list(looks.values()))
    if not depth.size:
        looked = f"{len(indices)} samples looked at, of {len(dataset)}"
        return [f"{source}: none of {looked}, has any depth to learn from."]
    least, middle, most = (float(x) for x in np.percentile(depth, (1, 50, 99)))
    spread = f"depth in {len(indices)} samples of {source}: median {middle:.4g}, 1% to 99% {least:.4g} to {most:.4g} m"
    outside = float(((depth < low) | (depth > high)).mean())
    if outside == 1:
        raise DataError(
            f"{spread}; none of it within the head's range, {low:g} to {high:g} m.{_unit(middle, low, high)}"
        )
    warnings = []
    if outside > MAX_OUTSIDE:
        warnings = [
            f"{spread}; {outside:.0%} lies outside the head's range, {low:g} to {high:g} m, and is not learned from."
            f"{_unit(middle, low, high)}"
        ]
    elif most < MIN_USED * high and not loaded:
        warnings = [
            f"{spread}; the head reaches {high:g} m. If there is nothing further away, set max_depth to {2 * most:.2g}."
        ]
    return warnings + _mixed({name: float(np.median(values)) for name, values in looks.items() if values.size}, source)


def check_labels(dataset: Dataset, *, on_corrupt: OnError = "raise", source: str = "data.train") -> list[str]:
    """Check that the label maps of some samples, spread over the data set, have two classes or more. Raises DataError
    if a label map is bad, and may not be skipped. Returns warnings, each with what to do."""
    indices = evenly_spaced(len(dataset), NUM_SAMPLES)
    looked = f"{len(indices)} samples looked at, of {len(dataset)}"
    classes = sorted(set().union(*(_ids(dataset, index, on_corrupt) for index in indices)))
    if not classes:
        return [f"{source}: none of {looked}, has a pixel with a class to learn from."]
    if len(classes) == 1:
        return [
            f"{source}: every pixel that has a class is '{dataset.classes[classes[0]]}', in all {looked}. Masks of 0 "
            f"and {IGNORE}, say? {IGNORE} means no class, unless the list of classes names it."
        ]
    return []


def check_cameras(dataset: Dataset, source: str, *, on_corrupt: OnError = "raise") -> list[str]:
    """Check that the cameras of some samples, spread over the data set, are known. Raises DataError if none is.
    Returns a warning, where some are not."""
    indices = evenly_spaced(len(dataset), NUM_SAMPLES)
    has_camera = [view is not None for view in (camera_view(dataset, index, on_corrupt) for index in indices)]
    if all(has_camera):
        return []
    counts = f"{has_camera.count(False)} of {len(has_camera)} samples looked at"
    if any(has_camera):
        return [f"{source}: {counts} have no intrinsics; this model learns no metres from such images."]
    raise DataError(
        f"{source}: this model needs the intrinsics of each image, and none of {len(has_camera)} samples looked at has "
        "any. `folder` reads them from intrinsics.json. To train without, leave out `model.camera: canonical`, "
        "`model.conditioning.rays` and the task of a head `focal`."
    )


def fields_of_view(dataset: Dataset, *, on_corrupt: OnError = "raise") -> tuple[float, float] | None:
    """Return the smallest and the largest horizontal field of view among some samples, in degrees; None of unknown
    cameras."""
    views = (camera_view(dataset, index, on_corrupt) for index in evenly_spaced(len(dataset), NUM_SAMPLES))
    angles = [field_of_view(width, focal) for width, focal in filter(None, views)]
    return (round(min(angles), 2), round(max(angles), 2)) if angles else None


def median_focal(dataset: Dataset, transform: Transform, seed: int, *, on_corrupt: OnError = "raise") -> float:
    """Return the median focal length of some samples as the network sees them, in pixels; rounded to three digits.
    Raises DataError if no camera is known."""
    focals = []
    transforms = transforms_by_source(dataset, transform)
    for index in evenly_spaced(len(dataset), NUM_SAMPLES):
        sample = attempted(dataset.read, dataset, index, on_corrupt)
        if sample is not None and sample.intrinsics is not None:
            matrix = transforms[sample.source](sample, np.random.default_rng((seed, index))).intrinsics
            focals.append(float(matrix[0, 0] + matrix[1, 1]) / 2 if matrix is not None else math.nan)
    if not focals:
        problem = "'canonical' needs the intrinsics of the training images, and data.train has none."
        raise DataError(f"{problem} `folder` reads them from intrinsics.json; `camera: none` trains without.")
    return float(f"{np.nanmedian(focals):.3g}")


def has_cameras(dataset: Dataset) -> bool:
    """Return whether the camera of some samples is known."""
    return any("camera" in there for there in _looks(dataset))


def camera_view(dataset: Dataset, index: int, on_corrupt: OnError) -> tuple[int, float] | None:
    """Return the width and horizontal focal length of a sample, in pixels."""
    sample = attempted(dataset.read, dataset, index, on_corrupt)
    if sample is None or sample.intrinsics is None or not is_camera(sample.intrinsics):
        return None
    return sample.image.shape[1], float(sample.intrinsics[0, 0])


def check_normals(dataset: Dataset, name: str, *, on_corrupt: OnError = "raise") -> None:
    """Check that some samples have normals, or depth with intrinsics, from which they follow. `name`: of the data set
    in the config, `train` say. Raises DataError if none has."""
    samples = [
        attempted(dataset.read, dataset, index, on_corrupt) for index in evenly_spaced(len(dataset), NUM_SAMPLES)
    ]
    there = [sample for sample in samples if sample is not None]
    if not any(s.normals is not None or (s.depth is not None and s.intrinsics is not None) for s in there):
        raise DataError(
            f"data.{name}: no normals to learn from or to score: none of {len(samples)} samples looked at has them, or "
            "depth with the camera's intrinsics, from which they would follow. Rooms: prepare_rooms.py --normals; "
            "your own: a folder `normals`, or intrinsics.json."
        )


def ground_truth_sizes(dataset: Dataset, *, on_corrupt: OnError = "raise") -> dict[tuple[int, int], str]:
    """Return (h, w) of the valid depth of some samples, spread over the data set, each with the name of one that has
    it. Raises DataError if a sample is bad."""
    sizes: dict[tuple[int, int], str] = {}
    for index in evenly_spaced(len(dataset), NUM_SAMPLES):
        sample = attempted(dataset.read, dataset, index, on_corrupt)
        if sample is not None and sample.depth is not None and sample.valid is not None and sample.valid.any():
            h, w = sample.depth.shape
            sizes.setdefault((h, w), sample.name)
    return sizes


def check_train_val_overlap(train: Dataset, val: Dataset) -> list[str]:
    """Check by file name that no validation image is trained on. Returns a warning, with what to do; none of data sets
    that do not tell their files."""
    train_images = {path for i in range(len(train)) if (path := _image(train, i))}
    shared = [val.names[i] for i in range(len(val)) if _image(val, i) in train_images]
    if not shared:
        return []
    return [
        f"{len(shared):,} of the {len(val):,} images of data.val are in data.train, too, '{shared[0]}' for one: their "
        "scores do not measure generalisation. Give both their own `split`, and the same `val_fraction`."
    ]


def selected_sources(dataset: Dataset, names: Collection[str] = ()) -> list[tuple[str, MixtureSource]]:
    """Return the sources of a mixture (those of these names, or all), each with what messages call it; else the data
    set."""
    if not dataset.sources:
        return [("", MixtureSource("", dataset, 1.0))]
    return [(f", source '{s.name}'", s) for s in dataset.sources if not names or s.name in names]


def _image(dataset: Dataset, index: int) -> str:
    path = dataset.files(index).get("image")
    return str(path) if path else ""  # absolute paths would cost seconds of 100,000 images


def check_licences(dataset: Dataset) -> list[str]:
    """Return the warnings of teachers whose licence forbids commercial use, which may hold for what learns from them,
    too."""
    return [
        f"data.train: its teacher '{teacher.name}' has the licence {teacher.licence}, which is not for commercial use; "
        "the card of this model names it."
        for teacher in dataset.teachers
        if NON_COMMERCIAL.search(teacher.licence)
    ]


def found_truths(source: MixtureSource) -> frozenset[str]:
    """Return the ground truth that a source is said to have, or that some of its images have. Only the images tell
    labels of pixels from those of images (`image labels`) and from `segments`, and whether there is a `camera`, by
    which normals follow from depth."""
    said = source.truths
    if said is not None and "none" in said:
        return frozenset(said)
    looks = _looks(source.data)
    seen = {kind for there in looks for kind in there}
    kinds = {*(seen - {"depth"} if said is None else said)} | (seen & {"camera"})
    if "labels" in kinds and (labels := seen & {"labels", "image labels", "segments"}):
        kinds = kinds - {"labels"} | labels
    if kinds & {*KINDS_WITH_NORMALS} and any(there >= {"camera", "depth"} for there in looks):
        kinds |= {"normals"}
    return frozenset(kinds)


_seen: dict[int, tuple[weakref.ref[Dataset], list[frozenset[str]]]] = {}
"""What `_looks` found, by the id of the data set, which may be a data class and then has no hash."""


def _looks(dataset: Dataset) -> list[frozenset[str]]:
    """Return what some samples have, as `found_truths` calls it; they are read once."""
    known = _seen.get(id(dataset))
    if known is None or known[0]() is not dataset:
        read = (attempted(dataset.read, dataset, index, "skip") for index in evenly_spaced(len(dataset), LOOKS))
        there = [sample for sample in read if sample is not None]  # others are reported where they are needed
        looks = [
            frozenset({
                *(("depth", sample.depth_kind) if sample.depth is not None else ()),
                *(("normals",) if sample.normals is not None else ()),
                *(("labels",) if sample.labels is not None else ()),
                *(("segments",) if sample.segments is not None else ()),
                *(("image labels",) if sample.label not in (None, NO_LABEL) else ()),
                *(("camera",) if sample.intrinsics is not None and is_camera(sample.intrinsics) else ()),
            })
            for sample in there
        ]  # fmt: skip
        known = _seen[id(dataset)] = weakref.ref(dataset), looks
    return known[1]


def attempted(read: Callable[[int], T], dataset: Dataset, index: int, on_corrupt: OnError) -> T | None:
    """Return what `read` gives; None for a sample that is unreadable and may be skipped."""
    try:
        with with_sample_name(dataset, index):
            return read(index)
    except DataError:
        if on_corrupt == "raise":
            raise
        return None


def _ids(dataset: Dataset, index: int, on_corrupt: OnError) -> set[int]:
    labels = attempted(dataset.label_map, dataset, index, on_corrupt)
    return set() if labels is None else set(np.unique(labels[labels != IGNORE]).tolist())


def _depth(dataset: Dataset, index: int, on_corrupt: OnError) -> Float32[np.ndarray, " pixels"]:
    sample = attempted(dataset.read, dataset, index, on_corrupt)
    if sample is None or sample.depth is None or sample.valid is None:
        return np.zeros(0, np.float32)
    depth: Float32[np.ndarray, " pixels"] = sample.depth[sample.valid]
    return depth[:: max(1, depth.size // PIXELS)]


def _mixed(medians: Mapping[str, float], source: str) -> list[str]:
    """Return a warning about samples whose depth is likely in different units."""
    near, far = (pick(medians, key=lambda name: medians[name]) for pick in (min, max))
    if medians[far] < MIXED_UNITS * medians[near]:
        return []
    return [
        f"depth in {source}: the median of '{near}' is {medians[near]:.3g} m, that of '{far}' {medians[far]:.3g} m. "
        "Do their files hold different units? `depth_scale` divides all of them, those of floats, too. "
        "`densevit check-data` names each."
    ]


def _unit(middle: float, low: float, high: float) -> str:
    """Return the likely unit of the values, as a sentence."""
    factor = next((factor for factor in UNITS if low <= middle / factor <= high), None)
    if factor is None:
        return " Set the head's max_depth, or the unit of the data (depth_scale)."
    return f" The values look like {UNITS[factor]}: is depth_scale {factor:g} times what it was set to?"


def output_problems(run: TrainConfig) -> list[str]:
    """Return a problem if the run would write into the folder of a data set itself."""
    specs = [spec for spec in (run.data.train, run.data.val, run.data.probe) if spec]
    specs += [source.get("data") or {} for spec in specs for source in spec.get("sources", ())]
    output = run.output.resolve()
    for root in {str(spec["root"]) for spec in specs if spec.get("root")}:
        with suppress(DataError):  # missing data are reported when they are opened
            if resolve_root(Path(root), root).resolve() == output:
                return [f"output: {run.output} is the folder of the data set; name another one, as {output / 'runs'}."]
    return []
