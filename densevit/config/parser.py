"""Reads a training config from YAML with overrides `key=value`, and checks its keys and types."""

import dataclasses
import difflib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError

from densevit.config.schema import DATASET_OPTIONS, SHARED_DATA_OPTIONS, TrainConfig
from densevit.config.yaml_document import YamlDocument
from densevit.errors import ConfigError
from densevit.registry import UNKNOWN, check_bool_as_number, explain


@dataclass(frozen=True)
class Draft:
    """A config as read; the options of its components are checked by `validation.ComponentChecker`."""

    run: TrainConfig  # all that is known and fits
    document: YamlDocument
    problems: list[str]  # an error for everything else, to be reported along with those of the components
    folder: Path  # of the file; relative plugins lie there
    # by key, those that stand for components
    objects: Mapping[str, Any] = field(default_factory=dict)
    auto_batch_size: bool = False  # the number in `run` is to be replaced by one that is measured

    @classmethod
    def read(cls, path: str | Path, overrides: Sequence[str] = ()) -> "Draft":
        """Return `path`: a file, or the name of a recipe. Raises ConfigError if what does not fit leaves no run; every
        error at once."""
        return cls.from_python(path, {}, overrides)

    @classmethod
    def from_python(
        cls, config: str | Path | Mapping[str, Any], overrides: Mapping[str, Any], words: Sequence[str] = ()
    ) -> "Draft":
        """Raise ConfigError if what does not fit leaves no run; every error at once.

        Args:
            config: a file, the name of a recipe, or the tree itself.
            overrides: by dotted key, or nested; objects may stand for some components.
            words: `key=value`, before the overrides.
        """
        objects: dict[str, Any] = {}
        if isinstance(config, Mapping):
            document, folder = YamlDocument(to_plain(config, "", objects)), Path.cwd()
        else:
            file = find_config(config)
            document, folder = YamlDocument.read(file), file.parent
        for item in words:
            document.override(item)
        for key, value in assignments(overrides):
            document.assign(key, to_plain(value, key, objects))
        auto = document.tree.get("batch_size") == "auto"
        run, problems, complete = _parse(document)
        # Where a default stands in for a value that did not fit, a conflict with it is not the user's mistake.
        return cls(run, document, [*problems, *run.problems()] if complete else problems, folder, objects, auto)

    def locate(self, problem: str) -> str:
        """Put file and line of its key in front of a problem."""
        return self.document.locate(problem)


def read(path: str | Path, overrides: Sequence[str] = ()) -> tuple[TrainConfig, YamlDocument]:
    """Read a config and check its own tree. Raises ConfigError: every error at once."""
    document = YamlDocument.read(find_config(path))
    for item in overrides:
        document.override(item)
    run, problems, _ = _parse(document)
    if problems:
        raise ConfigError(*map(document.locate, problems))
    return run, document


def _parse(document: YamlDocument) -> tuple[TrainConfig, list[str], bool]:
    """Run, problems; and whether all values fit."""
    _settle_length(document)
    _settle_batch_size(document)
    _share_data_options(document)
    _leave_out_tasks(document)
    tree = document.tree
    try:
        run = _adapter().validate_python(tree)
        problems = list(check_bool_as_number(tree, run, ""))
        return run, problems, not problems
    except ValidationError as error:
        faults = error.errors()
        problems = explain(faults, tree, "", keys_at)
    try:
        run = _adapter().validate_python(without(tree, [fault["loc"] for fault in faults]))
    except ValidationError:
        raise ConfigError(*map(document.locate, problems)) from None
    return run, problems, all(fault["type"] in UNKNOWN for fault in faults)


def _settle_length(document: YamlDocument) -> None:
    """`steps` on the command line replaces the file's `epochs`, and the other way round."""
    for key, other in (("steps", "epochs"), ("epochs", "steps")):
        is_set = document.tree.get(key) is not None and document.is_override(key)
        if is_set and not document.is_override(other):
            document.tree.pop(other, None)


