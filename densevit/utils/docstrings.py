"""What a function says of itself: the prose of its docstring, the meaning of each argument, and their defaults; and the
options of commands that its parameters become."""

import inspect
import re
from collections.abc import Callable
from typing import Any

SECTION = re.compile(r"^(?:Args|Attributes|Returns|Raises):$", re.MULTILINE)
ENTRY = re.compile(r"    (\w+(?:, \w+)*): (.*)")


def prose(component: Callable[..., Any]) -> str:
    """Return a docstring without its sections and examples; each paragraph is one line."""
    text = SECTION.split(inspect.getdoc(component) or "")[0]
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    return "\n".join(paragraph for paragraph in paragraphs if paragraph and not paragraph.startswith(">>>"))


def arguments(component: Callable[..., Any]) -> dict[str, str]:
    """Return option -> description, from `Args` of a class or function and of a class's `__init__`."""
    descriptions: dict[str, str] = {}
    for source in (component, getattr(component, "__init__", None)):
        descriptions |= entries(inspect.getdoc(source) or "")
    return descriptions


def entries(text: str) -> dict[str, str]:
    """Return name -> description of the section `Args`.

    >>> entries("Args:\\n    size: of both sides,\\n        in pixels.\\n\\nRaises:\\n    ConfigError: never.")
    {'size': 'of both sides, in pixels.'}
    """
    descriptions: dict[str, str] = {}
    names: list[str] = []
    for line in text.partition("Args:\n")[2].splitlines():
        if line and not line.startswith(" "):
            break  # the next section
        if entry := ENTRY.fullmatch(line):
            names = entry[1].split(", ")
            descriptions |= dict.fromkeys(names, entry[2])
        elif line.strip():
            descriptions |= {name: f"{descriptions[name]} {line.strip()}" for name in names}
    return descriptions


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Return parameter -> default of a function."""
    return {p.name: p.default for p in inspect.signature(function).parameters.values() if p.default is not p.empty}


def flag(parameter: str) -> str:
    """Return the option of a command that a parameter is: `--batch-size` of `batch_size`."""
    return f"--{parameter.replace('_', '-')}"
