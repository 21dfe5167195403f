"""Reads tensors from third-party files, also of models published as a backbone and a head.

The only caller of `torch.load`, always with `weights_only`.
"""

import argparse
import json
import logging
import pickle
import re
import struct
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from densevit.errors import CheckpointError, first_line
from densevit.weights.external import RawCheckpoint

log = logging.getLogger(__name__)

SAFETENSORS = (".safetensors",)
PICKLED = (".pt", ".pth", ".ckpt", ".bin")
NUMPY = (".npz",)
# Keys under which training scripts save the weights.
WRAPPERS = ("state_dict", "model_state_dict", "model", "teacher", "student")
# First bytes of files that failed downloads leave.
WRONG_FILE_HINTS = {
    b"version https://git-lfs": "It is a Git LFS pointer: `git lfs pull` fetches the weights.",
    b"<": "It is a web page: the download failed.",
}
PREFIXES = ("module.", "_orig_mod.")


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Return the state dict of a `.safetensors`, pickled PyTorch or NumPy `.npz` file, without wrappers and launcher
    prefixes. Raises CheckpointError: missing, damaged, of another format, or with anything but tensors and plain values
    inside.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path}: {'is a folder, not a file' if path.is_dir() else 'no such file'}.")
    suffix = path.suffix.lower()
    if suffix in SAFETENSORS:
        return _unprefixed(read_safetensors(path)[0])
    if suffix in PICKLED:
        return _unprefixed(_unwrapped(read_pickled(path), path))
    if suffix in NUMPY:
        return read_arrays(path)
    suffixes = ", ".join(SAFETENSORS + PICKLED + NUMPY)
    exports = {".onnx": "", ".pt2": " (densevit.load_pt2 runs it)"}
    hint = "" if suffix not in exports else f" It is an export{exports[suffix]}: give the checkpoint that it came from."
    raise CheckpointError(f"{path}: weights are read from {suffixes} files, not '{path.suffix}'.{hint}")


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of the header."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, json.JSONDecodeError, struct.error) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file ({error}).{_wrong_file_hint(path)}") from None


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors header, without its tensors; empty where the file is none."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError, json.JSONDecodeError, struct.error):
        return {}


def read_arrays(path: Path) -> dict[str, Tensor]:
    """Return the arrays of an `.npz` file, such as Google's Vision Transformers; pickled ones are refused."""
    if not zipfile.is_zipfile(path):
        raise CheckpointError(f"{path}: not an .npz file, or cut short.")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: torch.from_numpy(file[name]) for name in file.files}
    except TypeError as error:  # bfloat16, say, which NumPy does not know
        raise CheckpointError(f"{path}: holds arrays of a type that torch cannot take ({error}).") from None
    except MemoryError:
        raise CheckpointError(f"{path}: claims arrays that do not fit into memory.") from None
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, KeyError) as error:
        raise CheckpointError(f"{path}: not a readable .npz file ({first_line(error)}).") from None


def read_pickled(path: Path) -> Any:
    """Return the content of a PyTorch file of tensors and plain Python values."""
    if _is_torchscript(path):
        raise CheckpointError(f"{path}: a TorchScript program, not weights; save the state dict of its module instead.")
    try:
        with allow_harmless_values():
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # Torch's own text goes on to explain how to switch the check off. We do not.
        refused = re.search(r"GLOBAL (\S+)", str(error))
        reason = (
            f"it wants to run {refused[1]}" if refused else "not a PyTorch file, or not tensors and plain values only"
        )
        fit = (
            " Only tensors and plain values are read; save the state dict alone." if refused else _wrong_file_hint(path)
        )
        raise CheckpointError(f"{path}: refused ({reason}).{fit}") from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError, IndexError, TypeError) as error:
        reason = str(error).partition(". ")[0].partition("\n")[0] or "it ends too early"
        raise CheckpointError(f"{path}: not a readable PyTorch file ({reason}).") from None


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _wrong_file_hint(path: Path) -> str:
    """Return a hint on a file that is no weights file, as a Git LFS pointer."""
    with open(path, "rb") as file:
        head = file.read(64).lstrip().lower()
    return next((f" {what}" for start, what in WRONG_FILE_HINTS.items() if head.startswith(start)), "")


def _unwrapped(content: Any, path: Path) -> dict[str, Tensor]:
    for name in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            taken = _tensors(content[name]).keys()
            maps = {key: value for key, value in content.items() if key != name and isinstance(value, Mapping)}
            if others := [f"'{key}'" for key, value in maps.items() if taken & _tensors(value).keys()]:
                log.warning("%s: its weights are read from '%s', not from %s.", path, name, ", ".join(others))
            content = content[name]
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path}: holds a {type(content).__name__}, not a state dict.")
    tensors = _tensors(content)
    within = [value for value in content.values() if isinstance(value, Mapping) and _tensors(value)]
    if not tensors and len(within) == 1:  # under another name, and nothing else could be meant
        return _tensors(within[0])
    if not tensors:
        raise CheckpointError(
            f"{path}: holds no tensors; its keys are {', '.join(map(str, list(content)[:5])) or 'none'}."
        )
    return tensors


