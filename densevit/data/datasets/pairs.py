"""Samples from Python: a sequence of (image, depth) pairs, or of mappings, in the place of files on disk."""

import os
import reprlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from densevit.data.datasets.base import Dataset
from densevit.data.index.paths import SampleFiles
from densevit.data.io.readers import NOT_MEASURED, Rgb, as_array, as_rgb, read_depth, stored_to_metres
from densevit.data.io.samples import make_sample, read_label_map
from densevit.data.labels.class_lists import table_of_names
from densevit.errors import DataError, located
from densevit.model_card import Palette
from densevit.ops.geometry import check_intrinsics, is_camera
from densevit.registry import did_you_mean
from densevit.structures import DepthKind, Sample

PARTS = ("name", "image", "depth", "labels", "label", "intrinsics")


class Pairs(Dataset):
    """A sequence of samples, each (image, depth), a mapping or a `Sample`; anything with `len()` and `[index]`, read
    when needed.

    >>> data = densevit.Pairs([("0.jpg", "0.png"), ("1.jpg", "1.png")], depth_scale=1000)  # doctest: +SKIP
    >>> data = densevit.Pairs([{"image": rgb, "labels": ids}], classes=["sky", "road"])  # doctest: +SKIP

    Keys of a mapping, of which `image` is needed:
        image: a path, a PIL image, or uint8 h w 3 in RGB.
        depth: a path, or floats h w in metres; 0, negative, not finite and a stored 65535 are not valid.
        labels: a path, or integers h w, positions in `classes`; 255 is ignored.
        label: the class of the whole image, a position in `classes`.
        intrinsics: 3 x 3 in pixels.
        name: unique; default: the image's path without suffix, or the position.
    """

    def __init__(
        self,
        items: Sequence[Any],
        *,
        classes: Sequence[str] = (),
        palette: Palette = (),
        depth_scale: float | None = None,
        depth_range: tuple[float, float] = (1e-3, 80.0),
    ) -> None:
        """Raise DataError if it is empty, or two names are equal.

        Args:
            items: the samples.
            classes: names of the ids in labels, in order.
            palette: a colour of each class, RGB.
            depth_scale: stored units per metre of depth files with whole numbers: 1000 for millimetres.
            depth_range: metres that the ground truth can have.
        """
        if len(items) == 0:
            raise DataError("the sequence of samples is empty.")
        self.items, self.classes, self.palette = items, tuple(classes), palette
        self.depth_scale, self.depth_range = depth_scale, depth_range
        self.table = table_of_names(self.classes, "the list of classes", palette) if classes else None
        self.names = names_of(items)
        if twice := [name for name, count in Counter(self.names).items() if count > 1][:5]:
            raise DataError(f"the sequence of samples has several named {', '.join(twice)}; give each a `name`.")

    def depth_kind(self, index: int) -> DepthKind:
        item = self.items[index]
        return item.depth_kind if isinstance(item, Sample) else "metric"

    def read(self, index: int) -> Sample:
        name, item = self.names[index], self.items[index]
        if isinstance(item, Sample):
            return replace(item, name=name)
        fields = as_mapping(item, f"sample {index}")
        with located(f"image of '{name}'"):
            image = as_rgb(fields["image"])
        depth, labels = fields.get("depth"), fields.get("labels")
        files = SampleFiles(
            name,
            as_path(fields["image"], f"image of '{name}'"),
            None if depth is None else as_path(depth, f"depth of '{name}'"),
            None if labels is None else as_path(labels, f"labels of '{name}'"),
        )
        sample = make_sample(
            files,
            image,
            depth=None if depth is None else self._depth(depth, name),
            labels=None if labels is None else self._labels(labels, name),
            intrinsics=None if fields.get("intrinsics") is None else as_matrix(fields["intrinsics"], name, image),
        )
        label = fields.get("label")
        return sample if label is None else Sample(**{**vars(sample), "label": int(label)})

    def _depth(self, value: Any, name: str) -> Any:
        if isinstance(value, str | Path):
            return read_depth(value, self.depth_scale, invalid=NOT_MEASURED)
        depth = as_array(value, 0)
        if depth.ndim == 3 and 1 in (depth.shape[0], depth.shape[2]):
            depth = depth.squeeze(0 if depth.shape[0] == 1 else 2)
        if depth.dtype.kind != "f" and self.depth_scale is None:
            raise DataError(
                f"depth of '{name}': {depth.dtype} values; depth is floats in metres. Say what whole numbers are by "
                "Pairs(..., depth_scale=1000); class ids go into {'image': ..., 'labels': ...}."
            )
        if depth.ndim != 2 or depth.dtype.kind not in "iuf":
            raise DataError(f"depth of '{name}': {depth.dtype} of shape {depth.shape}; it is numbers h w.")
        return stored_to_metres(depth.copy(), self.depth_scale, NOT_MEASURED)

    def _labels(self, value: Any, name: str) -> Int64[np.ndarray, "h w"]:
        if isinstance(value, str | Path):
            return read_label_map(Path(value), self.table)
        ids = as_array(value, np.int64(255))
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            raise DataError(f"labels of '{name}': {ids.dtype} of shape {ids.shape}; labels are whole numbers h w.")
        stored: Int64[np.ndarray, "h w"] = ids.astype(np.int64)
        return stored if self.table is None else self.table.map_ids(Path(name), stored)


