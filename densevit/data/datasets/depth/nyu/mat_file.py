"""The official `nyu_depth_v2_labeled.mat` (MATLAB 7.3): 1449 images 480 x 640 with depth in metres and classes.

images     N 3 W H  uint8      rawDepths  N W H  float32, 0 where the sensor saw nothing
labels     N W H    uint16     depths     N W H  float32, holes filled by inpainting
names      1 894    class texts; label k is names[k - 1], 0 is unlabelled
sceneTypes 1 N      room texts
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
from jaxtyping import Float32, Int64, Shaped

from densevit.data.datasets.depth.nyu.label_maps import LabelMap, NyuLabels, labels_of_classes, mapped_labels
from densevit.data.fields import crop_sample
from densevit.data.index.paths import MissingItem, Subset, record_missing
from densevit.data.index.published_splits import read_published
from densevit.data.io import matlab
from densevit.errors import DataError
from densevit.ops.crops import NYU_PROJECTED, NYU_SIZE, NYU_WITHOUT_BORDER, Pixels, crop
from densevit.ops.geometry import pinhole
from densevit.structures import Box, Sample

log = logging.getLogger(__name__)

FRAMES = 1449


class LabelledMat:
    """Frames of one split, read from the file when asked for.

    The handle is opened in each process by itself, and is not pickled.
    """

    def __init__(
        self,
        path: Path,
        split: Literal["train", "test"],
        depth: Literal["raw", "filled"],
        *,
        classes: Sequence[str] = (),
        label_map: LabelMap = None,
        subset: Subset,
    ) -> None:
        self.path = path
        self.depth_key = {"raw": "rawDepths", "filled": "depths"}[depth]
        self._handle: h5py.File | None = None
        self._pid = -1
        with matlab.open_mat(path) as file:
            count = self._check(file)
            self.frames = _frames(path, split, count, subset)
            self.names = frame_names(file, self.frames)
            self.labels = _read_labels(file, path, classes, label_map)
            if reason := slow_chunks(file):
                advice = "so every frame decodes its neighbours too. `datasets/prepare_nyu.py --repack` mends it."
                log.warning("%s: %s, %s", path, reason, advice)

    def read(self, index: int) -> Sample:
        frame = self.frames[index]
        image = np.ascontiguousarray(self._frame("images", frame).transpose(2, 1, 0))
        depth, labels, name = self.depth_map(index), self.label_map(index), self.names[index]
        return Sample(name=name, image=image, depth=depth, valid=depth > 0, labels=labels, intrinsics=INTRINSICS)

    def depth_map(self, index: int) -> Float32[np.ndarray, "h w"]:
        depth = self._frame(self.depth_key, self.frames[index]).T
        return published_depth(depth) if self.depth_key == "rawDepths" else finite(depth)

    def label_map(self, index: int) -> Int64[np.ndarray, "h w"] | None:
        if self.labels is None:
            return None
        stored = self._frame("labels", self.frames[index]).T.astype(np.int64, order="C")
        return self.labels(self.path, stored)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None, "_pid": -1}

    def _file(self) -> h5py.File:
        # HDF5 handles must not be shared with a forked child (pytorch#11887).
        if self._handle is None or self._pid != os.getpid():
            self._handle, self._pid = matlab.open_mat(self.path), os.getpid()
        return self._handle

    def _frame(self, key: str, frame: int) -> Shaped[np.ndarray, "..."]:
        try:
            return np.asarray(matlab.dataset(self._file(), key)[frame])
        except OSError as error:
            raise DataError(f"{self.path}: frame {frame} of '{key}' is damaged ({error}).") from error

    def _check(self, file: h5py.File) -> int:
        """Return the number of frames, when the arrays agree on it."""
        images, depths = matlab.dataset(file, "images"), matlab.dataset(file, self.depth_key)
        if images.ndim != 4 or images.shape[1] != 3 or depths.shape != (images.shape[0], *images.shape[2:]):
            raise DataError(
                f"{self.path}: images {images.shape} and {self.depth_key} {depths.shape}; expected "
                "(N, 3, 640, 480) and (N, 640, 480), as the official file has them."
            )
        return int(images.shape[0])


def published_depth(metres: Float32[np.ndarray, "h w"]) -> Float32[np.ndarray, "h w"]:
    """Return the raw depth as every published NYU score used it: whole millimetres, truncated (bts's extraction
    script)."""
    return (finite(metres) * np.float32(1000)).astype(np.uint16).astype(np.float32) / np.float32(1000)


def finite(metres: Shaped[np.ndarray, "h w"]) -> Float32[np.ndarray, "h w"]:
    """Return contiguous metres; 0 where not a positive number."""
    return np.where(np.isfinite(metres) & (metres > 0), metres, 0).astype(np.float32, order="C")


def frame_names(file: h5py.File, frames: Sequence[int]) -> list[str]:
    """Return `bathroom/rgb_00045`, as the published folders call them; without the room where the file does not
    tell."""
    if "sceneTypes" not in file:
        return [f"rgb_{frame:05d}" for frame in frames]
    rooms = matlab.read_texts(file, "sceneTypes")
    return [f"{rooms[frame]}/rgb_{frame:05d}" for frame in frames]


def official_frames(split: Literal["train", "test"]) -> list[int]:
    """Return 0-based frames of the official split: 795 to train, 654 to test."""
    test = {int(line) - 1 for line in read_published("nyu_labeled_test.txt").split()}
    return [i for i in range(FRAMES) if (i in test) == (split == "test")]


def slow_chunks(file: h5py.File) -> str | None:
    """Return what makes random reads slow: chunks that hold pieces of many frames. None where there is nothing to
    gain."""
    for key in ("images", "rawDepths", "depths"):
        chunks = file[key].chunks if key in file else None
        if chunks and chunks[0] > 1:
            return f"'{key}' has chunks of {chunks}, each across {chunks[0]} frames"
    return None


def _frames(path: Path, split: Literal["train", "test"], count: int, subset: Subset) -> list[int]:
    official = official_frames(split)
    frames = [frame for frame in official if frame < count]
    if count == FRAMES:
        return frames
    few = MissingItem("missing", str(path), f"{count} frames; the official file has {FRAMES}")
    if not record_missing([few], subset) and (subset == "full" or not frames):
        raise DataError(f"{path}: {count} frames; the official file has {FRAMES}. For a part, set `subset: available`.")
    log.warning("%s: %d of the %d '%s' frames are there.", path, len(frames), len(official), split)
    return frames


def _read_labels(file: h5py.File, path: Path, classes: Sequence[str], label_map: LabelMap) -> NyuLabels | None:
    if not classes and label_map is None:
        return None
    stored, images = (matlab.dataset(file, key).shape for key in ("labels", "images"))
    if stored != (images[0], *images[2:]):
        raise DataError(
            f"{path}: images {images} and labels {stored}; expected (N, 640, 480), as the official file has."
        )
    names = matlab.read_texts(file, "names")
    if classes:
        return labels_of_classes(path, names, classes)
    files = label_map if isinstance(label_map, tuple) else () if label_map == "raw" else (Path(label_map or ""),)
    return mapped_labels(path, names, [path.parent / file.expanduser() for file in files])


Border = Literal["keep", "black", "mask", "crop"]
"""black: the image outside NYU_PROJECTED; mask: depth outside NYU_WITHOUT_BORDER is not valid; crop: to that window."""

# From the data set's toolbox (camera_params.m).
INTRINSICS = pinhole(518.8579, 519.4696, 325.5824, 253.7362)


def apply_border(sample: Sample, border: Border) -> Sample:
    """Raise DataError if the image is not of NYU's size."""
    if border == "keep":
        return sample
    check_size(sample.name, sample.image)
    if border == "crop":
        return crop_sample(sample, NYU_WITHOUT_BORDER)
    if border == "black":
        return replace(sample, image=zero_outside(sample.image, NYU_PROJECTED))
    if sample.depth is None or sample.valid is None:
        return sample
    depth, valid = (zero_outside(pixels, NYU_WITHOUT_BORDER) for pixels in (sample.depth, sample.valid))
    return replace(sample, depth=depth, valid=valid)


def apply_border_to_map(name: str, pixels: Pixels, border: Border, *, masked: bool) -> Pixels:
    """Return the same of a depth or label map alone. `masked`: whether `mask` concerns it."""
    if border == "keep":
        return pixels
    check_size(name, pixels)
    if border == "crop":
        return crop(pixels, NYU_WITHOUT_BORDER)
    return zero_outside(pixels, NYU_WITHOUT_BORDER) if border == "mask" and masked else pixels


def check_size(name: str, pixels: np.ndarray) -> None:
    if pixels.shape[:2] != NYU_SIZE:
        h, w = pixels.shape[:2]
        raise DataError(f"'{name}' is {h} x {w}, not NYU's 480 x 640; set `border: keep`.")


def zero_outside(pixels: Pixels, box: Box) -> Pixels:
    y0, y1, x0, x1 = box
    inside: Pixels = np.zeros_like(pixels)
    inside[y0:y1, x0:x1] = pixels[y0:y1, x0:x1]
    return inside