def _tensors(content: Mapping[Any, Any]) -> dict[str, Tensor]:
    return {str(name): value for name, value in content.items() if isinstance(value, Tensor)}


def _unprefixed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the prefixes of DistributedDataParallel and torch.compile."""
    for prefix in (*PREFIXES, *PREFIXES):
        if tensors and all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    return tensors


MARK = "patch_embed.proj.weight"  # of every backbone of DINOv2 and DINOv3


def read_backbone(raw: RawCheckpoint, backbone: Path | None, usual: str, head: tuple[str, ...]) -> dict[str, Tensor]:
    """Return the tensors of the backbone under its own names: from its own file, or from that of the head. Raises
    CheckpointError: not found, or several files fit.

    Args:
        backbone: the file that the user names.
        usual: the file's published name, a glob, looked for beside the head.
        head: prefixes of the head's tensors, if the file holds both.
    """
    if backbone is not None:
        tensors = read_tensors(backbone)
        if MARK not in tensors:
            first = ", ".join(list(tensors)[:5])
            raise CheckpointError(
                f"{backbone}: no backbone; it has no {MARK}, its {len(tensors)} tensors begin with {first}."
            )
        return tensors
    within = {
        name.removeprefix("backbone."): tensor for name, tensor in raw.tensors.items() if not name.startswith(head)
    }
    if MARK in within:
        return within
    beside = sorted(raw.path.parent.glob(usual)) if raw.path.is_file() else []
    if len(beside) == 1:
        return read_tensors(beside[0])
    seen = f"; {len(beside)} of these lie beside it" if beside else ", and it does not lie beside it"
    raise CheckpointError(
        f"{raw.path}: holds a head without its backbone, published as {usual}{seen}. Give backbone=PATH, or a "
        "folder that holds these two files and no other weights."
    )


def pair_in_folder(folder: Path) -> tuple[Path, ...]:
    """Return the two weights files of a folder that has exactly two; otherwise none."""
    if not folder.is_dir():
        return ()
    files = sorted(path for path in folder.iterdir() if path.suffix in SAFETENSORS + PICKLED and path.is_file())
    return tuple(files) if len(files) == 2 else ()


def read_pair(files: tuple[Path, ...]) -> dict[str, Tensor]:
    """Return the tensors of both. Raises CheckpointError if they are no head and backbone, which share names."""
    first, second = (read_tensors(path) for path in files)
    common = sorted(first.keys() & second.keys())
    if common:
        raise CheckpointError(
            f"{files[0].parent}: {files[0].name} and {files[1].name} are no head and backbone, with {len(common)} "
            f"names in common: {', '.join(common[:5])}. Give one of them."
        )
    return {**first, **second}


def check_width(raw: RawCheckpoint, head: int, tensors: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError if the backbone does not have the channels that the head reads."""
    width = int(tensors[MARK].shape[0])
    if width != head:
        raise CheckpointError(f"{raw.path}: its head reads {head} channels, this backbone has {width}; take its own.")


NUMBERS = re.compile(r"[biufc?]\d*|[SU]\d+")


class NumberType:
    """Replaces `numpy.dtype`, for numbers and texts only, not for objects."""

    def __init__(self, code: str, *_: Any) -> None:
        if not isinstance(code, str) or not NUMBERS.fullmatch(code):
            raise ValueError(f"NumPy values of type {code!r}")
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = {"<": "<", ">": ">"}.get(state[1], "=")

    def read(self, content: bytes) -> np.ndarray:
        return np.frombuffer(content, np.dtype(self.order + self.code))


class Array:
    """Replaces `numpy.ndarray`."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_columns, content = state
        self.values = kind.read(content).reshape(shape, order="F" if by_columns else "C")


def scalar(kind: NumberType, content: bytes) -> Any:
    return kind.read(content)[0].item()


def array(*_: Any) -> Array:
    return Array()


CORES = ("numpy.core", "numpy._core")  # before and since NumPy 2
PATHS = ("pathlib", "pathlib._local")
STAND_INS: list[Any] = [
    argparse.Namespace,
    (NumberType, "numpy.dtype"),
    (Array, "numpy.ndarray"),
    *((scalar, f"{core}.multiarray.scalar") for core in CORES),
    *((array, f"{core}.multiarray._reconstruct") for core in CORES),
    *((PurePosixPath, f"{paths}.{name}") for paths in PATHS for name in ("PosixPath", "PurePosixPath")),
    *((PureWindowsPath, f"{paths}.{name}") for paths in PATHS for name in ("WindowsPath", "PureWindowsPath")),
]
_LOCK = threading.Lock()  # torch's list of safe globals is global


@contextmanager
def allow_harmless_values() -> Iterator[None]:
    """Open a context in which files may hold these values."""
    with _LOCK, torch.serialization.safe_globals(STAND_INS):
        yield