def as_mapping(item: Any, what: str) -> Mapping[str, Any]:
    """Raise DataError: neither a pair nor a mapping of known parts with an image."""
    if isinstance(item, Sample):
        return vars(item)
    if isinstance(item, tuple | list) and len(item) == 2:
        return {"image": item[0], "depth": item[1]}
    if not isinstance(item, Mapping):
        raise DataError(
            f"{what} is {type(item).__name__}; a sample is (image, depth), or a mapping of {', '.join(PARTS)}."
        )
    if unknown := sorted(item.keys() - set(PARTS)):
        raise DataError(f"{what}: no part '{unknown[0]}'.{did_you_mean(str(unknown[0]), PARTS)}")
    if item.get("image") is None:
        raise DataError(f"{what}: no image; it has {', '.join(item) or 'nothing'}.")
    return item


def names_of(items: Sequence[Any]) -> list[str]:
    """Return the name that a sample gives itself, the stem of its image's path, or its position.

    Only lists and tuples are looked at: another sequence might decode a sample for it.
    """
    digits = max(6, len(str(len(items))))
    names = [f"{i:0{digits}}" for i in range(len(items))]
    if not isinstance(items, list | tuple):
        return names
    samples = [as_mapping(item, f"sample {i}") for i, item in enumerate(items)]
    paths = [sample["image"] for sample in samples]
    if all(isinstance(path, str | Path) for path in paths):
        below = Path(os.path.commonpath([Path(path).absolute().parent for path in paths]))
        relative = [Path(path).absolute().relative_to(below).with_suffix("").as_posix() for path in paths]
        names = relative if len(set(relative)) == len(relative) else names
    return [str(sample.get("name") or name) for sample, name in zip(samples, names, strict=True)]


def as_path(value: Any, what: str) -> Path:
    """Return the file of a part, or words for messages where it is no file."""
    return Path(value) if isinstance(value, str | Path) else Path(f"<{what}>")


def as_matrix(value: Any, name: str, image: Rgb) -> Float64[np.ndarray, "3 3"]:
    matrix: Float64[np.ndarray, "3 3"] = np.asarray(value, np.float64)
    if matrix.shape != (3, 3) or not is_camera(matrix):
        raise DataError(
            f"intrinsics of '{name}': expected fx 0 cx, 0 fy cy, 0 0 1, in pixels, got {reprlib.repr(matrix.tolist())}."
        )
    with located(f"camera of '{name}'"):
        check_intrinsics(matrix, (image.shape[0], image.shape[1]))
    return matrix


def as_dataset(value: Any) -> Dataset:
    """Raise DataError: neither a data set nor a sequence."""
    if isinstance(value, Dataset):
        return value
    if isinstance(value, str | bytes) or not (hasattr(value, "__len__") and hasattr(value, "__getitem__")):
        fit = "a densevit.Dataset, or a sequence of (image, depth) pairs or mappings"
        raise DataError(f"{type(value).__name__} is no data; give {fit}.")
    return Pairs(value)
