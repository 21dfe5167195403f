"""densevit's checkpoints: folders with checksums, written atomically.

    step-00001200/
        model.safetensors   the weights to use (their moving average, if there is one); the card in its header
        state.pt            what resuming needs besides: optimiser, random states, raw weights ...
        config.yaml         the resolved run
        manifest.json       sha256 of each file, step, scores; written last

A bare `model.safetensors` is complete for inference. Sharded checkpoints have `shard-N.safetensors` of each process in
its place, which hold the tensors of `state.pt`, too (`tensor_files.py`).
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor

from densevit.errors import CheckpointError
from densevit.model_card import ModelCard
from densevit.utils import atomic_io
from densevit.utils.json_files import MALFORMED
from densevit.utils.state_dict import check_finite
from densevit.weights import tensor_files
from densevit.weights.migrations import migrate_card, migrate_state, migrate_tensors
from densevit.weights.readers import SAFETENSORS, read_metadata, read_pickled, read_safetensors
from densevit.weights.tensor_files import FIRST_SHARD

SCHEMA = 2
WEIGHTS, STATE, CONFIG, MANIFEST = "model.safetensors", "state.pt", "config.yaml", "manifest.json"
CARD = "densevit"  # its key in the header
STEP = re.compile(r"step-(\d{8,})$")
UNUSED = "spare."  # prefix of tensors that published layouts store and no forward pass uses


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Content of `manifest.json`."""

    step: int  # optimiser steps tried; `samples`: images seen
    samples: int
    files: Mapping[str, str] = field(default_factory=dict)  # name -> sha256
    scores: Mapping[str, float] = field(default_factory=dict)  # of the last validation before it was saved
    world_size: int = 1  # processes that wrote it; any number may resume from it
    data: str = ""  # fingerprint of the training data
    versions: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA


def write(
    folder: Path,
    weights: Mapping[str, Tensor],
    card: ModelCard,
    config: str,
    state: Mapping[str, Any],
    manifest: Manifest,
) -> None:
    """Write the whole folder or nothing; an existing one is replaced at the end. Raises CheckpointError if a weight is
    NaN or infinite; such a checkpoint must never replace a good one. Raises StorageError if the disk is full or
    read-only."""
    check_finite(f"{folder}: not saved", weights)
    atomic_io.require_free_space(folder.parent, num_bytes(weights) + num_bytes(state))
    with atomic_io.atomic_folder(folder, replace=True) as temporary:
        complete(temporary, {WEIGHTS: write_weights(temporary / WEIGHTS, weights, card)}, config, state, manifest)


def complete(
    folder: Path, hashes: Mapping[str, str], config: str, state: Mapping[str, Any], manifest: Manifest
) -> None:
    """Write what a folder needs besides its weights, the manifest last. `hashes`: sha256 of the weights' files."""
    hashes = {
        **hashes,
        STATE: atomic_io.atomic_write(folder / STATE, lambda file: torch.save(dict(state), file)),
        CONFIG: atomic_io.write_text(folder / CONFIG, config),
    }
    atomic_io.write_text(folder / MANIFEST, with_checksum({**asdict(manifest), "files": hashes}))


def with_checksum(content: Mapping[str, Any]) -> str:
    """Return the text of a manifest, with a checksum of its content."""
    text = json.dumps(content, indent=1)
    return json.dumps({**content, "checksum": hashlib.sha256(text.encode()).hexdigest()}, indent=1)


def parse_manifest(text: str, folder: Path) -> Manifest:
    """Raise ValueError, TypeError if the checksum does not fit. Raises CheckpointError: of a newer schema."""
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("no object")
    if (schema := content.get("schema", 0)) > SCHEMA:
        raise CheckpointError(f"{folder}: written by a newer densevit (schema {schema}, this one reads {SCHEMA}).")
    content.pop("checksum", None)
    if with_checksum(content) != text:
        raise ValueError("its checksum is not that of its content")
    return TypeAdapter(Manifest).validate_python(content)


def num_bytes(tree: Any) -> int:
    """Return the bytes of all tensors in it."""
    if isinstance(tree, Tensor):
        return tree.nbytes
    values = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list | tuple) else ()
    return sum(map(num_bytes, values))


def write_weights(path: Path, weights: Mapping[str, Tensor], card: ModelCard) -> str:
    """Return a single file that is complete for inference; returns its sha256."""
    return tensor_files.write(path, weights, header(card))


def header(card: ModelCard) -> dict[str, str]:
    """Return the metadata of a weights file."""
    return {CARD: json.dumps(card.to_dict())}


def read_manifest(folder: Path) -> Manifest:
    """Raise CheckpointError if it is missing or damaged."""
    path = folder / MANIFEST
    try:
        return parse_manifest(path.read_bytes().decode(), folder)
    except FileNotFoundError:
        raise CheckpointError(f"{folder}: no checkpoint ({MANIFEST} is missing).") from None
    except CheckpointError:
        raise
    except (OSError, *MALFORMED) as error:
        raise CheckpointError(f"{path}: damaged ({' '.join(str(error).split())}).") from None


