"""The reference pages: every command, every key of a config, every component, and the Python API.

All come from the code: parsers, the config's JSON Schema, docstrings.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from densevit.api.components import load_schema, words
from densevit.cli.main import COMMANDS
from densevit.cli.parser import find_function, make_parser
from densevit.config.json_schema import by_kind

COMPONENTS = {
    "encoder": "Encoders",
    "decoder": "Decoders",
    "head": "Heads",
    "conditioning": "Further inputs of a network",
    "task": "Tasks",
    "depth_loss": "Losses for depth",
    "segmentation_loss": "Losses for classes of pixels",
    "segment_loss": "Losses for segments",
    "classification_loss": "Losses for classes of images",
    "normals_loss": "Losses for normals",
    "focal_length_loss": "Losses for focal lengths",
    "objective": "Training objectives",
    "data_set": "Data sets",
    "transform": "Transforms",
}

# Page -> title, introduction and what it documents; a module stands for all its public names.
API = {
    "api/index.md": (
        "Python API",
        "What `import densevit` gives. [From Python](../../python.md) shows it in use.",
        [f"densevit.{name}" for name in (
            "train", "load", "evaluate", "predict", "export", "compare", "calibrate", "load_pt2",
            "Predictor", "Run", "Evaluation", "Dataset", "Pairs", "Sample",
        )],
    ),
    "api/extend.md": (
        "Base classes",
        "The base classes of custom components; see [Custom components](../../plugins.md).",
        [
            "densevit.structures", "densevit.models.encoders.base.Encoder", "densevit.models.decoders.base.Decoder",
            "densevit.models.heads.base.Head", "densevit.losses.depth", "densevit.data.datasets.base.Dataset",
            "densevit.registry.Registry",
        ],
    ),
    "api/model_card.md": (
        "Cards and errors",
        "What a checkpoint says of its model, and the errors that densevit raises.",
        ["densevit.model_card", "densevit.errors"],
    ),
    "api/ops.md": (
        "Operations",
        "Pure functions on arrays and tensors.",
        [
            f"densevit.ops.{name}" for name in
            ("align", "calibration", "camera", "geometry", "points", "flow", "colors", "crops", "matrices")
        ],
    ),
}  # fmt: skip


def pages() -> Iterator[tuple[str, str]]:
    """(path below `reference/`, Markdown)"""
    yield "commands.md", "\n".join(commands())
    schema = load_schema(with_plugins=False)
    yield "config.md", "\n".join(config(schema))
    kinds = by_kind(schema["$defs"])
    assert set(kinds) == set(COMPONENTS), set(kinds) ^ set(COMPONENTS)
    for kind, title in COMPONENTS.items():
        yield f"components/{kind}.md", "\n".join(components(title, kind, kinds[kind]))
    for path, (title, introduction, names) in API.items():
        yield path, "\n\n".join([f"# {title}", introduction, *(f"::: {name}" for name in names)]) + "\n"


def commands() -> Iterator[str]:
    """`--help` of every command."""
    yield "# Commands\n\nEach prints this by `densevit COMMAND --help`.\n"
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        yield f"\n## {group.capitalize()}\n"
        for name, command in COMMANDS.items():
            if command.group != group:
                continue
            parser = make_parser(f"densevit {name}", find_function(command.function))
            yield f"\n### {name}\n\n```text\n{parser.format_help().rstrip()}\n```\n"


def config(schema: Mapping[str, Any]) -> Iterator[str]:
    """Every key of a run; components have their own pages."""
    nodes = schema["$defs"]
    yield "# Config\n"
    yield "Every key of the YAML file, or of the keyword arguments, of a training. `densevit list components optim`"
    yield "prints the keys of a section in a shell, and `densevit list schema` what an editor needs to complete keys.\n"
    yield f"## The run\n\n{schema['description']}\n"
    yield from table(schema)
    for name, node in nodes.items():
        if "." not in name and "properties" in node:
            yield f"\n## {name}\n\n{node['description']}\n"
            yield from table(node)


def components(title: str, kind: str, parts: Mapping[str, Any]) -> Iterator[str]:
    """One section a component of a kind."""
    yield f"# {title}\n"
    for name, part in parts.items():
        yield f"\n## `{name}`\n"
        yield from (f"{escaped(line)}\n" for line in part["description"].splitlines())
        yield from table(part)


def table(node: Mapping[str, Any]) -> Iterator[str]:
    """The keys of a node: type, default, meaning."""
    options = {key: option for key, option in node["properties"].items() if "const" not in option}
    if not options:
        yield "No options."
        return
    yield "| key | type | default | |\n|---|---|---|---|"
    for key, option in options.items():
        default = f"`{json.dumps(option['default'])}`" if "default" in option else ""
        default = "required" if key in node.get("required", ()) else default
        meaning = escaped(option.get("description", ""))
        yield f"| `{key}` | {kind_of(option)} | {default} | {meaning} |"


def kind_of(option: Mapping[str, Any]) -> str:
    """The type of an option, with a link to the page of its components or the section of its keys."""
    if "$ref" in option:
        name = option["$ref"].rpartition("/")[2]
        return f"[{name}](components/{name}.md)" if name in COMPONENTS else f"[{name}](#{name.lower()})"
    if "anyOf" in option:
        return " or ".join(dict.fromkeys(kind_of(branch) for branch in option["anyOf"] if "not" not in branch))
    if "items" in option and "prefixItems" not in option:
        return f"list of {kind_of(option['items'])}"
    if isinstance(option.get("additionalProperties"), dict):
        return f"name: {kind_of(option['additionalProperties'])}"
    return escaped(words(option))


def escaped(text: str) -> str:
    """Text for Markdown, where a table cell's `|` and a tag's `<` mean something; code stays as it is."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    return "`".join(
        part if odd % 2 else part.replace("<", "&lt;").replace("*", "\\*") for odd, part in enumerate(parts)
    )
