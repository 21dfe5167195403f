"""Finds the family of a published file by its keys."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from densevit.errors import CheckpointError
from densevit.utils.json_files import read_object
from densevit.weights.external import FAMILIES, Family, RawCheckpoint, family_class
from densevit.weights.readers import PICKLED, SAFETENSORS, pair_in_folder, read_pair, read_tensors

# Names of the model in training modules, beside losses and metrics.
MODULES = re.compile(r"((\w*model|model_ema|net|network|student|teacher|module|ema)\.)+")
# In the order of preference; an index names the shards.
IN_FOLDER = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def read_raw(path: Path) -> RawCheckpoint:
    """Read a file, a Hugging Face folder, or a folder with a backbone and a head. Raises CheckpointError: missing,
    damaged, or without weights."""
    if path.is_file():
        return unwrap_module(RawCheckpoint(path, read_tensors(path)))
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such file or folder.")
    if (path / "adapter_config.json").is_file():
        raise CheckpointError(
            f"{path}: holds an adapter of peft, which changes the weights; save the model with it merged "
            "(`merge_and_unload().save_pretrained`) into another folder."
        )
    weights = next((path / name for name in IN_FOLDER if (path / name).is_file()), None)
    if weights is None and (pair := pair_in_folder(path)):
        return RawCheckpoint(path, read_pair(pair))
    if weights is None:
        held = sorted(file.name for file in path.iterdir() if file.suffix.lower() in SAFETENSORS + PICKLED)
        hint = f" Or give one of its files: {', '.join(held[:5])}." if held else ""
        raise CheckpointError(f"{path}: no weights here; a folder should hold {IN_FOLDER[0]} or {IN_FOLDER[2]}.{hint}")
    if weights.suffix == ".json":
        tensors = {name: t for shard in shards(weights) for name, t in read_tensors(path / shard).items()}
    else:
        tensors = read_tensors(weights)
    return RawCheckpoint(path, tensors, read_json(path / "config.json"), read_json(path / "preprocessor_config.json"))


def unwrap_module(raw: RawCheckpoint) -> RawCheckpoint:
    """Return the model inside of another module, as in Lightning checkpoints: `model.`, `student.net.`.

    Under a name that is not in `MODULES`, it must be all that the file holds: otherwise it is a part of another model.
    Raises CheckpointError if there are several, as a student and its teacher.
    """
    if matching_families(raw):
        return raw
    for depth in (1, 2, 3):
        prefixes = dict.fromkeys(".".join(name.split(".")[:depth]) + "." for name in raw.tensors)
        below = (_below(raw, prefix) for prefix in prefixes)
        models = [one for one in below if (not one.others or MODULES.fullmatch(one.within)) and matching_families(one)]
        if len(models) == 1:
            return models[0]
        if models:
            names = ", ".join(f"'{one.within}'" for one in models)
            raise CheckpointError(f"{raw.path}: holds {len(models)} models, under {names}; save one of them alone.")
    return raw


def _below(raw: RawCheckpoint, prefix: str) -> RawCheckpoint:
    tensors = {name.removeprefix(prefix): value for name, value in raw.tensors.items() if name.startswith(prefix)}
    return replace(raw, tensors=tensors, within=prefix, others=len(raw.tensors) - len(tensors))


def shards(index: Path) -> list[str]:
    """Return the files that an index names, in its folder."""
    named = read_json(index).get("weight_map")
    if not isinstance(named, dict) or not named or not all(isinstance(file, str) for file in named.values()):
        raise CheckpointError(f"{index}: a `weight_map` should give each tensor's file, got {str(named)[:60]}.")
    return sorted({Path(file).name for file in named.values()})


def read_json(path: Path) -> Mapping[str, Any]:
    """Return an object; empty where there is no file."""
    return read_object(path, CheckpointError) if path.is_file() else {}


def matching_families(raw: RawCheckpoint) -> list[str]:
    """Return the families whose keys fit."""
    return [name for name in FAMILIES.components if recognises(family_class(name), raw)]


def recognises(family: type[Family], raw: RawCheckpoint) -> bool:
    """Return whether the file may be of a family; not one of damaged shapes."""
    try:
        return family.recognises(raw)
    except (LookupError, TypeError, ValueError):
        return False


def detect(raw: RawCheckpoint) -> str:
    """Return the one family that it can be. Raises CheckpointError: several or none; the choices are listed with what
    each description."""
    names = matching_families(raw)
    if len(names) == 1:
        return names[0]
    if names:
        listed = "".join(f"\n  {name}: {family_class(name).description}" for name in names)
        raise CheckpointError(f"{raw.path}: its keys fit several families; give family=NAME.{listed}")
    first = ", ".join(list(raw.tensors)[:5])
    kind = raw.config.get("architectures") or raw.config.get("model_type")
    config = f" its config.json says {kind!r};" if kind else ""
    if raw.path.is_file() and raw.path.with_name("config.json").is_file():
        config = f" if the config.json beside it is its own, give the folder {raw.path.parent};"
    raise CheckpointError(
        f"{raw.path}: of no known family;{config} its {len(raw.tensors)} tensors begin with {first}. "
        f"Known: {', '.join(sorted(FAMILIES.components))}."
    )
