"""What Google-style docstrings say of a part and of its options, as plain sentences."""

import inspect
import re
from collections.abc import Callable
from typing import Any

SECTION = re.compile(r"^(?:Args|Attributes|Returns|Raises):$", re.MULTILINE)
ENTRY = re.compile(r"    (\w+(?:, \w+)*): (.*)")


def prose(part: Callable[..., Any]) -> str:
    """A docstring up to its sections; each paragraph is one line."""
    text = SECTION.split(inspect.getdoc(part) or "")[0]
    return "\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip())


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
