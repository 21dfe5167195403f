"""`list_known`: what a config or a command can choose from."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from densevit.api.types import ImageSize


def list_known(
    what: Literal["recipes", "components", "protocols", "schema"],
    kind: str | None = None,
    name: str | None = None,
    /,
    *,
    size: ImageSize | None = None,
    plugins: Sequence[str | Path] = (),
) -> str:
    """List recipes, components, evaluation protocols, or the JSON Schema of configs.

    `list recipes` lists the configs that come with densevit, `list recipes NAME` prints one; `list components` lists
    what a config can choose from, `list components KIND NAME` one component with its options, `list components optim`
    the keys of a section of the config, `list components optim.lr` one key; `list protocols NAME` explains a protocol
    to the pixel; `list schema` prints what an editor needs to complete the keys of a config.

    Args:
        what: what to list.
        kind: a recipe or protocol; of components encoder, decoder, head, data_set, transform, depth_loss, ..., or a key
            of the config.
        name: a component, as dpt, with its options.
        size: say which pixels a protocol evaluates in a frame of this size.
        plugins: Python files that register components of your own.
    """
    from densevit.errors import ConfigError

    if name is not None and what != "components":
        raise ConfigError(f"list {what}: takes one name at most, got {kind} and {name}.")
    if size is not None and what != "protocols":
        raise ConfigError("--size: is for protocols.")
    if what == "components":
        from densevit.api import components
        from densevit.config import plugins as plugin_files

        loaded = plugin_files.load(plugins)
        return components.listed(kind, name, with_plugins=bool(loaded))
    pages: Mapping[str, Callable[[], str]] = {
        "recipes": lambda: recipes(kind),
        "protocols": lambda: protocols(kind, size),
        "schema": schema,
    }
    return pages[what]()


def recipes(name: str | None) -> str:
    """Return one recipe, or all of them by folder, each with its first sentence."""
    from densevit.config import parser

    if name is not None:
        return parser.find_config(name).read_text(encoding="utf-8").rstrip("\n")
    paths = parser.recipes()
    width = max(map(len, paths))
    lines = []
    for folder in dict.fromkeys(path.parent.name for path in paths.values()):
        lines.append(f"{folder}:")
        lines += [f"  {n:{width}}  {parser.title(path)}" for n, path in paths.items() if path.parent.name == folder]
    last = "`densevit list recipes NAME` prints one; `densevit train NAME key=value ...` trains by it."
    return "\n".join([*lines, last])


def protocols(name: str | None, size: tuple[int, int] | None) -> str:
    """Return one protocol explained, or the table of all."""
    from densevit.errors import ConfigError
    from densevit.evaluation.depth.protocol_text import describe, summary
    from densevit.evaluation.depth.published_protocols import PROTOCOLS
    from densevit.registry import did_you_mean

    if name is None:
        return summary(PROTOCOLS.values())
    if name not in PROTOCOLS:
        raise ConfigError(f"no protocol '{name}'.{did_you_mean(name, PROTOCOLS)}")
    return describe(PROTOCOLS[name], *size or ())


def schema() -> str:
    """Return the JSON Schema of configs."""
    import json

    from densevit.config.json_schema import to_json_schema
    from densevit.registries import REGISTRIES

    return json.dumps(to_json_schema(REGISTRIES), indent=1)
