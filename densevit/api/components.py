"""Pages of what a config can choose from: components by kind, each with its options; and the keys of the config."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from densevit.config import json_schema
from densevit.config.json_schema import by_kind
from densevit.errors import ConfigError
from densevit.registry import did_you_mean

WIDTH = 100
BOUNDS = {"minimum": "from {}", "exclusiveMinimum": "> {}", "maximum": "to {}", "exclusiveMaximum": "< {}"}
RUN = "run"
"""What the top level of a config is called."""


def listed(kind: str | None, name: str | None, *, with_plugins: bool) -> str:
    """Return the kinds of components, those of a kind, one of them; or keys of the config. Raises ConfigError if there
    is none of that name."""
    tree = load_schema(with_plugins=with_plugins)
    kinds = by_kind(tree["$defs"])
    if kind is None:
        lines = [f"{kind:20} {', '.join(sorted(names))}" for kind, names in kinds.items()]
        return "\n".join([*lines, f"{'keys of the config':20} {', '.join([RUN, *sections(tree)])}"])
    if kind not in kinds and name is None and (key := find_key(tree, kind)) is not None:
        return "\n".join(key)
    components = pick(kinds, kind, "kind")
    if name is not None:
        return "\n".join(page(pick(components, name, kind)))
    first = {name: (component["description"].splitlines() or [""])[0] for name, component in sorted(components.items())}
    return "\n".join(f"{name}\n{indented(text)}" for name, text in first.items())


def sections(tree: Mapping[str, Any]) -> list[str]:
    """Return the keys of a config that have keys below them."""
    return [key for key, option in tree["properties"].items() if section_of(tree, option)]


def section_of(tree: Mapping[str, Any], option: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the node of the keys below a key; None where its value is no section."""
    branches = [option, *option.get("anyOf", ()), option.get("additionalProperties"), option.get("items")]
    for branch in branches:
        reference = branch.get("$ref", "") if isinstance(branch, Mapping) else ""
        node = tree["$defs"].get(reference.rpartition("/")[2], branch if isinstance(branch, Mapping) else {})
        if "properties" in node:
            return dict(node)
    return None


def find_key(tree: Mapping[str, Any], dotted: str) -> list[str] | None:
    """Return the lines of a section or of one key of the config, `optim` or `optim.lr`; None where there is none."""
    node: Mapping[str, Any] = tree
    names = [] if dotted == RUN else dotted.split(".")
    for depth, name in enumerate(names):
        if name not in node.get("properties", {}):
            return None
        below = section_of(tree, node["properties"][name])
        if below is None:
            lines = option_lines(name, node["properties"][name], required=name in node.get("required", ()))
            return None if depth < len(names) - 1 else list(lines)
        node = below
    return list(page({"required": (), **node}))


def load_schema(*, with_plugins: bool) -> dict[str, Any]:
    """Return the shipped schema, which needs no torch; with plug-ins, that of all components."""
    if not with_plugins:
        return dict(json.loads(json_schema.SHIPPED.read_text(encoding="utf-8")))
    from densevit.registries import REGISTRIES

    return json_schema.to_json_schema(REGISTRIES)


def pick(table: Mapping[str, Any], name: str, what: str) -> Any:
    """Raise ConfigError if there is none of that name."""
    if name not in table:
        raise ConfigError(f"no {what} '{name}'.{did_you_mean(name, table)}")
    return table[name]


def page(component: Mapping[str, Any]) -> Iterator[str]:
    """Yield a part and its options, each with type, default and meaning."""
    for paragraph in component["description"].splitlines():
        yield textwrap.fill(paragraph, WIDTH)
    for name, option in component["properties"].items():
        if "const" in option:  # the type, by which it was asked for
            continue
        yield ""
        yield from option_lines(name, option, required=name in component["required"])


def option_lines(name: str, option: Mapping[str, Any], *, required: bool) -> Iterator[str]:
    """Yield type, default and meaning of an option or key."""
    yield f"{name}: {words(option)}; " + ("required" if required else f"default {json.dumps(option.get('default'))}")
    if "description" in option:
        yield indented(option["description"])


def indented(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")


def words(node: Mapping[str, Any]) -> str:
    """Return a type of the schema.

    >>> words({"type": "array", "prefixItems": [{"type": "integer", "exclusiveMinimum": 0}] * 2})
    '[integer > 0, integer > 0]'
    """
    if "$ref" in node:
        return f"{{{node['$ref'].rpartition('/')[2]}}}"
    if "anyOf" in node:
        return " or ".join(words(branch) for branch in node["anyOf"] if "not" not in branch)
    if "enum" in node or "const" in node:
        return " or ".join(map(str, node.get("enum", [node.get("const")])))
    if "prefixItems" in node:
        return f"[{', '.join(map(words, node['prefixItems']))}]"
    if node.get("type") == "array":
        return f"[{words(node['items'])}, ...]"
    if "properties" in node:
        return f"{{{', '.join(node['properties'])}}}"
    if node.get("type") == "object":
        return "{name: value, ...}"
    kind = "path" if node.get("format") == "path" else str(node.get("type", "anything"))
    return " ".join([kind, *(text.format(f"{node[key]:g}") for key, text in BOUNDS.items() if key in node)])