def verify(folder: Path, verified: Collection[str] = ()) -> Manifest:
    """Read the manifest and check every byte against it, except of the files in `verified`. Raises CheckpointError
    naming the file that is missing or differs; or the folder has another step's name."""
    manifest = read_manifest(folder)

    def check(name: str) -> None:
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder / name}: missing.")
        if name not in verified and _sha256(folder / name) != manifest.files[name]:
            raise CheckpointError(f"{folder / name}: damaged (its sha256 is not the manifest's).")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check, manifest.files))
    recorded = folder.parent.name == "skipped_steps"  # named for the step that begins there
    if STEP.match(folder.name) and not recorded and step_of(folder) != manifest.step:
        raise CheckpointError(f"{folder}: renamed, it holds step {manifest.step}; name it step-{manifest.step:08d}.")
    if not any(name.endswith(SAFETENSORS) for name in manifest.files):
        raise CheckpointError(f"{folder / MANIFEST}: damaged ({WEIGHTS} is not listed).")
    return manifest


def _sha256(path: Path) -> str:
    try:
        return atomic_io.sha256(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}).") from None


def steps(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first, verified or not."""
    folders = [path for path in folder.glob("step-*") if STEP.match(path.name)] if folder.is_dir() else []
    return sorted(folders, key=step_of)


def step_of(folder: Path) -> int:
    match = STEP.match(folder.name)
    return int(match[1]) if match else -1


def locate(path: str | Path) -> Path:
    """Find the checkpoint at a path: a weights file, a step folder, or the best (else last) of a run. Raises
    CheckpointError if there is none."""
    path = Path(path)
    if (found := _find(path)) is not None:
        return found
    if not path.exists():
        near = sorted(p.name for p in path.parent.iterdir() if p.is_dir() and _find(p)) if path.parent.is_dir() else []
        raise CheckpointError(
            f"no checkpoint at {path}." + (f" Found in {path.parent}: {', '.join(near[:8])}." if near else "")
        )
    raise CheckpointError(f"{path}: no checkpoint here; it should hold {WEIGHTS}, or checkpoints/step-*.")


def _find(path: Path) -> Path | None:
    if path.is_file() or (path / WEIGHTS).is_file() or (path / MANIFEST).is_file():
        return path
    for folder in (path / "checkpoints", path):
        for name in ("best", "last"):
            if (folder / name).is_dir():
                return (folder / name).resolve()
        if saved := steps(folder):
            return saved[-1]
    return None


def read(path: str | Path) -> tuple[dict[str, Tensor], ModelCard]:
    """Return the weights and card; a folder is verified first. Raises CheckpointError: missing, damaged, or a weights
    file without our card."""
    tensors, _, card = read_whole(path)
    return tensors, card


def read_whole(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Tensor], ModelCard]:
    """Return the weights, unused tensors of published files, and card; see `read`. Raises CheckpointError: missing,
    damaged, or a weights file without our card."""
    path = locate(path)
    folder = path if path.is_dir() else path.parent
    if path.is_dir():
        if is_sharded(path):
            verify(path)
            shapes = {"weights": read_pickled(path / STATE)["weights"]}
            return *split_unused(migrate_tensors(tensor_files.fill(path, shapes)["weights"])), read_card(path)
        path = path / WEIGHTS
    if path == folder / WEIGHTS and ((folder / MANIFEST).exists() or not path.exists()):
        verify(folder)
    if path.suffix.lower() not in SAFETENSORS:
        raise CheckpointError(f"{path}: not a densevit checkpoint ({WEIGHTS} or a folder that holds it).")
    tensors, metadata = read_safetensors(path)
    return *split_unused(migrate_tensors(tensors)), _card(path, metadata)


def read_card(path: str | Path) -> ModelCard:
    """Return the card alone, from the header of the weights file. Raises CheckpointError: missing, damaged, or a
    weights file without our card."""
    path = locate(path)
    if path.is_dir():
        path = path / (FIRST_SHARD if is_sharded(path) else WEIGHTS)
    return _card(path, read_metadata(path) if path.suffix.lower() in SAFETENSORS else {})


def _card(path: Path, metadata: Mapping[str, str]) -> ModelCard:
    if CARD not in metadata:
        raise CheckpointError(f"{path}: no densevit card in its header; it is not a densevit checkpoint.")
    return parse_card(metadata[CARD], path)


def parse_card(text: str, path: Path) -> ModelCard:
    """Return the card that a file of ours holds as JSON, whatever its format. Raises CheckpointError if it is none."""
    try:
        return ModelCard.from_dict(migrate_card(json.loads(text)))
    except MALFORMED as error:
        raise CheckpointError(f"{path}: its card cannot be read ({error!s:.300}).") from None


def has_card(path: Path) -> bool:
    """Return whether a file is a densevit weights file, by its header."""
    return path.is_file() and path.suffix.lower() in SAFETENSORS and CARD in read_metadata(path)


def is_sharded(folder: Path) -> bool:
    return not (folder / WEIGHTS).exists() and (folder / FIRST_SHARD).exists()


def read_state(folder: Path, like: Callable[[str], Tensor | None] = lambda path: None) -> dict[str, Any]:
    """Return the resume state of a verified folder, with its weights. `like`: of a sharded one, see
    `tensor_files.fill`."""
    state = dict(read_pickled(folder / STATE))
    if is_sharded(folder):
        return migrate_state(tensor_files.fill(folder, state, like))
    return {**migrate_state(state), "weights": read(folder)[0]}


def split_unused(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split the tensors of our file into the model's and the unused ones, these under their own names."""
    unused = {name.removeprefix(UNUSED): tensor for name, tensor in tensors.items() if name.startswith(UNUSED)}
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(UNUSED)}, unused
