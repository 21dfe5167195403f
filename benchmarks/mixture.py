"""A mixture of three sources beside a specialist for each of its heads, at equal samples of each source.

    benchmarks/mixture.py --rooms DIR [--work DIR] [--report FILE] [key=value ...]

DIR is a data set of datasets/prepare_rooms.py. A third of its training scenes gives metric depth, a third disparity of
an unknown scale and shift of each image, a third labels. One model with three heads learns from all of them, and one
model for each head from its own third alone, with as many draws of it. Disparity has a head of its own, which the
metric source teaches, too: its specialist learns from both, as often.
Runs in --work go on where they were.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from densevit.cli.main import main as command
from densevit.data.datasets.base import open_dataset
from densevit.engine.logger import read_csv
from densevit.utils.atomic_io import write_text

SOURCES = {"metric": "metric", "stereo": "disparity", "street": "labels"}
HEADS = {
    "depth": {
        "type": "metric",
        "activation": "log",
        "min_depth": 0.1,
        "max_depth": 13,
        "initial_depth": 2,
        "hidden": 0,
    },
    "relative": {"type": "disparity", "activation": "softplus", "hidden": 0},
    "labels": {"type": "segmentation"},
}  # fmt: skip
TASKS: dict[str, dict[str, Any]] = {
    "depth": {"losses": [{"type": "silog", "variance_focus": 0.5}]},
    "relative": {"losses": [{"type": "ssi", "trim": 0.1}, {"type": "ssi_gradient", "weight": 0.5}]},
    "labels": {"type": "segmentation", "losses": [{"type": "cross_entropy", "pool": "image"}]},
}
TEACHERS = {"depth": ["metric"], "relative": ["metric", "stereo"], "labels": ["street"]}
SCORES = {"depth": ("abs_rel", "min"), "relative": ("abs_rel", "min"), "labels": ("miou", "max")}
BOUND = 0.03


def write_sources(rooms: Path, work: Path) -> dict[str, dict[str, Any]]:
    """The three sources as folders; every third scene each."""
    data = open_dataset({"type": "rooms", "root": str(rooms), "split": "train"})
    draw = np.random.default_rng(0)
    for name in SOURCES:
        for kind in ("images", "depths", "labels"):
            (work / name / kind).mkdir(parents=True, exist_ok=True)
    scenes = {scene: i for i, scene in enumerate(dict.fromkeys(data.scene(i) for i in range(len(data))))}
    for i in range(len(data)):
        source = list(SOURCES)[scenes[data.scene(i)] % 3]
        files, stem = data.files(i), data.names[i].replace("/", "_")
        shutil.copy(files["image"], work / source / "images" / f"{stem}.jpg")
        if source == "street":
            shutil.copy(files["labels"], work / source / "labels" / f"{stem}.png")
            continue
        depth = data.read(i).depth
        assert depth is not None
        if source == "stereo":
            depth = np.where(depth > 0, draw.uniform(5, 500) / np.maximum(depth, 1e-3) + draw.uniform(1, 100), 0)
        np.save(work / source / "depths" / f"{stem}.npy", depth.astype(np.float32))
    classes = [{"id": i, "name": name} for i, name in enumerate(data.classes)]
    (work / "street/classes.json").write_text(json.dumps([*classes, {"id": 255, "name": "none", "ignore": True}]))
    return {
        name: {"name": name, "data": {"type": "folder", "root": str(work / name)}, "weight": 1, "truth": truth}
        for name, truth in SOURCES.items()
    }


def config(rooms: Path, heads: Sequence[str], sources: Sequence[Any], steps: int, output: Path) -> dict[str, Any]:
    return {
        "model": {
            "encoder": {"type": "vit", "dim": 128, "depth": 5, "heads": 2, "patch_size": 16, "image_size": [96, 128],
                        "stem": "conv", "positions": "sincos", "init": "jax"},
            "decoder": {"type": "dpt", "channels": 32},
            "decoders": {"labels": {"type": "linear"}} if len(heads) > 1 else {},
            "heads": {name: HEADS[name] for name in heads},
            "resize": {"mode": "fixed", "size": [96, 128], "interpolation": "area"},
        },
        "tasks": {name: TASKS[name] for name in heads},
        "data": {
            "train": {"type": "mix", "sources": sources},
            "val": {"type": "mix", "sources": [{"data": {"type": "rooms", "root": str(rooms), "split": "test"}}]},
            "transforms": [{"type": "resize", "size": [96, 128]}, {"type": "hflip"}, {"type": "color", "p": 0.3}],
            "workers": 0,
        },
        "optim": {"lr": 1e-3},
        "schedule": {"type": "cosine", "warmup": 0.05},
        "ema": 0.99,
        "steps": steps,
        "batch_size": 4 * len(sources),
        "validate_every": steps,
        "precision": "fp32",
        "device": "cpu",
        "output": str(output),
    }  # fmt: skip


def trained(tree: dict[str, Any], overrides: Sequence[str]) -> dict[str, float]:
    """The scores of the last validation."""
    output = Path(tree["output"])
    path = output.with_suffix(".yaml")
    if not (output / "val.csv").exists():
        if "decoder" in tree["model"] and list(tree["model"]["heads"]) == ["labels"]:
            tree["model"]["decoder"] = {"type": "linear"}
        path.write_text(yaml.safe_dump(tree, sort_keys=False))
        if command(["train", str(path), *overrides, "--resume"]):
            sys.exit(f"{path}: the training failed.")
    return read_csv(output / "val.csv")[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rooms", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/mixture_benchmark"))
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--report", type=Path)
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_intermixed_args()
    args.work.mkdir(parents=True, exist_ok=True)
    sources = write_sources(args.rooms, args.work)
    whole = config(args.rooms, list(HEADS), list(sources.values()), args.steps, args.work / "mixture")
    joint = trained(whole, args.overrides)
    lines = []
    for head, teachers in TEACHERS.items():
        own = config(args.rooms, [head], [sources[name] for name in teachers], args.steps, args.work / head)
        score, direction = SCORES[head]
        alone, together = trained(own, args.overrides)[f"rooms/{score}"], joint[f"rooms/{head}/{score}"]
        change = together / alone - 1
        holds = (change if direction == "min" else -change) <= BOUND
        lines.append(
            f"| {head} | {', '.join(teachers)} | {score} | {alone:.4f} | {together:.4f} | {change:+.1%} | "
            f"{'yes' if holds else 'no'} |"
        )
    train = read_csv(args.work / "mixture/train.csv")[-1]
    drawn = ", ".join(f"{name} {train[f'{name}/samples']:,.0f}" for name in SOURCES)
    text = "\n".join(
        [
            "# One model on a mixture of three sources, beside a specialist for each head",
            "",
            f"`benchmarks/mixture.py --rooms DIR --steps {args.steps}`, {os.cpu_count()} CPU cores, fp32, seed 0; "
            f"rooms seen at 96 x 128. The mixture draws {drawn}; each specialist draws as many of its own sources.",
            "Scores on the test rooms (relative: after alignment of disparity by scale and shift).",
            "",
            "| head | taught by | score | specialist | mixture | change | at most 3% worse |",
            "|---|---|---|---|---|---|---|",
            *lines,
            "",
            "Stopped and resumed at any step, a training on a mixture is bit-equal, and two gloo processes learn what "
            "one does: `tests/test_mixture_training.py`.",
            "",
        ]
    )
    print(text)
    if args.report:
        write_text(args.report, text)


if __name__ == "__main__":
    main()
