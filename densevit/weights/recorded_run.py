"""What a checkpoint records of its training: the validation data and the protocol."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from densevit.errors import CheckpointError, ConfigError
from densevit.registry import ComponentConfig
from densevit.weights.checkpoint import locate, read_card


def recorded_run(checkpoint: str | Path) -> Mapping[str, Any]:
    """The config that trained the checkpoint; empty where it records none."""
    try:
        locate(checkpoint)
        return read_card(checkpoint).config
    except CheckpointError:
        if Path(checkpoint).exists():
            return {}  # of others
        raise


def validation_spec(
    checkpoint: str | Path,
    root: Path | None = None,
    split: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> ComponentConfig:
    """What the checkpoint's training validated on, with the root, split and options that are given here. Raises
    ConfigError: it records none, or validated on objects."""
    recorded = (recorded_run(checkpoint).get("data") or {}).get("val")
    if not recorded:
        raise ConfigError(f"--data: {checkpoint} records no validation data; name a data set.")
    tree = {**recorded, **(options or {})}
    if root is not None:
        tree["root"] = str(root.absolute())
    if split is not None:
        tree["split"] = split
    where = "".join(f", {key} {tree[key]}" for key in ("root", "split") if tree.get(key))
    print(f"data: the run's own validation data, {tree['type']}{where}", file=sys.stderr)
    return tree


def recorded_protocol(checkpoint: str | Path, head: str | None = None) -> str | None:
    """What the checkpoint's training was validated by."""
    tasks: Mapping[str, Mapping[str, str]] = recorded_run(checkpoint).get("tasks") or {}
    task = tasks.get(head or "depth") or next(iter(tasks.values()), {})
    return task.get("protocol")
