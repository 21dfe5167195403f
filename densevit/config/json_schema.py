"""The config as a JSON Schema, for editors; and read back, to check a config before the components are imported.

The package ships the schema of its own components, `config.schema.json`, which `densevit list schema` writes.
"""

import dataclasses
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, reduce
from operator import or_
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from densevit.config.schema import TrainConfig
from densevit.registry import ComponentConfig, Registries, Registry, schema
from densevit.utils.docstrings import SECTION, arguments, entries, prose

Tree = dict[str, Any]
SHIPPED = Path(__file__).parent / "config.schema.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
LOSSES = "x-losses"  # in a task's schema: the registry of its losses
WEIGHT = {
    "weight": {
        "description": "its factor in the sum of losses",
        "default": 1.0,
        "exclusiveMinimum": 0,
        "type": "number",
    }
}

# Where a config chooses components: node, field -> registry; the field holds one, a list or a mapping of them.
PLACES = {
    ("Model", "encoder"): "encoder",
    ("Model", "decoder"): "decoder",
    ("Model", "heads"): "head",
    ("Model", "decoders"): "decoder",
    ("Data", "train"): "data_set",
    ("Data", "val"): "data_set",
    ("Data", "probe"): "data_set",
    ("TrainConfig", "objective"): "objective",
    ("Data", "transforms"): "transform",
    ("Source", "data"): "data_set",
    ("Source", "transforms"): "transform",
    ("Consistency", "strong"): "transform",
    ("AlignFeatures", "encoder"): "encoder",
}


def to_json_schema(registries: Registries) -> Tree:
    """Return the JSON Schema of a config that chooses from these registries."""
    tree = TypeAdapter(TrainConfig).json_schema()
    nodes: Tree = tree["$defs"]
    for registry in _all_registries(registries):
        nodes |= _definitions(registry)
    source = nodes["data_set.mix"]["properties"]["sources"]["items"]
    owners = {
        **nodes,
        "Source": source,
        "Consistency": source["properties"]["consistency"]["anyOf"][0],
        "AlignFeatures": nodes["objective.supervised"]["properties"]["align_features"]["anyOf"][0],
    }
    for (node, field), kind in PLACES.items():
        options = (tree if node == "TrainConfig" else owners[node])["properties"]
        options[field] = _with_component(options[field], kind)
    of_model = nodes["Model"]["properties"]
    of_model["conditioning"] |= {"properties": {}, "additionalProperties": False}
    for name, conditioning in by_kind(nodes)["conditioning"].items():
        del conditioning["properties"]["type"]  # which is its key
        conditioning["required"].remove("type")
        nullable = {"anyOf": [{"$ref": f"#/$defs/conditioning.{name}"}, {"type": "null"}]}
        of_model["conditioning"]["properties"][name] = nullable
    losses = {name: _kind(task.loss_registry) for name, task in _tasks(registries).items()}
    for name, kind in losses.items():
        nodes[f"task.{name}"][LOSSES] = kind
    of_task = nodes["Task"]["properties"]
    of_task["type"]["enum"] = [*losses]
    of_task["protocol"]["enum"] = [*registries.protocols]
    of_task["losses"]["items"] = {"anyOf": [{"$ref": f"#/$defs/{kind}"} for kind in dict.fromkeys(losses.values())]}
    for kind in losses.values():
        for loss in by_kind(nodes)[kind].values():
            loss["properties"] |= WEIGHT
    return {"$schema": DIALECT, "title": "A training run of densevit", **_untitled(tree)}


def _untitled(tree: Any) -> Any:
    """Return the tree without the titles that pydantic derives from names."""
    if isinstance(tree, dict):
        return {key: _untitled(value) for key, value in tree.items() if key != "title"}
    return [_untitled(value) for value in tree] if isinstance(tree, list) else tree


def _all_registries(registries: Registries) -> Iterator[Registry[Any]]:
    yield from (
        registries.encoders,
        registries.objectives,
        registries.decoders,
        registries.heads,
        registries.tasks,
        registries.transforms,
        registries.datasets,
        registries.conditionings,
    )
    yield from {_kind(task.loss_registry): task.loss_registry for task in _tasks(registries).values()}.values()


def _tasks(registries: Registries) -> Mapping[str, Any]:
    return registries.tasks.components


def _kind(registry: Registry[Any]) -> str:
    return registry.kind.replace(" ", "_")


def _definitions(registry: Registry[Any]) -> Iterator[tuple[str, Tree]]:
    """Yield the schemas of a registry's components, then that of any one of them."""
    kind = _kind(registry)
    for name, component in registry.components.items():
        tree, descriptions = inlined(schema(component).model_json_schema()), arguments(component)
        options = {
            key: {"description": ""} | option | {"description": descriptions[key]} if key in descriptions else option
            for key, option in tree.get("properties", {}).items()
        }
        yield (
            f"{kind}.{name}",
            {
                "description": prose(component),
                "type": "object",
                "properties": {"type": {"const": name}, **options},
                "required": ["type", *tree.get("required", [])],
                "additionalProperties": False,
            },
        )
    yield kind, {"anyOf": [{"$ref": f"#/$defs/{kind}.{name}"} for name in registry.components]}


