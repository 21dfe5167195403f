"""The labelled NYU .mat in other shapes: repacked for fast random reads, or unpacked into folders."""

from pathlib import Path
from typing import Any, Literal

from densevit.data.datasets.depth.nyu.mat_file import LabelledMat, apply_border, slow_chunks
from densevit.data.io import matlab
from densevit.data.io.writers import encode, encode_depth
from densevit.errors import DataError
from densevit.utils.atomic_io import write_bytes, write_text
from densevit.utils.output import tqdm

FRAME_KEYS = ("images", "rawDepths", "depths", "labels", "instances")
TEXT_KEYS = ("names", "sceneTypes", "scenes")

# One frame a chunk, so that a random read touches one; light compression; a checksum, as HDF5 else reads flipped
# bits without a word.
FRAMEWISE: dict[str, Any] = {"compression": "lzf", "shuffle": True, "fletcher32": True}


def extract(mat: Path, root: Path) -> dict[str, int]:
    """Write `official_splits/{train,test}/ROOM/rgb_00045.jpg` and `sync_depth_00045.png` (raw depth in whole
    millimetres, truncated), images black outside the projected window, and a list of each split.

    Files that are there already are left, so an interrupted run goes on. Returns the number of pairs per split.
    """
    return {split: _extract(mat, root, split) for split in ("train", "test")}


def repack(mat: Path, target: Path) -> None:
    """Copy the .mat with one frame a chunk and a checksum on every one. Raises DataError if `mat` is no labelled NYU
    file."""
    if mat.resolve() == target.resolve():
        raise DataError(f"{target}: is the file to read from; give another name.")
    with matlab.open_mat(mat) as source, matlab.create(target) as file:
        for key in (k for k in FRAME_KEYS if k in source):
            old = matlab.dataset(source, key)
            new = file.create_dataset(key, old.shape, old.dtype, chunks=(1, *old.shape[1:]), **FRAMEWISE)
            step = old.chunks[0] if old.chunks else 1  # decode every old chunk once
            for start in tqdm(range(0, old.shape[0], step), desc=f"repack {key}", unit="chunk"):
                new[start : start + step] = old[start : start + step]
        for key in (k for k in TEXT_KEYS if k in source):
            matlab.write_texts(file, key, matlab.read_texts(source, key))


def advice(mat: Path) -> str:
    """Return whether repacking is worth its while, in words."""
    with matlab.open_mat(mat) as file:
        reason = slow_chunks(file)
        chunks = matlab.dataset(file, "images").chunks
    if reason:
        return f"{mat}: {reason}: repacking makes random reads many times faster."
    return f"{mat}: images have chunks of {chunks}: every frame lies by itself, repacking gains little."


def _extract(mat: Path, root: Path, split: Literal["train", "test"]) -> int:
    frames = LabelledMat(mat, split, "raw", classes=(), subset="available")
    lines = []
    folder = root / "official_splits" / split
    for i, name in enumerate(tqdm(frames.names, desc=f"extract {split}", unit="frame")):
        image, depth = f"{name}.jpg", f"{name.replace('rgb_', 'sync_depth_')}.png"
        lines.append(f"{image} {depth} 518.8579\n")
        if (folder / image).is_file() and (folder / depth).is_file():
            continue
        sample = apply_border(frames.read(i), "black")
        assert sample.depth is not None
        (folder / image).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / depth, encode_depth(sample.depth, 1000.0))
        write_bytes(folder / image, encode(".jpg", sample.image))
    write_text(root / f"nyu_labeled_{split}.txt", "".join(lines))
    return len(lines)
