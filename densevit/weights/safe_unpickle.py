"""Allows harmless values beside the tensors of a pickle: argparse namespaces, paths, NumPy numbers and arrays.

Without it, Lightning's `hyper_parameters` and the like would make `weights_only` refuse the file. No code can run.
"""

import argparse
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import torch

NUMBERS = re.compile(r"[biufc?]\d*|[SU]\d+")


class Kind:
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


def scalar(kind: Kind, content: bytes) -> Any:
    return kind.read(content)[0].item()


def array(*_: Any) -> Array:
    return Array()


CORES = ("numpy.core", "numpy._core")  # before and since NumPy 2
PATHS = ("pathlib", "pathlib._local")
STAND_INS: list[Any] = [
    argparse.Namespace,
    (Kind, "numpy.dtype"),
    (Array, "numpy.ndarray"),
    *((scalar, f"{core}.multiarray.scalar") for core in CORES),
    *((array, f"{core}.multiarray._reconstruct") for core in CORES),
    *((PurePosixPath, f"{paths}.{name}") for paths in PATHS for name in ("PosixPath", "PurePosixPath")),
    *((PureWindowsPath, f"{paths}.{name}") for paths in PATHS for name in ("WindowsPath", "PureWindowsPath")),
]
_LOCK = threading.Lock()  # torch's list of safe globals is global


@contextmanager
def allowed() -> Iterator[None]:
    """Context in which files may hold these values."""
    with _LOCK, torch.serialization.safe_globals(STAND_INS):
        yield