def _settle_batch_size(document: YamlDocument) -> None:
    """`auto` stands for a number that is measured later (`Draft.auto_batch_size`); until then for about eight."""
    if document.tree.get("batch_size") == "auto":
        data = document.tree.get("data")
        counts = document.tree.get("grad_accum_steps"), data.get("clip") if isinstance(data, dict) else None
        least = math.prod(count for count in counts if type(count) is int and count > 0)
        document.tree["batch_size"] = least * max(1, 8 // least)


def _share_data_options(document: YamlDocument) -> None:
    """Move `data.root` and `data.depth_scale` into the data sets of `data`, unless these have their own.

    On the command line they replace what the file says there.
    """
    data = document.tree.get("data")
    if not isinstance(data, dict):
        return
    for key in SHARED_DATA_OPTIONS:
        value = data.pop(key, None)
        for split in ("train", "val", "probe") if value is not None else ():
            key_path = ("data", split, key)
            overrides = document.is_override("data", key) and not document.is_override(*key_path)
            named = isinstance(data.get(split), dict) and data[split].get("type") != OBJECT
            if named and (key not in data[split] or overrides):
                data[split][key] = value
                document.origin[key_path] = document.origin["data", key]


def _leave_out_tasks(document: YamlDocument) -> None:
    """Remove the tasks that are null, each with its head and the head's own decoder."""
    tasks, model = document.tree.get("tasks"), document.tree.get("model")
    left_out = [name for name, task in tasks.items() if task is None] if isinstance(tasks, dict) else []
    sections = [model.get("heads"), model.get("decoders")] if isinstance(model, dict) else []
    for tree in (tasks, *sections):
        if isinstance(tree, dict):
            for name in left_out:
                tree.pop(name, None)


def without(tree: dict[str, Any], key_paths: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return a copy of the tree that lacks some of its keys; a list is removed as a whole."""
    left = deepcopy(tree)
    for key_path in key_paths:
        node: Any = left
        for name, below in zip(key_path, (*key_path[1:], None), strict=True):
            if not isinstance(node, dict) or name not in node:
                break
            if not isinstance(node[name], dict) or below not in node[name]:
                del node[name]
                break
            node = node[name]
    return left


def dump(run: TrainConfig) -> str:
    """Return the run as YAML that `read` accepts."""
    return yaml.safe_dump(to_dict(run), sort_keys=False)


def to_dict(run: TrainConfig) -> dict[str, Any]:
    return dict(_adapter().dump_python(run, mode="json"))


_adapter = cache(partial(TypeAdapter, TrainConfig))


def keys_at(loc: Sequence[Any]) -> list[str]:
    """Return the keys that may stand at a place of the tree, then the full paths of all keys."""
    schema: Any = TrainConfig
    for name in loc:
        schema = _below(schema, str(name))
    names = [f.name for f in dataclasses.fields(schema)] if dataclasses.is_dataclass(schema) else []
    here = [".".join(map(str, [*loc, name])) for name in names]
    here += [f"data.train.{option}" for option in DATASET_OPTIONS if [*loc] == ["data"]]
    return here + _paths(TrainConfig, "")


def _below(schema: Any, name: str) -> Any:
    """Return the type of a key: of a node's field, or of any entry of a mapping."""
    if get_origin(schema) is dict:
        return get_args(schema)[-1]
    hint = get_type_hints(schema).get(name) if dataclasses.is_dataclass(schema) else None
    branches = () if get_origin(hint) is dict else get_args(hint)
    return next((branch for branch in branches if dataclasses.is_dataclass(branch)), hint)


def _paths(schema: type, prefix: str) -> list[str]:
    paths = []
    for name, hint in get_type_hints(schema).items():
        paths.append(prefix + name)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            paths += _paths(hint, f"{prefix}{name}.")
    return paths


PACKAGE = Path(__file__).parents[1]
SUFFIXES = (".yaml", ".yml")


def folder() -> Path:
    """Return `densevit/configs` in an installed package, `configs` beside the package in a clone."""
    installed = PACKAGE / "configs"
    return installed if installed.is_dir() else PACKAGE.parent / "configs"


def recipes() -> dict[str, Path]:
    """Map each name to its file; with its folder, `depth/rooms`, where several files have the name."""
    files = sorted(folder().rglob("*.yaml"))
    stems = [path.stem for path in files]
    return {path.stem if stems.count(path.stem) == 1 else f"{path.parent.name}/{path.stem}": path for path in files}


def recipe_parts(name: str | Path) -> tuple[str, ...]:
    """Return the folders and the stem of a recipe's name."""
    name = Path(name)
    parts = (name.with_suffix("") if name.suffix in SUFFIXES else name).parts
    return parts[1:] if parts[:1] == ("configs",) else parts


def find_recipe(name: str | Path) -> Path | None:
    """Return the file of the one recipe of a name, with or without its folder and suffix."""
    parts = recipe_parts(name)
    matches = [path for path in recipes().values() if path.with_suffix("").parts[-len(parts) :] == parts and parts]
    return matches[0] if len(matches) == 1 else None


def find_config(path: str | Path) -> Path:
    """Return a config file, or else the recipe of that name; see `find_recipe`. Raises ConfigError if there is neither;
    with the files in its folder, and the nearest recipes."""
    if not isinstance(path, str | Path):
        raise ConfigError(f"a config is a file, the name of a recipe or a dict, got {type(path).__name__}.")
    path = Path(path)
    if path.exists():
        return path
    if (recipe := find_recipe(path)) is not None:
        return recipe
    named, parts = recipes(), recipe_parts(path)
    near = sorted(p.name for p in path.parent.glob("[!.]*") if p.suffix in SUFFIXES) if path.parent.is_dir() else []
    beside = f" There are: {', '.join(near)}." if near else ""
    stem = difflib.get_close_matches("".join(parts[-1:]), [recipe.stem for recipe in named.values()], n=1)
    close = difflib.get_close_matches("/".join(parts), named, n=1) if len(parts) > 1 else []
    close = close or [recipe for recipe, file in named.items() if file.stem in stem]
    hint = f" Did you mean the recipe {' or '.join(map(repr, close))}?" if close else ""
    raise ConfigError(f"{path}: no such config file.{beside}{hint} `densevit list recipes` shows all recipes.")


def title(path: Path) -> str:
    """Return the first sentence of a config's opening comment."""
    words: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            break
        words.append(line[2:].strip())
    first, *_ = re.split(r"(?<!et al)\.(?: |$)", " ".join(words), maxsplit=1)
    return first


OBJECT = "object"
"""The `type` that stands for an object."""

PLACES = {
    "model.encoder": "an nn.Module whose feature maps go from shallow to deep",
    "data.train": "a densevit.Dataset, or a sequence of (image, depth) pairs",
    "data.val": "a densevit.Dataset, or a sequence of (image, depth) pairs",
}
"""Where objects may stand, and which."""


def assignments(overrides: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys that nested mappings set. A mapping with a `type` is a component, and set as a whole.

    >>> list(assignments({"optim": {"lr": 0.1}, "data.root": "mine", "model": {"decoder": {"type": "dpt"}}}))
    [('optim.lr', 0.1), ('data.root', 'mine'), ('model.decoder', {'type': 'dpt'})]
    """
    for name, value in overrides.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and "type" not in value:
            yield from assignments(value, f"{key}.")
        else:
            yield key, value


def to_plain(value: Any, key: str, objects: dict[str, Any]) -> Any:
    """Return the value as YAML could hold it; objects are put aside under their keys. Raises ConfigError: an object
    where none may stand."""
    if key in PLACES and not (value is None or isinstance(value, Mapping)):
        objects[key] = value
        return {"type": OBJECT, "name": describe_object(value)}
    if isinstance(value, Mapping):
        return {
            str(name): to_plain(item, f"{key}.{name}" if key else str(name), objects) for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [to_plain(item, f"{key}.{i}", objects) for i, item in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    allowed = "; ".join(f"{path}: {what}" for path, what in PLACES.items())
    raise ConfigError(f"{key}: {describe_object(value)} is no value of a config. Objects may stand at {allowed}.")


def describe_object(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} of {len(value)}"
    return f"{type(value).__module__}.{type(value).__qualname__}"
