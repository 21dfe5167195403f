"""`pseudo_labels`: images with a teacher's maps, as `densevit pseudo-label` writes them.

DIR/manifest.json      the teacher's name and licence, and what its maps mean
DIR/images.jsonl       the images that are labelled: where each is, or the shard that holds it; nothing else is read
DIR/NAME.depth.npz     and DIR/NAME.labels.npz, of images that are not in shards
DIR/shard-000000.tar   NAME.jpg, NAME.depth.npz, NAME.labels.npz of each image, `.` and `%` in NAME as %2E and %25
"""

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args
from urllib.parse import unquote

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Shaped
from pydantic import Field

from densevit.data.datasets.base import DATASETS, Dataset, TeacherInfo, folder_of, resolve_root
from densevit.data.index.paths import check_inside, file_version, first_five
from densevit.data.io.arrays import retried
from densevit.data.io.images import MAX_PIXELS
from densevit.data.io.readers import read_image
from densevit.data.io.tar import TarMember, list_members
from densevit.errors import DataError
from densevit.ops.align import disparity_as_depth
from densevit.structures import IGNORE, DepthKind, Sample
from densevit.utils.json_files import MALFORMED, checked, read_object

MANIFEST, IMAGES = "manifest.json", "images.jsonl"
SUFFIXES = {"depth": ".depth.npz", "labels": ".labels.npz"}


@dataclass(frozen=True)
class Maps:
    """What the manifest says of the maps of one kind; see `HeadSpec`."""

    kind: str
    range: tuple[float | None, float | None] | None = None
    classes: tuple[str, ...] = ()
    palette: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class PseudoLabelManifest:
    """What reading needs of the manifest."""

    teacher: TeacherInfo
    maps: Mapping[Literal["depth", "labels"], Maps]
    shard_size: int | None = None