def inlined(tree: Tree) -> Tree:
    """Return the tree with each reference to its own `$defs` replaced by what is there; `x-class` keeps the class's
    name."""
    nodes = tree.get("$defs", {})

    def visit(node: Any) -> Any:
        if isinstance(node, list):
            return [visit(value) for value in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            name = node["$ref"].rpartition("/")[2]
            texts = entries(nodes[name].get("description", ""))
            target = visit(nodes[name])
            for key, text in texts.items():
                target["properties"][key] = {"description": text, **target["properties"][key]}
            rest = {key: value for key, value in node.items() if key != "$ref"}
            return {**target, "description": SECTION.split(target["description"])[0].strip(), "x-class": name, **rest}
        return {key: visit(value) for key, value in node.items() if key != "$defs"}

    return dict(visit(tree))


def _with_component(field: Tree, kind: str) -> Tree:
    """Return a field's schema with that of its component, which pydantic only knows as an object."""
    reference = {"$ref": f"#/$defs/{kind}"}
    if field.get("type") == "array":
        return {**field, "items": reference}
    if isinstance(field.get("additionalProperties"), dict):
        return {**field, "additionalProperties": reference}
    # Without a type, a component has that of the checkpoint of `init_from`, and an objective is `supervised`.
    bare = [{"not": {"required": ["type"]}, "type": "object"}] if kind in ("encoder", "decoder", "objective") else []
    if "anyOf" not in field:
        description = {key: value for key, value in field.items() if key == "description"}
        return description | ({"anyOf": [reference, *bare]} if bare else reference)
    return {**field, "anyOf": [reference, *bare, {"type": "null"}]}


@cache
def load_shipped_schema() -> Registries:
    """Return the package's own registries, with signatures in place of components; none can be built."""
    return read(json.loads(SHIPPED.read_text(encoding="utf-8")))


def by_kind(nodes: Tree) -> dict[str, dict[str, Tree]]:
    """Map each kind and name to the schema of a component, from a config's definitions."""
    components: dict[str, dict[str, Tree]] = {}
    for key, node in nodes.items():
        kind, dot, name = key.partition(".")
        if dot:
            components.setdefault(kind, {})[name] = node
    return components


def read(tree: Tree) -> Registries:
    """Return the registries that check as those that `to_json_schema` was given, apart from what only their own code
    checks."""
    kinds = by_kind(tree["$defs"])
    registries: dict[str, Registry[Any]] = {kind: Registry(kind.replace("_", " ")) for kind in kinds}
    for kind, registry in registries.items():
        registry.components |= {name: SignatureStub(node, registries) for name, node in kinds[kind].items()}
    return Registries(
        registries["encoder"],
        registries["objective"],
        registries["decoder"],
        registries["head"],
        registries["task"],
        registries["transform"],
        registries["data_set"],
        tree["$defs"]["Task"]["properties"]["protocol"]["enum"],
        registries["conditioning"],
    )


class SignatureStub:
    """Has the signature of a component, and of a task its losses."""

    default_losses: Sequence[ComponentConfig] = ()

    def __init__(self, node: Tree, registries: Mapping[str, Registry[Any]]) -> None:
        options = {name: option for name, option in node["properties"].items() if name not in ("type", *WEIGHT)}
        self.loss_registry = registries.get(node.get(LOSSES, ""))
        self.__signature__ = inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if name in node["required"] else option.get("default"),
                    annotation=annotation(option),
                )
                for name, option in options.items()
            ]
        )

    def __call__(self, **options: Any) -> Any:
        raise AssertionError("a stub is checked, never built")


SCALARS: Mapping[str, Any] = {"integer": int, "number": float, "string": str, "boolean": bool, "null": None}
BOUNDS = {
    "minimum": "ge",
    "exclusiveMinimum": "gt",
    "maximum": "le",
    "exclusiveMaximum": "lt",
    "minItems": "min_length",
}


def annotation(node: Tree) -> Any:
    """Return the Python type for a node of JSON Schema; the inverse of pydantic's schema.

    >>> annotation({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}]})
    tuple[int, int]
    """
    if "anyOf" in node:
        return reduce(or_, map(annotation, node["anyOf"]))
    if "const" in node or "enum" in node:
        return Literal[tuple(node.get("enum", [node.get("const")]))]
    bounds: Tree = {BOUNDS[name]: value for name, value in node.items() if name in BOUNDS}
    kind = node.get("type")
    if kind == "array" and "prefixItems" in node:
        return GenericAlias(tuple, tuple(map(annotation, node["prefixItems"])))
    if kind == "array":
        hint: Any = GenericAlias(tuple, (annotation(node["items"]), ...))
    elif kind == "object" and "x-class" in node:
        hint = _dataclass(node)
    elif kind == "object" or "$ref" in node:  # a component
        values = node.get("additionalProperties")
        hint = GenericAlias(dict, (str, annotation(values))) if isinstance(values, dict) else ComponentConfig
    elif kind == "string" and node.get("format") == "path":
        hint = Path
    else:
        hint = SCALARS.get(str(kind), Any)
    return Annotated[hint, Field(**bounds)] if bounds else hint


def _dataclass(node: Tree) -> type:
    """Return the options of a component's option, as the dataclass that they are."""
    fields: list[Any] = []
    for name, option in node["properties"].items():
        default = option.get("default")
        hashable = tuple(default) if isinstance(default, list) else default
        required = name in node.get("required", ())
        fields.append((name, annotation(option), *([] if required else [dataclasses.field(default=hashable)])))
    return dataclasses.make_dataclass(node["x-class"], fields, kw_only=True, frozen=True)
