"""The interface of every data set, and the names a config may use for them."""

import hashlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from traceback import walk_stack
from types import FunctionType
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float32, Float64, Int64
from pydantic import AfterValidator, Field

from densevit.data.fields import crop_sample, undistort_sample
from densevit.data.index import packed
from densevit.data.index.packed import PackedSamples
from densevit.data.index.paths import SampleFiles, Subset, keep_present
from densevit.data.io.normals import Axes, read_normals
from densevit.data.io.readers import DepthCache, image_size, read_depth, read_image
from densevit.data.io.samples import (
    depth_at_image,
    make_sample,
    normals_at_image,
    read_label_map,
    read_mask,
    true_normals,
)
from densevit.data.labels.class_table import ClassTable
from densevit.data.recordings.distortion import CameraModel, PinholeView
from densevit.data.recordings.poses import read_words
from densevit.data.transforms.affine import Transform
from densevit.errors import ConfigError, DataError, located
from densevit.model_card import Palette
from densevit.ops.crops import Pixels, crop
from densevit.ops.geometry import field_of_view
from densevit.ops.segments import Objects, Segments
from densevit.registry import ComponentConfig, Registry, did_you_mean
from densevit.structures import Box, DepthKind, Sample, Size


def _near_below_far(ends: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= ends[0] < ends[1] < inf:
        raise ValueError("input should be two numbers of metres, 0 <= near < far")
    return ends


Classes = tuple[Int64[np.ndarray, "h w"] | None, Segments | None]
"""What a data set has of an image's classes: their ids, and the segments."""

Root = Annotated[
    Path | None,
    Field(description="the folder; default: the data set's name below `$DENSEVIT_DATASETS` or `./datasets`."),
]
"""A folder that `resolve_root` finds."""

DepthRange = Annotated[tuple[float, float], AfterValidator(_near_below_far)]

Invalid = Annotated[
    tuple[float, ...],
    Field(description="values of depth files, as stored, that mean that nothing was measured, besides those up to 0."),
]


class Dataset(ABC):
    """Samples by index. Opening it checks that the files are there; `read` decodes one sample.

    A data set holds paths, not open files: it is pickled to worker processes, and an HDF5 file is opened in each of
    them when first read.
    """

    names: Sequence[str]
    """One unique name per sample, without suffix; may contain `/` (exports keep the folders)."""

    depth_range: tuple[float, float] = (1e-3, 80.0)
    """Metres that the ground truth can have; validation warns of others."""

    classes: Sequence[str] = ()
    """Names of the ids in `Sample.label` or `Sample.labels`, in order; empty where they have none."""

    things: Sequence[int] = ()
    """The classes whose segments are single objects, by id; the segments of all others are all of the class."""

    palette: Palette = ()
    """Colours of the classes, in order; empty where none are published."""

    sizes: Set[Size] = frozenset()
    """Image sizes as published; empty where any size may be. Other sizes were resized or cropped by somebody."""

    typical_depth: tuple[float, float] | None = None
    """Metres between which the median depth of many such images lies; None where not known."""

    typical_density: tuple[float, float] | None = None
    """Between which two shares of the pixels have valid depth; None where not known."""

    video: bool = False
    """Whether the images of a scene and folder are frames of a video, in the natural order of their names."""

    maps_shared: bool = False
    """Whether several images may rightly have equal maps: one view in fog and in rain."""

    table: ClassTable | None = None
    """What numbers and colours in label files mean; None where the numbers are class ids."""

    sources: Sequence["MixtureSource"] = ()
    """The data sets of a mixture, in the order of the indices; empty where there is none."""

    balanced: bool = False
    """Whether the images of each training step are shared out to the sources, not drawn independently."""

    teachers: Sequence["TeacherInfo"] = ()
    """The models that made its ground truth; empty where it was measured or rendered."""

    facts: Sequence[str] = ()
    """What opening it decided, for `check-data`: where the camera comes from, how a split was drawn."""

    depth_cache: DepthCache | None = None
    """Where decoded depth files are kept; None decodes them every time."""

    fits_normals: bool = False
    """Whether samples have the normals of their depth where they have none; see `with_normals`."""

    reads_normals: bool = True
    """Whether `read` returns normals of its own; else they are those of depth, or none; see `with_normals`."""

    annotate: Callable[[int, Sample], Sample] | None = None
    """Adds what a training objective needs to sample `index`, before its transforms."""

    next_frames: Int64[np.ndarray, " n"] | None = None
    """Index of the frame that follows each one in a clip, -1 where none does; None: the one `clip_stride` later."""

    version: str = ""
    """What changes with annotations that no file of a sample holds, for caches."""

    def __setattr__(self, name: str, value: object) -> None:
        """Raise ConfigError: a data set of a plug-in hides a method that the program calls by an attribute."""
        hides = isinstance(getattr(type(self), name, None), FunctionType)
        callers = walk_stack(sys._getframe(1)) if hides else ()
        for frame, line in (caller for caller in callers if caller[0].f_locals.get("self") is self):
            methods = sorted(key for key, attribute in vars(Dataset).items() if isinstance(attribute, FunctionType))
            raise ConfigError(
                f"{frame.f_code.co_filename}:{line}: class {type(self).__name__} sets self.{name}, which is a method "
                f"of every data set. Rename it; names of methods are {', '.join(m for m in methods if m[0] != '_')}."
            )
        super().__setattr__(name, value)

    def __len__(self) -> int:
        return len(self.names)

    def files(self, index: int) -> Mapping[str, Path]:
        """Return the files of a sample, by `image`, `depth`, `labels` or another word.

        Empty where samples have no files of their own: where they are frames of one large file, say.
        """
        return {}

    def scene(self, index: int) -> str:
        """Return the place or video that a sample was taken from: splits should not share any. Empty where not
        known."""
        return ""

    def time(self, index: int) -> float:
        """Return when a frame of a video was taken, in seconds; 0 where not known, and names tell the order."""
        return 0.0

    def without_depth(self) -> "Dataset":
        """Return the data set for work without depth: it reads no depth files, whose unit may be unknown."""
        return self

    def with_normals(self, *, files: bool = True) -> "Dataset":
        """Return the data set for work on normals: where it has none, it reads those of its depth, which fit the
        measured pixels. Those of depth that was resampled afterwards are off by degrees. `files`: whether normals of
        its own come first."""
        other = copy(self)
        other.fits_normals = True
        return other

    def read_annotated(self, index: int) -> Sample:
        """Decode one sample, and add what a training objective needs."""
        sample = self.read(index)
        if self.fits_normals:
            sample = replace(sample, normals=true_normals(sample))
        return sample if self.annotate is None else self.annotate(index, sample)

    def label_map(self, index: int) -> Int64[np.ndarray, "h w"] | None:
        """Return `Sample.labels` alone: quicker than `read` where the image need not be decoded."""
        return self.read(index).labels

    def depth_map(self, index: int) -> Float32[np.ndarray, "h w"] | None:
        """Return `Sample.depth` alone, 0 where not valid: quicker than `read` where the image need not be decoded."""
        sample = self.read(index)
        if sample.depth is None or sample.valid is None:
            return None
        return np.where(sample.valid, sample.depth, np.float32(0))

    def read_depth_file(
        self, path: Path, scale: float | None = None, invalid: Sequence[float] = ()
    ) -> Float32[np.ndarray, "h w"]:
        """Return the depth in metres of one file, from `depth_cache` where there is one
        (densevit.data.io.readers.read_depth)."""
        if self.depth_cache is None:
            return read_depth(path, scale, invalid=invalid)
        return self.depth_cache.read(path, scale, invalid)

    def depth_kind(self, index: int) -> DepthKind:
        """Return `Sample.depth_kind` alone."""
        return "metric"

    def objects(self, index: int) -> Objects | None:
        """Return the objects of an image where the data set has masks that may overlap; None where `Sample.segments`
        has all.

        Raises:
            DataError: as `read`.
        """
        return None

    @abstractmethod
    def read(self, index: int) -> Sample:
        """Decode one sample.

        Raises:
            DataError: naming the file, when it is unreadable or not what the data set promises.
        """


@dataclass(frozen=True)
class TeacherInfo:
    """A model whose predictions are learned from."""

    name: str
    licence: str


Truth = Literal["metric", "relative", "affine", "disparity", "labels", "normals", "none"]


@dataclass(frozen=True)
class MixtureSource:
    """One data set of a mixture, as it was opened."""

    name: str
    data: Dataset
    share: float  # of the draws; those of all sources sum to 1
    truths: tuple[Truth, ...] | None = None  # what is learned from it; None: what it has
    transforms: Sequence[Transform] = ()  # its own, before those that all share
    drop_worst: float = 0.0  # share of an image's pixels, those with the largest error, that is not learned from
    cutmix: float = 0.0  # probability that a rectangle of another of its images is pasted in
    protocol: str | None = None  # in the validation during training
    strong: Sequence[Transform] | None = None  # after all others, of the student's view; None: without consistency
    confidence: float = 0.0  # of the teacher on the weak view, below which a pixel's class is not learned


def check_source_names(key_path: str, names: Sequence[str], sources: Sequence[MixtureSource]) -> None:
    """Raise ConfigError: `key_path` in the config names a source that is not in the mixture."""
    known_names = [source.name for source in sources]
    for i, name in enumerate(names):
        if name not in known_names:
            why = did_you_mean(name, known_names) if known_names else " data.train is no mixture."
            raise ConfigError(f"{key_path}.sources.{i}: no source '{name}' in data.train.{why}")


class Part(Dataset):
    """Some samples of a data set, by index."""

    def __init__(self, data: Dataset, indices: Sequence[int]) -> None:
        self.data, self.indices = data, indices
        self.names = [data.names[index] for index in indices]
        self.depth_range, self.classes, self.palette = data.depth_range, data.classes, data.palette
        self.things = data.things

    def read(self, index: int) -> Sample:
        return self.data.read(self.indices[index])

    def without_depth(self) -> "Dataset":
        return Part(self.data.without_depth(), self.indices)

    def with_normals(self, *, files: bool = True) -> "Dataset":
        return Part(self.data.with_normals(files=files), self.indices)

    def depth_kind(self, index: int) -> DepthKind:
        return self.data.depth_kind(self.indices[index])

    def objects(self, index: int) -> Objects | None:
        return self.data.objects(self.indices[index])


def evenly_spaced(total: int, count: int) -> list[int]:
    """Return at most `count` of the indices below `total`."""
    return [int(index) for index in np.linspace(0, total - 1, min(count, total)).round()]


class FileDataset(Dataset):
    """Samples that have files of their own: an image, with a depth map, a label map or both.

    A subclass finds the files. It overrides `decode_*` where a format is its own, and `crop_box` where samples show a
    part of their images.
    """

    depth_scale: float | None = None
    """Stored units per metre of depth files; None for float files, which hold metres."""

    invalid: Sequence[float] = ()
    """Stored values of depth files that mean that nothing was measured, beside those that are not over 0."""

    depth_of_any_size: bool = False
    """Whether depth maps may have another size than their images: each pixel of the image then takes the depth of the
    nearest one of the map, by both cameras where they are known, else by scale."""

    reads_depth: bool = True
    """Whether `read` decodes depth; see `without_depth`."""

    normal_axes: Axes = "opencv"
    """The axes of files of normals (densevit.data.io.normals)."""

    def __init__(self, samples: Sequence[SampleFiles], subset: Subset, what: str) -> None:
        """Check that the files are there.

        Args:
            what: data set and split, for messages.

        Raises:
            DataError: some are missing and `subset` is full, or all are; with the count and the first five.
        """
        if not isinstance(samples, PackedSamples):  # those were listed just now
            samples = keep_present(samples, subset, what)
            samples = (len(samples) >= packed.PACKED_FROM and PackedSamples.of(samples)) or samples
        self.samples, self.names = samples, packed.column(samples, "name")
        cameras = [
            (x.intrinsics, x.depth_intrinsics) for x in samples[: 1 if isinstance(samples, PackedSamples) else None]
        ]
        used = [camera for both in cameras for camera in both]
        if any(camera is not None for camera in used):
            as_bytes = (c.tobytes() if isinstance(c, np.ndarray) else str(c).encode() for c in used)
            self.version = f"{self.version} {hashlib.sha256(b''.join(as_bytes)).hexdigest()}".strip()
        lenses = {camera: i for i, (camera, _) in enumerate(cameras) if is_distorted(camera)}
        if lenses:
            self.facts = [*self.facts, *lens_facts([samples[i] for i in lenses.values()])]

    def without_depth(self) -> "Dataset":
        other = copy(self)
        other.reads_depth = False
        return other

    def with_normals(self, *, files: bool = True) -> "Dataset":
        other = super().with_normals()
        other.reads_normals = files
        return other

    def read(self, index: int) -> Sample:
        files = self.samples[index]
        image = read_image(files.image)
        view = view_of(files, (image.shape[0], image.shape[1]))
        intrinsics = self.decode_intrinsics(files) if view is None else view.matrix
        depth = self.decode_depth(files) if self.reads_depth else None
        normals, fitted = self.decode_normals(files) if self.reads_normals else None, None
        if depth is not None and (self.depth_of_any_size or depth.shape == image.shape[:2]):
            if self.fits_normals and normals is None and intrinsics is not None:
                fitted = normals_at_image(files, depth, image.shape[:2], intrinsics, view)
            depth = depth_at_image(files, depth, image.shape[:2], intrinsics, view)
        labels, segments = self.decode_classes(files, image.shape[:2])
        sample = make_sample(
            files,
            image,
            depth=depth,
            labels=labels,
            segments=None if segments is None else segments.one_of_each_stuff(self.things),
            normals=normals,
            intrinsics=intrinsics,
            pose=self.decode_pose(files),
        )
        sample = sample if view is None else undistort_sample(sample, view)
        sample = sample if fitted is None else replace(sample, normals=fitted)
        h, w = sample.image.shape[:2]
        box = self.crop_box(files, (h, w))
        return sample if box is None else crop_sample(sample, box)

    def depth_map(self, index: int) -> Float32[np.ndarray, "h w"] | None:
        files = self.samples[index]
        as_read = is_distorted(files.intrinsics) or files.depth_intrinsics is not None
        depth = None if as_read else self.decode_depth(files)
        if depth is None or (self.depth_of_any_size and depth.shape != image_size(files.image)):
            return None if files.depth is None else super().depth_map(index)
        return self._cropped(files, depth)

    def label_map(self, index: int) -> Int64[np.ndarray, "h w"] | None:
        files = self.samples[index]
        if is_distorted(files.intrinsics):
            return super().label_map(index)
        labels = self.decode_labels(files)
        if labels is None:
            return None if files.segments is None else super().label_map(index)
        return self._cropped(files, labels)

    def files(self, index: int) -> Mapping[str, Path]:
        return self.samples[index].paths()

    def scene(self, index: int) -> str:
        return folder_of(self.names[index])

    def time(self, index: int) -> float:
        return self.samples[index].time or 0.0

    def decode_depth(self, files: SampleFiles) -> Float32[np.ndarray, "h w"] | None:
        """Return the metres at the size of the image; 0 where not valid."""
        if files.depth is None:
            return None
        depth = self.read_depth_file(files.depth, self.depth_scale, self.invalid)
        for path in files.masks:
            depth = np.where(read_mask(path, depth.shape), depth, np.float32(0))
        return depth

    def decode_labels(self, files: SampleFiles) -> Int64[np.ndarray, "h w"] | None:
        """Return the class ids at the size of the image."""
        return None if files.labels is None else read_label_map(files.labels, self.table)

    def decode_classes(self, files: SampleFiles, size: tuple[int, ...]) -> Classes:
        """Return the class ids and segments; a data set with segments overrides it.

        Args:
            size: size of the image.
        """
        return self.decode_labels(files), None

    def decode_intrinsics(self, files: SampleFiles) -> Float64[np.ndarray, "3 3"] | None:
        """Return those of the whole image, in pixels; from a file nine numbers, row by row."""
        if isinstance(files.intrinsics, Path):
            return read_matrix(files.intrinsics, 3) if files.intrinsics.is_file() else None
        assert not isinstance(files.intrinsics, CameraModel)  # see `read`
        return files.intrinsics

    def decode_normals(self, files: SampleFiles) -> Float32[np.ndarray, "h w 3"] | None:
        """Return the unit normals in camera axes (right, down, forward; towards the camera) at the size of the
        image."""
        return None if files.normals is None else read_normals(files.normals, self.normal_axes)

    def decode_pose(self, files: SampleFiles) -> Float64[np.ndarray, "4 4"] | None:
        """Return the pose, camera to world, in metres."""
        return files.pose

    def crop_box(self, files: SampleFiles, size: Size) -> Box | None:
        """Return the part of an image that its sample shows; None for all of it."""
        return None

    def _cropped(self, files: SampleFiles, pixels: Pixels) -> Pixels:
        box = self.crop_box(files, (pixels.shape[0], pixels.shape[1]))
        return pixels if box is None else crop(pixels, box)


def view_of(files: SampleFiles, size: Size) -> PinholeView | None:
    """Return what a pinhole camera shows of an image whose lens or size is known. Raises DataError if its camera is not
    of such images."""
    if not isinstance(files.intrinsics, CameraModel):
        return None
    with located(files.image):
        return files.intrinsics.undistorted(size)


def lens_facts(files: Sequence[SampleFiles]) -> list[str]:
    """Return what is undistorted, for `check-data`. `files`: an image of each camera."""
    facts = []
    for sample in files[:3]:
        try:
            view = view_of(sample, image_size(sample.image))
        except DataError as error:
            return [f"undistorting fails: {error}"]
        assert view is not None and view.camera.distortion is not None and view.camera.size is not None
        w = view.camera.size[1]
        before, after = (field_of_view(w, fx) for fx in (view.camera.fx, float(view.matrix[0, 0])))
        facts.append(
            f"undistorted: {view.camera.distortion}, which bends the corner by {view.bend:.1f} pixels; "
            f"field of view {before:.1f} degrees by fx, {after:.1f} undistorted"
        )
    return [*facts, f"... and {len(files) - 3:,} more cameras"] if len(files) > 3 else facts


def is_distorted(camera: object) -> bool:
    """Return whether `FileDataset.read` undistorts the images of a camera."""
    return isinstance(camera, CameraModel) and camera.distortion is not None


def folder_of(name: str) -> str:
    """Return the folder in a sample's name; in many data sets that is its scene."""
    return name.rpartition("/")[0]


def read_numbers(path: Path, count: int) -> list[float]:
    """Return the first `count` numbers of a text file, whatever separates them.

    Raises:
        DataError: it is not there, or holds fewer.
    """
    try:
        values = [float(word) for word in read_words(path)[:count]]
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no readable numbers ({error}).") from error
    if len(values) < count or not np.isfinite(values).all():
        raise DataError(f"{path}: expected {count} numbers, got {len(values)}.")
    return values


def read_matrix(path: Path, size: int) -> Float64[np.ndarray, "3 3"]:
    """Return the intrinsics in a text file of a `size` x `size` matrix.

    Raises:
        DataError: it is not there, or holds too few numbers.
    """
    return np.asarray(np.array(read_numbers(path, size * size)).reshape(size, size)[:3, :3].copy())


DATASETS = Registry[Dataset]("data set")


def resolve_root(root: Path | None, default: str) -> Path:
    """Return a data root as a path that exists: relative ones lie under `$DENSEVIT_DATASETS`, default `./datasets`.

    Args:
        default: the folder's name when the user names none, `nyu` say.
    """
    base = Path(os.environ.get("DENSEVIT_DATASETS", "datasets"))
    path = (root or Path(default)).expanduser()
    tried = [path] if path.is_absolute() else [base / path, path]
    for candidate in tried:
        if candidate.exists():
            return candidate
    folders = " and ".join(str(p.resolve()) for p in dict.fromkeys(tried))
    raise DataError(f"no data at {folders}. Set `root`, or $DENSEVIT_DATASETS to the folder that holds '{path}'.")


def open_dataset(spec: ComponentConfig) -> Dataset:
    """Open a data set by its config, `{type: nyu, split: test}`.

    Raises:
        ConfigError: no such data set, or a wrong option.
        DataError: it is not where or what it should be.
    """
    return DATASETS.check(spec, "data").build()


def dataset_fingerprint(data: Dataset) -> str:
    """Return the number of samples and a hash of their names: other samples, or another order, give another
    fingerprint."""
    names = hashlib.sha256()
    for first in range(0, len(data), 10_000):
        names.update(("\n" * bool(first) + "\n".join(data.names[first : first + 10_000])).encode())
    return f"{len(data)} samples, {names.hexdigest()[:12]}"
