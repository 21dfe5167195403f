"""Outputs of a frozen encoder on disk, found by the pixels of the image that it was given.

FOLDER/KEY/               KEY: of the encoder's weights and options, and of the precision
    shard-NAME.bin        outputs one behind the other, each as its maps and prefix tokens
    shard-NAME.json       written last: the shapes, the images' hashes in the order of the outputs, and the
                          checksum of shard-NAME.bin
    views-NAME.json       the hashes of all views of one data set, transforms and seed: what is there is complete
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from densevit.config.schema import TrainConfig
from densevit.errors import DataError
from densevit.structures import EncoderOutput
from densevit.utils import atomic_io
from densevit.utils.process import poll

SHARD_BYTES = 2**28
Shapes = dict[str, Any]
"""Of one image's output: `maps` c h w each, `prefix` p c each, `image_size`."""


class _Place(NamedTuple):
    shard: str
    row: int


class FeatureCache:
    """Reads and writes the outputs of one encoder.

    Args:
        folder: of this encoder; see above.
        dtype: in which outputs are stored.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self.folder, self.dtype = folder, dtype
        self.rows: dict[str, _Place] = {}
        self.shapes: dict[str, Shapes] = {}
        self.views: dict[str, str] = {}  # shard -> the views that it was written for
        self.reload()

    @staticmethod
    def incompatible(run: TrainConfig) -> Iterator[str]:
        """Yield what in a run is incompatible with cached features."""
        if not run.model.freeze_encoder:
            yield "data.cache_features: the encoder must stay as it is; set model.freeze_encoder."
        if run.parallel == "fsdp":
            yield "data.cache_features: needs parallel ddp; fsdp would shard an encoder that never runs."
        if run.cuda_graphs:
            yield f"data.cache_features: incompatible with the CUDA graphs of compile: {run.compile}; take true."
        if run.data.clip > 1:
            yield "data.cache_features: caches single images, each with its own augmentation; leave data.clip out."

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, image_hash: str) -> bool:
        return image_hash in self.rows

    def reload(self) -> None:
        """Look for shards that other processes have written."""
        for file in sorted(self.folder.glob("shard-*.json")):
            if file.stem not in self.shapes:
                if (content := _shard_content(file)) is None:
                    continue
                self.shapes[file.stem], self.views[file.stem] = content["shapes"], content["views"]
                self.rows |= {name: _Place(file.stem, row) for row, name in enumerate(content["images"])}

    def written_for(self, views: str) -> int:
        """Return how many of the outputs were written for these views."""
        return sum(self.views[row.shard] == views for row in self.rows.values())

    def write(self, images: Sequence[str], shapes: Shapes, rows: np.ndarray, views: str) -> None:
        """Add a shard, whole or not at all. `images`: hashes; rows: one for each, as from `flatten`. Raises
        StorageError if the disk is full or read-only."""
        name = f"shard-{hashlib.sha256(''.join(images).encode()).hexdigest()[:16]}"
        checksum = atomic_io.write_bytes(self.folder / f"{name}.bin", np.ascontiguousarray(rows).data)
        content = {"shapes": shapes, "views": views, "images": list(images), "sha256": checksum}
        atomic_io.write_text(self.folder / f"{name}.json", json.dumps(content))
        self.reload()

    def read(self, images: Sequence[UInt8[np.ndarray, "h w 3"]], names: Sequence[str]) -> EncoderOutput:
        """Return the outputs for some images, stacked, in the stored type. Raises DataError if one is not there, since
        file or transforms have changed, or a shard is damaged."""
        rows = []
        for image, name in zip(images, names, strict=True):
            row_of = self.rows.get(hash_image(image))
            if row_of is None:
                raise DataError(
                    f"'{name}': {self.folder} has no features of this image; its file has changed since. "
                    f"Remove {self.folder}/views-*.json, and the next start adds them."
                )
            rows.append((self._row(row_of), self.shapes[row_of.shard]))
        shapes = rows[0][1]
        if any(other != shapes for _, other in rows):
            raise DataError(f"a batch needs features of one size, but those of {', '.join(names)} differ.")
        return unflatten(torch.from_numpy(np.stack([row for row, _ in rows])), shapes)

    def _row(self, at: _Place) -> np.ndarray:
        path, size = self.folder / f"{at.shard}.bin", count(self.shapes[at.shard])
        row = np.empty(size, self.dtype)
        try:
            with open(path, "rb", buffering=0) as file:
                file.seek(at.row * row.nbytes)
                read = file.readinto(row.data)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}).") from None
        if read != row.nbytes:
            raise DataError(f"{path}: damaged, it ends too early. The next start makes it anew.")
        return row

    def is_complete(self, views: str) -> bool:
        """Return whether all of these views were written, and are still there."""
        try:
            return all(name in self.rows for name in json.loads(self._views_file(views).read_text()))
        except (OSError, ValueError, TypeError, RecursionError):
            return False

    def complete(self, views: str, images: Sequence[str]) -> None:
        """Note that all of these views are there."""
        atomic_io.write_text(self._views_file(views), json.dumps(list(images)))

    def _views_file(self, views: str) -> Path:
        return self.folder / f"views-{views}.json"


def remove_damaged(folder: Path) -> None:
    """Remove shards that are not as they were written, so that they are made anew; each is read once."""
    for file in sorted(folder.glob("shard-*.json")):
        poll("stopped before the first step; there is nothing to save.")
        content, rows = _shard_content(file), file.with_suffix(".bin")
        if content is None or not rows.is_file() or atomic_io.sha256(rows) != content["sha256"]:
            print(f"warning: {file.with_suffix('')} is damaged; its features are made anew.", file=sys.stderr)
            file.unlink(missing_ok=True)
            rows.unlink(missing_ok=True)


def _shard_content(file: Path) -> dict[str, Any] | None:
    """Return what a shard's JSON holds, or None if it is damaged, or of a version without checksums."""
    try:
        content = json.loads(file.read_text())
        sizes = [*content["shapes"]["maps"], *content["shapes"]["prefix"], content["shapes"]["image_size"]]
        whole = all(isinstance(n, int) for size in sizes for n in size) and isinstance(content["sha256"], str)
        return content if whole and all(isinstance(x, str) for x in [content["views"], *content["images"]]) else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def hash_image(image: UInt8[np.ndarray, "h w 3"]) -> str:
    digest = hashlib.blake2b(str(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.hexdigest()


def shapes_of(output: EncoderOutput) -> Shapes:
    return {
        "maps": [list(x.shape[1:]) for x in output.maps],
        "prefix": [list(x.shape[1:]) for x in output.prefix],
        "image_size": list(output.image_size),
    }


def count(shapes: Shapes) -> int:
    """Return the numbers in one image's output."""
    return sum(map(prod, [*shapes["maps"], *shapes["prefix"]]))


def flatten(output: EncoderOutput, dtype: np.dtype[Any]) -> np.ndarray:
    """Return one row for each image of the batch: its maps channels last, as a ViT's tokens are, then the prefix
    tokens. Raises DataError if a feature is not finite in this type."""
    maps = [x.movedim(1, -1) for x in output.maps]
    columns = [x.detach().float().cpu().flatten(1) for x in (*maps, *output.prefix)]
    with np.errstate(over="ignore"):
        rows: np.ndarray = torch.cat(columns, dim=1).numpy().astype(dtype)
    if not np.isfinite(rows).all():
        hint = " Some are over fp16's 65504: set data.cache_features.dtype to fp32." if dtype.itemsize == 2 else ""
        raise DataError(f"data.cache_features: the encoder gives features that are not finite.{hint}")
    return rows


def unflatten(rows: Tensor, shapes: Shapes) -> EncoderOutput:
    sizes = [*((h, w, c) for c, h, w in shapes["maps"]), *shapes["prefix"]]
    arrays = [torch.unflatten(x, 1, size) if prod(size) else x.new_zeros(len(x), *size) for x, size in
             zip(torch.split(rows, list(map(prod, sizes)), dim=1), sizes, strict=True)]  # fmt: skip
    maps, prefix = arrays[: len(shapes["maps"])], arrays[len(shapes["maps"]) :]
    h, w = shapes["image_size"]
    return EncoderOutput(tuple(x.movedim(-1, 1) for x in maps), tuple(prefix), (h, w))
