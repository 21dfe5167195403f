"""Configs given from Python: nested mappings of plain values, with objects where a config names a component.

An object stands in the config as `{type: object, name: its class}`; what it is only this process knows.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from densevit.errors import ConfigError

OBJECT = "object"
"""The `type` that stands for an object."""

PLACES = {
    "model.encoder": "an nn.Module whose feature maps go from shallow to deep",
    "data.train": "a densevit.Dataset, or a sequence of (image, depth) pairs",
    "data.val": "a densevit.Dataset, or a sequence of (image, depth) pairs",
}
"""Where objects may stand, and which."""


def assignments(overrides: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys that nested mappings set. A mapping with a `type` is a component, and set as a whole.

    >>> list(assignments({"optim": {"lr": 0.1}, "data.root": "mine", "model": {"decoder": {"type": "dpt"}}}))
    [('optim.lr', 0.1), ('data.root', 'mine'), ('model.decoder', {'type': 'dpt'})]
    """
    for name, value in overrides.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and "type" not in value:
            yield from assignments(value, f"{key}.")
        else:
            yield key, value


def to_plain(value: Any, key: str, objects: dict[str, Any]) -> Any:
    """The value as YAML could hold it; objects are put aside under their keys. Raises ConfigError: an object where none
    may stand."""
    if key in PLACES and not (value is None or isinstance(value, Mapping)):
        objects[key] = value
        return {"type": OBJECT, "name": describe_object(value)}
    if isinstance(value, Mapping):
        return {
            str(name): to_plain(item, f"{key}.{name}" if key else str(name), objects) for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{key}.{i}", objects) for i, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    allowed = "; ".join(f"{path}: {what}" for path, what in PLACES.items())
    raise ConfigError(f"{key}: {describe_object(value)} is no value of a config. Objects may stand at {allowed}.")


def describe_object(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} of {len(value)}"
    return f"{type(value).__module__}.{type(value).__qualname__}"
