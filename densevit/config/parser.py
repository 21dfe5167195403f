"""The run: one frozen tree, read from YAML, overridden by key=value, checked whole before anything is built."""

import dataclasses
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError

from densevit.config.schema import Run
from densevit.config.yaml_document import YamlDocument
from densevit.errors import ConfigError
from densevit.registry import UNKNOWN, check_bool_as_number, explain


@dataclass(frozen=True)
class Draft:
    """A config as read, with what is wrong in its own tree; the options of parts are `checking.choose`'s to check.

    Attributes:
        run: what is known and fits.
        problems: one for all else, to be told along with the faults of parts.
        folder: where the file lies.
    """

    run: Run
    document: YamlDocument
    problems: list[str]
    folder: Path

    @classmethod
    def read(cls, path: str | Path, overrides: Sequence[str] = ()) -> "Draft":
        """
        Raises:
            ConfigError: what does not fit leaves no run; every fault at once.
        """
        run, document, told, whole = _read(path, overrides)
        # Where a default stands for what did not fit, what it does not go with is nobody's fault.
        return cls(run, document, [*told, *run.problems()] if whole else told, Path(path).parent)

    def locate(self, problem: str) -> str:
        """Puts file and line of its key in front of a problem."""
        return self.document.locate(problem)


def read(path: str | Path, overrides: Sequence[str] = ()) -> tuple[Run, YamlDocument]:
    """Reads a config and checks its own tree.

    Raises:
        ConfigError: every fault at once.
    """
    run, document, told, _ = _read(path, overrides)
    if told:
        raise ConfigError(*map(document.locate, told))
    return run, document


def _read(path: str | Path, overrides: Sequence[str]) -> tuple[Run, YamlDocument, list[str], bool]:
    """Run, document, problems; and whether all values fit."""
    document = YamlDocument.read(path)
    for item in overrides:
        document.override(item)
    tree = document.tree
    try:
        run = TypeAdapter(Run).validate_python(tree)
        told = list(check_bool_as_number(tree, run, ""))
        return run, document, told, not told
    except ValidationError as error:
        faults = error.errors()
        told = explain(faults, tree, "", known_at)
    try:
        run = TypeAdapter(Run).validate_python(without(tree, [fault["loc"] for fault in faults]))
    except ValidationError:
        raise ConfigError(*map(document.locate, told)) from None
    return run, document, told, all(fault["type"] in UNKNOWN for fault in faults)


def without(tree: dict[str, Any], places: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """A copy of the tree that lacks some of its keys; a list goes whole."""
    left = deepcopy(tree)
    for place in places:
        node: Any = left
        for name, below in zip(place, (*place[1:], None), strict=True):
            if not isinstance(node, dict) or name not in node:
                break
            if not isinstance(node[name], dict) or below not in node[name]:
                del node[name]
                break
            node = node[name]
    return left


def dump(run: Run) -> str:
    """The run as YAML that `read` accepts."""
    return yaml.safe_dump(to_dict(run), sort_keys=False)


def to_dict(run: Run) -> dict[str, Any]:
    return dict(TypeAdapter(Run).dump_python(run, mode="json"))


def known_at(loc: Sequence[Any]) -> list[str]:
    """The keys that may stand at a place of the tree, then the full paths of all keys."""
    schema: Any = Run
    for name in loc:
        schema = _below(schema, str(name))
    here = [f.name for f in dataclasses.fields(schema)] if dataclasses.is_dataclass(schema) else []
    return here + _paths(Run, "")


def _below(schema: Any, name: str) -> Any:
    """The type of a key: of a node's field, or of any entry of a mapping."""
    if get_origin(schema) is dict:
        return get_args(schema)[-1]
    hint = get_type_hints(schema).get(name) if dataclasses.is_dataclass(schema) else None
    branches = () if get_origin(hint) is dict else get_args(hint)
    return next((branch for branch in branches if dataclasses.is_dataclass(branch)), hint)


def _paths(schema: type, prefix: str) -> list[str]:
    found = []
    for name, hint in get_type_hints(schema).items():
        found.append(prefix + name)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            found += _paths(hint, f"{prefix}{name}.")
    return found
