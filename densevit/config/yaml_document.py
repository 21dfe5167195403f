"""YAML 1.2 (`1e-4` is a number, `no` is a string) with line numbers for errors; duplicate keys are refused."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from densevit.errors import ConfigError

Key = tuple[str, ...]
AS_TEXT = re.compile(r"\*|#|\s*[^\s\['{\"].*\s#")
LARGEST = 2**32 - 1  # of whole numbers: nothing counts further than a seed
PLAIN = ("map", "seq", "str", "int", "float", "bool", "null")  # no tags that make Python objects


class _Loader(yaml.SafeLoader):
    """PyYAML reads YAML 1.1, where `1e-4` is text, `010` is 8, `1:30` is 90 and `no` is False."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML's own protocol)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
     "-+.0123456789"),
):  # fmt: skip
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first) + [""] * (_tag == "null")
    )


@dataclass
class YamlDocument:
    """A tree of mappings, lists and scalars that remembers where each key was written."""

    tree: dict[str, Any]  # the content
    origin: dict[Key, str] = field(default_factory=dict)  # key path -> `file:line`, or the override that set it

    @classmethod
    def read(cls, path: str | Path) -> "YamlDocument":
        """Read a file. Raises ConfigError if it is no YAML, no mapping, has a duplicate key or an alias."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except IsADirectoryError:
            raise ConfigError(
                f"{path}: a folder; expected a config file. `densevit init` writes one for a folder of data."
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read as text ({error}).") from None
        document = cls({})
        node = _compose(text, str(path))
        if node is None:
            return document
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{path}:1: a config is a mapping of `key: value` lines.")
        document.tree = document._construct(node, (), str(path))
        return document

    def override(self, item: str) -> None:
        """Apply `key.sub=value`; the value is read as YAML, list items are numbered from 0. Raises ConfigError: no
        `=`, or a key below something that has no keys."""
        dotted, sep, text = item.partition("=")
        names = tuple(dotted.strip().split("."))
        if not sep or not all(names):
            raise ConfigError(f"'{item}' is not key=value.")
        node, leaf = self._parent(names, item)
        # YAML's `*` and `#` begin an alias and a comment, which one value has none of: here they are of a file's name.
        is_text = AS_TEXT.match(text) is not None
        value = _compose(json.dumps(text, ensure_ascii=False) if is_text else text, f"'{item}'")
        node[leaf] = None if value is None else self._construct(value, names, f"'{item}'")
        self.origin[names] = f"'{item}'"

    def assign(self, key: str, value: Any) -> None:
        """Set `key.sub` to a value of plain types; the same as an override, without YAML. Raises ConfigError if a key
        below something that has no keys."""
        item, names = f"{key}={str(value)[:60]}", tuple(key.split("."))
        node, leaf = self._parent(names, item)
        node[leaf] = value
        self.origin[names] = f"'{item}'"

    def _parent(self, names: Key, item: str) -> tuple[Any, Any]:
        """Return the mapping or list that holds a key, made where it is missing, and the key or index in it."""
        node: Any = self.tree
        for depth, name in enumerate(names[:-1]):
            node = _child(node, name, item, names[: depth + 1])
        return _container(node, names[-1], item)

    def is_override(self, *names: str) -> bool:
        """Return whether a key was set on the command line, by itself or with what is above it."""
        return any(self.origin.get(names[:depth], "").startswith("'") for depth in range(len(names), 0, -1))

    def locate(self, problem: str) -> str:
        """Put the origin of its key in front of a problem that starts with `key.sub: `."""
        names = tuple(problem.partition(":")[0].split("."))
        while names:
            if names in self.origin:
                return f"{self.origin[names]}: {problem}"
            names = names[:-1]
        return problem

    def _construct(self, node: yaml.Node, names: Key, source: str) -> Any:
        if node.tag.rpartition(":")[2] not in PLAIN:
            raise ConfigError(f"{source}:{node.start_mark.line + 1}: '{node.tag}' is not used in configs.")
        if isinstance(node, yaml.MappingNode):
            tree: dict[str, Any] = {}
            for key_node, value_node in node.value:
                key, line = str(key_node.value), key_node.start_mark.line + 1
                location = source if source.startswith("'") else f"{source}:{line}"
                if not isinstance(key_node, yaml.ScalarNode):
                    raise ConfigError(f"{location}: a key is a word, not a list or a mapping.")
                if key in tree:
                    raise ConfigError(f"{location}: {'.'.join((*names, key))}: written twice.")
                self.origin[(*names, key)] = location
                tree[key] = self._construct(value_node, (*names, key), source)
            return tree
        if isinstance(node, yaml.SequenceNode):
            return [self._construct(item, (*names, str(i)), source) for i, item in enumerate(node.value)]
        return _scalar(node, source)


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a tree of options as one table, `encoder.out_indices` and so on; lists and tuples are the same."""
    table: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            table |= flat(value, f"{prefix}{key}.")
        else:
            table[prefix + key] = list(value) if isinstance(value, tuple) else value
    return table


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, yaml.AliasToken | yaml.AnchorToken):
                # An alias bomb is made of them, and configs are short enough to be written out.
                line = token.start_mark.line + 1
                raise ConfigError(f"{source}:{line}: anchors and aliases (& and *) are not used in configs.")
        return yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{source}{line}: not YAML: {getattr(error, 'problem', None) or error}.") from None
    except RecursionError:
        raise ConfigError(f"{source}: lists and mappings are nested deeper than any config needs.") from None


def _scalar(node: yaml.Node, source: str) -> Any:
    location = f"{source}:{node.start_mark.line + 1}"
    if node.tag.endswith(":int") and len(node.value) > len(str(LARGEST)) + 1:
        raise ConfigError(f"{location}: a whole number of {len(node.value)} digits; they go to {LARGEST}.")
    loader = _Loader("")
    try:
        return loader.construct_object(node, deep=True)
    except yaml.YAMLError as error:
        raise ConfigError(f"{location}: {getattr(error, 'problem', error)}.") from None
    finally:
        loader.dispose()


def _child(node: Any, name: str, item: str, names: Key) -> Any:
    node, key = _container(node, name, item)
    if isinstance(node, dict) and node.get(key) is None:
        node[key] = {}
    child = node[key]
    if not isinstance(child, dict | list):
        raise ConfigError(f"'{item}': {'.'.join(names)} is {child!r}, which has no keys.")
    return child


def _container(node: Any, name: str, item: str) -> tuple[Any, Any]:
    if isinstance(node, dict):
        return node, name
    if name.isdigit() and int(name) < len(node):
        return node, int(name)
    raise ConfigError(f"'{item}': '{name}' is no item of that list; it has items 0 to {len(node) - 1}.")
