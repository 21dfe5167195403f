"""Text and JSON that somebody else may have written: reading gives what is expected, or one error."""

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from densevit.errors import DataError, DensevitError

T = TypeVar("T")
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What code that expects one shape of JSON raises on another."""


def parse_json(text: str, source: object, error: type[DensevitError] = DataError) -> Any:
    """Return the value of a text. Raises `error`, which begins with `source`: no JSON, or nested too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as reason:
        raise error(f"{source}: is not readable JSON ({reason}).") from None


def read_text(path: Path, what: str = "", error: type[DensevitError] = DataError) -> str:
    """Return the UTF-8 text of a file. Raises `error`, which says that `what` cannot be read: missing, or no text."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as reason:
        why = getattr(reason, "strerror", None) or reason
        raise error(f"{path}: {what and f'{what} '}cannot be read ({why}).") from None


def read_json(path: Path, error: type[DensevitError] = DataError) -> Any:
    """Return the value in a file. Raises `error`: missing, or no JSON."""
    return parse_json(read_text(path, error=error), path, error)


def read_object(path: Path, error: type[DensevitError] = DataError) -> dict[str, Any]:
    """Return the object in a file. Raises `error`: missing, or something else."""
    tree = read_json(path, error)
    if not isinstance(tree, dict):
        raise error(f"{path}: expected an object, got {str(tree)[:60]}.")
    return tree


def checked(kind: type[T], tree: Any, source: object, error: type[DensevitError] = DataError) -> T:
    """Return the dataclass of a tree, every value of the type that it declares. Raises `error`, which names the first
    that is not."""
    try:
        return TypeAdapter(kind).validate_python(tree)
    except ValidationError as reason:
        first = reason.errors()[0]
        key = "".join(f"{step}: " for step in first["loc"])
        raise error(f"{source}: {key}{first['msg']}, got {str(first['input'])[:60]!r}.") from None
