"""List what a config can choose from: encoders, decoders, heads, losses, data sets, transforms; and their options."""

import argparse
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from densevit.cli.options.checkpoint import add_plugin_option
from densevit.errors import ConfigError

WIDTH = 100
BOUNDS = {"minimum": "from {}", "exclusiveMinimum": "> {}", "maximum": "to {}", "exclusiveMaximum": "< {}"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kind", nargs="?", help="encoder, decoder, head, data_set, transform, depth_loss, ...; default: all"
    )
    parser.add_argument("name", nargs="?", help="one component, dpt for example, with its options")
    add_plugin_option(parser)


def run(args: argparse.Namespace) -> int:
    from densevit.config.json_schema import by_kind

    parts = by_kind(load_schema(with_plugins=bool(args.plugin))["$defs"])
    if args.kind is None:
        print("\n".join(f"{kind:20} {', '.join(sorted(names))}" for kind, names in parts.items()))
    elif args.name is None:
        for name, part in sorted(pick(parts, args.kind, "kind").items()):
            first, *_ = part["description"].splitlines() or [""]
            print(f"{name}\n{indented(first)}")
    else:
        print("\n".join(page(pick(pick(parts, args.kind, "kind"), args.name, args.kind))))
    return 0


def load_schema(*, with_plugins: bool) -> dict[str, Any]:
    """The shipped schema, which needs no torch; with plug-ins, that of all components."""
    from densevit.config import json_schema

    if not with_plugins:
        return dict(json.loads(json_schema.SHIPPED.read_text(encoding="utf-8")))
    from densevit.registries import REGISTRIES

    return json_schema.to_json_schema(REGISTRIES)


def pick(table: Mapping[str, Any], name: str, what: str) -> Any:
    """
    Raises:
        ConfigError: there is none of that name.
    """
    from densevit.registry import did_you_mean

    if name not in table:
        raise ConfigError(f"no {what} '{name}'.{did_you_mean(name, table)}")
    return table[name]


def page(part: Mapping[str, Any]) -> Iterator[str]:
    """A part and its options, each with type, default and meaning."""
    for paragraph in part["description"].splitlines():
        yield textwrap.fill(paragraph, WIDTH)
    for name, option in part["properties"].items():
        if name == "type":
            continue
        default = "required" if name in part["required"] else f"default {json.dumps(option.get('default'))}"
        yield f"\n{name}: {words(option)}; {default}"
        if "description" in option:
            yield indented(option["description"])


def indented(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")


def words(node: Mapping[str, Any]) -> str:
    """A type of the schema.

    >>> words({"type": "array", "prefixItems": [{"type": "integer", "exclusiveMinimum": 0}] * 2})
    '[integer > 0, integer > 0]'
    """
    if "anyOf" in node:
        return " or ".join(words(branch) for branch in node["anyOf"])
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
