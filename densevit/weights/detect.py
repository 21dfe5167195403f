"""Which family a published file is of: by its keys, never by guess."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from densevit.errors import CheckpointError
from densevit.weights import two_files
from densevit.weights.family import FAMILIES, Family
from densevit.weights.files import read_tensors
from densevit.weights.published import Found

# In the order of preference; an index names the shards.
IN_FOLDER = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")


def find(path: Path) -> Found:
    """Reads a file, a folder as Hugging Face lays one out, or one that holds a backbone and a head.

    Raises:
        CheckpointError: missing, damaged, or nothing of the kind.
    """
    if path.is_file():
        return Found(path, read_tensors(path))
    if not path.exists():
        raise CheckpointError(f"{path}: no such file or folder.")
    weights = next((path / name for name in IN_FOLDER if (path / name).is_file()), None)
    if weights is None and (pair := two_files.in_folder(path)):
        return Found(path, two_files.joined(pair))
    if weights is None:
        raise CheckpointError(f"{path}: no weights here; a folder should hold {IN_FOLDER[0]} or {IN_FOLDER[2]}.")
    if weights.suffix == ".json":
        shards = sorted(set(read_json(weights).get("weight_map", {}).values()))
        tensors = {name: t for shard in shards for name, t in read_tensors(path / Path(shard).name).items()}
    else:
        tensors = read_tensors(weights)
    return Found(path, tensors, read_json(path / "config.json"), read_json(path / "preprocessor_config.json"))


def read_json(path: Path) -> Mapping[str, Any]:
    """An object; empty where there is no file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({error}).") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: holds a {type(content).__name__}, not an object.")
    return content


def candidates(found: Found) -> list[str]:
    """The families that the file may be of."""
    return [name for name, part in FAMILIES.parts.items() if _class(part).recognises(found)]


def detect(found: Found) -> str:
    """The one family that it can be.

    Raises:
        CheckpointError: several or none; the choices are listed with what each means.
    """
    names = candidates(found)
    if len(names) == 1:
        return names[0]
    if names:
        listed = "".join(f"\n  {name}: {_class(FAMILIES.parts[name]).means}" for name in names)
        raise CheckpointError(f"{found.path}: its keys cannot tell which of these it is; say family=NAME.{listed}")
    first = ", ".join(list(found.tensors)[:5])
    raise CheckpointError(
        f"{found.path}: of no known family; its {len(found.tensors)} tensors begin with {first}. "
        f"Known: {', '.join(sorted(FAMILIES.parts))}."
    )


def _class(part: Any) -> type[Family]:
    assert isinstance(part, type) and issubclass(part, Family)
    return part
