"""A hash of a model: of its weights, and of everything else that decides what it computes."""

import hashlib
import inspect
from collections.abc import Iterator, Mapping, Set
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

import densevit
from densevit.utils.state_dict import tensor_bytes, weights_fingerprint

INTERNAL = frozenset(vars(nn.Module()))  # hooks, and the parameters, buffers and modules, which are walked by name


def model_fingerprint(model: nn.Module) -> str:
    """Return a hash of the weights, the classes of all modules with their source files, and their attributes."""
    digest = hashlib.sha256(weights_fingerprint(model).encode())
    for name, module in model.named_modules():
        attributes = {key: value for key, value in vars(module).items() if key not in INTERNAL}
        digest.update(repr((name, qualified_name(type(module)), describe(attributes))).encode(errors="replace"))
    for name, buffer in model.named_buffers():  # also those that no state_dict holds
        digest.update(name.encode())
        digest.update(tensor_bytes(buffer))
    for path in sorted({*Path(densevit.__path__[0]).rglob("*.py"), *source_files(model)}):
        digest.update(file_hash(path).encode())
    return digest.hexdigest()[:32]


def versions(*packages: str) -> list[str]:
    """Return `name=version` of installed packages."""
    return [f"{name}={installed_version(name)}" for name in packages]


def installed_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def describe(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """Return the nested plain data that is equal in every process for equal attributes."""
    if value is None or isinstance(value, str | bytes | int | float | complex):
        return value
    if id(value) in seen:
        return "..."
    seen = (*seen, id(value))
    if isinstance(value, nn.Module):
        return qualified_name(type(value))
    if isinstance(value, Tensor):
        return hashlib.sha256(tensor_bytes(value)).hexdigest()
    if isinstance(value, type | FunctionType | BuiltinFunctionType | MethodType):
        return qualified_name(value)
    if isinstance(value, partial):
        return [describe(item, seen) for item in (value.func, value.args, value.keywords)]
    if isinstance(value, Mapping):
        return sorted((str(key), repr(describe(entry, seen))) for key, entry in value.items())
    if isinstance(value, Set):
        return sorted(repr(describe(entry, seen)) for entry in value)
    if isinstance(value, list | tuple):
        return [describe(entry, seen) for entry in value]
    attributes = getattr(value, "__dict__", None)
    return [qualified_name(type(value)), describe(attributes, seen) if attributes is not None else str(value)]


def qualified_name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def source_files(model: nn.Module) -> Iterator[Path]:
    """Yield the files of all modules' classes: of plug-ins, too."""
    for kind in {type(module) for module in model.modules()}:
        try:
            path = inspect.getsourcefile(kind)
        except TypeError:  # defined in __main__ of an interpreter
            path = None
        if path is not None and Path(path).is_file():
            yield Path(path)


@cache
def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
