"""What experiments on rooms share: folders of some of their images, a small model, trainings that can be resumed."""

import json
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from densevit.cli.main import main as command
from densevit.data.datasets.base import Dataset
from densevit.engine.logger import read_csv

SIZE = [96, 128]  # at which the model sees rooms
HEADS: Mapping[str, Mapping[str, Any]] = {
    "depth": {"type": "metric", "activation": "log", "min_depth": 0.1, "max_depth": 13, "initial_depth": 2,
              "hidden": 0},
    "relative": {"type": "disparity", "activation": "softplus", "hidden": 0},
    "labels": {"type": "segmentation"},
}  # fmt: skip
TASKS: Mapping[str, Mapping[str, Any]] = {
    "depth": {"losses": [{"type": "silog", "variance_focus": 0.5}]},
    "relative": {"losses": [{"type": "ssi", "trim": 0.1}, {"type": "ssi_gradient", "weight": 0.5}]},
    "labels": {"type": "segmentation", "losses": [{"type": "cross_entropy", "pool": "image"}]},
}


def write_folder(data: Dataset, indices: Iterable[int], folder: Path, kinds: Collection[str]) -> dict[int, str]:
    """Write images and the maps of these kinds as a data set `folder`; return the name of each."""
    for kind in ("images", *kinds):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    names = {index: data.names[index].replace("/", "_") for index in indices}
    for index, name in names.items():
        files = data.files(index)
        shutil.copy(files["image"], folder / f"images/{name}.jpg")
        if "labels" in kinds:
            shutil.copy(files["labels"], folder / f"labels/{name}.png")
        if "depths" in kinds:
            np.save(folder / f"depths/{name}.npy", data.depth_map(index))
    if "labels" in kinds:
        classes = [{"id": i, "name": name} for i, name in enumerate(data.classes)]
        (folder / "classes.json").write_text(json.dumps([*classes, {"id": 255, "name": "none", "ignore": True}]))
    return names


def config(
    rooms: Path,
    heads: Sequence[str],
    sources: Sequence[Any],
    size: tuple[int, int, int] = (128, 5, 2),
    **run: Any,
) -> dict[str, Any]:
    """A training on these sources, scored on the test rooms. `size`: channels, blocks and heads of the encoder."""
    dim, depth, attention_heads = size
    return {
        "model": {
            "encoder": {"type": "vit", "dim": dim, "depth": depth, "heads": attention_heads, "patch_size": 16,
                        "image_size": SIZE, "stem": "conv", "positions": "sincos", "init": "jax"},
            "decoder": {"type": "linear"} if list(heads) == ["labels"] else {"type": "dpt", "channels": 32},
            "decoders": {"labels": {"type": "linear"}} if len(heads) > 1 and "labels" in heads else {},
            "heads": {name: HEADS[name] for name in heads},
            "resize": {"mode": "fixed", "size": SIZE, "interpolation": "area"},
        },
        "tasks": {name: TASKS[name] for name in heads},
        "data": {
            "train": {"type": "mix", "sources": sources},
            "val": {"type": "mix", "sources": [{"data": {"type": "rooms", "root": str(rooms), "split": "test"}}]},
            "transforms": [{"type": "resize", "size": SIZE}, {"type": "hflip"}, {"type": "color", "p": 0.3}],
            "workers": 0,
        },
        "optim": {"lr": 1e-3},
        "schedule": {"type": "cosine", "warmup": 0.05},
        "ema": 0.99,
        "validate_every": run["steps"],
        "device": "cpu",
        **run,
    }  # fmt: skip


def train(tree: Mapping[str, Any], output: Path, overrides: Sequence[str] = ()) -> dict[str, float]:
    """Train, or resume, and return the scores of the last validation."""
    path = output.with_suffix(".yaml")
    path.write_text(json.dumps({**tree, "output": str(output)}, indent=1))  # which is YAML, too
    run_command("train", str(path), *overrides, "--resume")
    return read_csv(output / "val.csv")[-1]


def run_command(*words: str) -> None:
    if command(words):
        sys.exit(f"densevit {' '.join(words)}: failed.")
