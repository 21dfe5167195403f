"""What Google-style docstrings say of a part and of its options, as plain sentences."""

import inspect
import re
from collections.abc import Callable
from typing import Any

ENTRY = re.compile(r"    (\w+(?:, \w+)*): (.*)")


def summary(part: Callable[..., Any]) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(part) or "").partition("\n\n")[0].split())


def arguments(part: Callable[..., Any]) -> dict[str, str]:
    """Name -> what it is, from the `Args` of a class or function, and of a class' `__init__`."""
    found: dict[str, str] = {}
    for source in (part, getattr(part, "__init__", None)):
        found |= _entries(inspect.getdoc(source) or "")
    return found


def _entries(text: str) -> dict[str, str]:
    """
    >>> _entries("Args:\\n    size: of both sides,\\n        in pixels.\\n\\nRaises:\\n    ConfigError: never.")
    {'size': 'of both sides, in pixels.'}
    """
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.partition("Args:\n")[2].splitlines():
        if line and not line.startswith(" "):
            break  # the next section
        if entry := ENTRY.fullmatch(line):
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, entry[2])
        elif line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found