@DATASETS.register("pseudo_labels")
class PseudoLabels(Dataset):
    """Images with depth, labels or both from a teacher; the kind of depth is that of its head."""

    video = True
    kind: DepthKind = "metric"

    def __init__(
        self,
        *,
        root: Path,
        min_confidence: Annotated[float, Field(ge=0, le=1)] = 0.0,
        limit: Annotated[int, Field(ge=1)] | None = None,
    ) -> None:
        """Read the manifest and the names. Raises DataError if no pseudo-labels are there, or an image or a map is
        missing; with the count and the first five.

        Args:
            root: what `densevit pseudo-label --output` named (densevit.data.datasets.base.resolve_root).
            min_confidence: pixels below count as unknown. Of classes it is a probability (UniMatch: 0.95), of depth it
                is 1 where all views of the teacher agree and 0.37 where they differ by 10%.
            limit: use only the first n images.
        """
        self.root = resolve_root(root, "pseudo_labels")
        path = self.root / MANIFEST
        if not path.is_file():
            raise DataError(f"{path}: not found; `densevit pseudo-label` writes it.")
        manifest = checked(PseudoLabelManifest, read_object(path), path)
        self.version = file_version(path)
        self.maps, self.teachers, self.least = manifest.maps, (manifest.teacher,), min_confidence
        if depth := self.maps.get("depth"):
            if depth.kind not in get_args(DepthKind):
                raise DataError(f"{path}: depth of kind {depth.kind!r}.")
            self.kind = cast(DepthKind, depth.kind)
            near, far = depth.range or (None, None)
            self.depth_range = (max(near or 0.0, 1e-3), far or 1e3)
        if labels := self.maps.get("labels"):
            self.classes, self.palette = labels.classes, labels.palette
        rows = self._list_images("shard" if manifest.shard_size else "image")[:limit]
        self.paths = self._from_shards(rows) if manifest.shard_size else self._from_folders(rows)
        missing = [name for name, files in self.paths.items() if set(files) < {"image", *self.maps} or not exist(files)]
        if missing or not self.paths:
            raise DataError(f"{self.root}: {len(missing):,} images or maps are missing:{first_five(missing)}")
        self.names = list(self.paths)

    def _list_images(self, column: str) -> list[tuple[str, str]]:
        """Return the name of each image, and its file or shard. Raises DataError: the list is missing or damaged, or a
        name comes twice."""
        path = self.root / IMAGES
        try:
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            rows = [(line["name"], line[column]) for line in lines]
            check_inside([name for name, _ in rows], path)
            if bad := [text for _, text in rows if not isinstance(text, str) or "\0" in text]:
                raise ValueError(f"{bad[0]!r} is no path")
        except DataError:
            raise
        except (OSError, *MALFORMED) as error:
            raise DataError(
                f"{path}: cannot be read ({error!s:.300}). Was the labelling finished? Continue it with --resume."
            ) from None
        if twice := [name for name, count in Counter(name for name, _ in rows).items() if count > 1]:
            raise DataError(f"{path}: {len(twice):,} names come twice:{first_five(twice)}")
        return rows

    def _from_folders(self, rows: list[tuple[str, str]]) -> dict[str, dict[str, Path | TarMember]]:
        return {
            name: {
                "image": (self.root / image).resolve(),
                **{kind: self.root / (name + SUFFIXES[kind]) for kind in self.maps},
            }
            for name, image in rows
        }

    def _from_shards(self, rows: list[tuple[str, str]]) -> dict[str, dict[str, Path | TarMember]]:
        samples: dict[tuple[str, str], dict[str, Path | TarMember]] = {}
        for shard in dict.fromkeys(shard for _, shard in rows):
            for member in list_members(self.root / shard):
                folder, slash, file = member.name.rpartition("/")
                stem, _, _ = file.partition(".")
                kind = next((kind for kind, suffix in SUFFIXES.items() if file.endswith(suffix)), "image")
                files = samples.setdefault((shard, unquote(folder + slash + stem)), {})
                if kind in files:
                    raise DataError(f"{member.path}: a second {kind} of one name.")
                files[kind] = member
        return {name: samples.get((shard, name), {}) for name, shard in rows}

    def files(self, index: int) -> Mapping[str, Path]:
        files = self.paths[self.names[index]]
        return {kind: file for kind, file in files.items() if isinstance(file, Path)}

    def scene(self, index: int) -> str:
        return folder_of(self.names[index])

    def depth_kind(self, index: int) -> DepthKind:
        return self.kind

    def read(self, index: int) -> Sample:
        name = self.names[index]
        with ExitStack() as stack:
            paths = {
                kind: file if isinstance(file, Path) else stack.enter_context(file.file())
                for kind, file in self.paths[name].items()
            }
            image = read_image(paths["image"])
            sample: dict[str, Any] = {"name": name, "image": image}
            for kind in self.maps:
                values, sure, sample["intrinsics"] = self._map(paths[kind], kind, image.shape[:2])
                if kind == "depth":
                    depth, valid = self._depth(values, sure)
                    sample |= {"depth": depth, "valid": valid, "depth_kind": self.kind}
                else:
                    labels: Int64[np.ndarray, "h w"] = np.where(sure, values.astype(np.int64), IGNORE)
                    sample["labels"] = labels
        return Sample(**sample)

    @retried
    def _map(
        self, path: Path, kind: str, size: tuple[int, ...]
    ) -> tuple[Shaped[np.ndarray, "h w"], Bool[np.ndarray, "h w"], Float64[np.ndarray, "3 3"] | None]:
        """Return the values, where they are as sure as asked for, and the camera of the image."""
        try:
            with np.load(path, allow_pickle=False) as file:
                values, confidence = file[kind], file["confidence"]
                camera = file["intrinsics"].astype(np.float64).reshape(3, 3) if "intrinsics" in file else None
        except (OSError, ValueError, KeyError, EOFError, MemoryError) as error:
            raise DataError(f"{path}: is no map of pseudo-labels ({error}).") from error
        if values.shape != size or confidence.shape != size or values.size > MAX_PIXELS:
            raise DataError(f"{path}: is {values.shape}, its image {size} (h, w). Was the image changed since?")
        return values, confidence >= np.float32(255 * self.least), camera

    def _depth(
        self, values: Shaped[np.ndarray, "h w"], sure: Bool[np.ndarray, "h w"]
    ) -> tuple[Float32[np.ndarray, "h w"], Bool[np.ndarray, "h w"]]:
        valid = sure & np.isfinite(values)
        stored = np.where(valid, values, 0).astype(np.float32)
        if self.kind == "disparity":
            return disparity_as_depth(stored, valid), valid
        if self.kind == "affine":  # may be negative, and its zero means nothing: 1 to 2
            low, high = (stored[valid].min(), stored[valid].max()) if valid.any() else (0.0, 1.0)
            stored = np.where(valid, 1 + (stored - low) / max(float(high - low), 1e-12), 0).astype(np.float32)
        valid &= stored > 0
        return np.where(valid, stored, 0), valid


def exist(files: Mapping[str, Path | TarMember]) -> bool:
    with suppress(OSError):  # a name that is too long, say
        return all(file.is_file() for file in files.values() if isinstance(file, Path))
    return False
