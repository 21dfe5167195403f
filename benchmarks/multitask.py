"""One model for depth and classes beside one for each: scores on unseen rooms at equal steps, and what they cost.

    benchmarks/multitask.py --rooms DIR [--work DIR] [--report FILE] [key=value ...]

DIR is what `make demo` leaves in demo/rooms (datasets/prepare_rooms.py makes others). Trains the recipe
configs/multitask/rooms.yaml and the same with either task left out, on the same images in the same order, and scores
all three on the test rooms.
Cost is timed with the trained models in turns, image by image, so that a busy machine slows all alike; medians.
Runs in --work go on where they were.
"""

import argparse
import copy
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import yaml
from rooms_experiment import train

from densevit import api
from densevit.data.datasets.base import Dataset, open_dataset
from densevit.data.loading.prefetch import prefetch_samples
from densevit.evaluation.depth.evaluate import evaluate
from densevit.evaluation.depth.published_protocols import find_protocol
from densevit.evaluation.segmentation.evaluate import count, summarise
from densevit.inference.predictor import Predictor
from densevit.utils.atomic_io import write_text

CONFIG = Path(__file__).parents[1] / "configs/multitask/rooms.yaml"
TASKS = ("depth", "labels")
TWINS: dict[str, Sequence[str]] = {"joint": TASKS, "depth": ("depth",), "labels": ("labels",)}
BOUNDS = {"AbsRel": 1.05, "mIoU": 1.05, "cost": 0.65}


def config(rooms: Path, tasks: Sequence[str]) -> dict[str, Any]:
    """The joint recipe with these tasks alone; a single task has the whole loss to itself."""
    tree: dict[str, Any] = yaml.safe_load(CONFIG.read_text())
    for name in set(TASKS) - set(tasks):
        del tree["model"]["heads"][name], tree["tasks"][name]
    if len(tasks) == 1:
        tree["tasks"][tasks[0]].pop("weight", None)
        own = tree["model"].pop("decoders", {})
        tree["model"]["decoder"] = own.get(tasks[0], tree["model"]["decoder"])
    tree["data"] = {**copy.deepcopy(tree["data"]), "workers": 0}
    for part in ("train", "val"):
        tree["data"][part]["root"] = str(rooms)
    return tree


def trained(rooms: Path, work: Path, overrides: Sequence[str]) -> dict[str, Predictor]:
    """The three models, ready to predict."""
    found = {}
    for name, tasks in TWINS.items():
        train(config(rooms, tasks), work / name, overrides)
        found[name] = api.load(work / name / "checkpoints/last", precision="fp32")  # all at the same step
    return found


def scores(predictor: Predictor, data: Dataset) -> dict[str, float]:
    """AbsRel and mIoU, as far as the model gives them."""
    heads = predictor.card.outputs
    answers = [(sample, predictor.predict_all(sample.image)) for sample in prefetch_samples(data)]
    found = {}
    if "depth" in heads:
        items = ((s.name, maps["depth"], s.depth, s.valid) for s, maps in answers)
        found["AbsRel"] = evaluate(items, find_protocol("plain", data.depth_range)).mean["abs_rel"]
    if "labels" in heads:
        k = len(data.classes)
        counts = ((s.name, count(maps["labels"].argmax(0), s.labels, k, boundary=False)) for s, maps in answers)
        found["mIoU"] = summarise(counts, data.classes).mean["miou"]
    return found


def prediction_costs(models: dict[str, Predictor], data: Dataset, images: int = 60) -> dict[str, list[float]]:
    """Seconds per image of each model, measured in turns."""
    found: dict[str, list[float]] = {name: [] for name in models}
    for i in range(images + 3):
        image = data.read(i % len(data)).image
        for name in in_turn(i):
            found[name].append(seconds(partial(models[name].predict_all, image)))
    return {name: values[3:] for name, values in found.items()}


def training_costs(models: dict[str, Predictor], batch: int = 16, rounds: int = 12) -> dict[str, list[float]]:
    """Seconds per step of forward and backward of each model, measured in turns."""
    found: dict[str, list[float]] = {name: [] for name in models}
    image = torch.rand(batch, 3, 96, 128)

    def step(name: str) -> None:
        model = models[name].model.train()
        torch.stack([y.square().mean() for y in model(image).values()]).sum().backward()

    for i in range(rounds + 2):
        for name in in_turn(i):
            found[name].append(seconds(partial(step, name)))
    return {name: values[2:] for name, values in found.items()}


def in_turn(i: int) -> list[str]:
    """The models, none of which is always first."""
    names = list(TWINS)
    return names[i % 3 :] + names[: i % 3]


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ratio(costs: dict[str, list[float]]) -> tuple[float, float, float]:
    """The joint model's time by that of the two others, round by round: median and quartiles."""
    rounds = np.array(costs["joint"]) / (np.array(costs["depth"]) + np.array(costs["labels"]))
    return float(np.median(rounds)), float(np.quantile(rounds, 0.25)), float(np.quantile(rounds, 0.75))


def report(models: dict[str, Predictor], data: Dataset, rooms: Path) -> str:
    found = {name: scores(predictor, data) for name, predictor in models.items()}
    worse = {
        "AbsRel": found["joint"]["AbsRel"] / found["depth"]["AbsRel"],
        "mIoU": found["labels"]["mIoU"] / found["joint"]["mIoU"],
    }
    costs = {"prediction": prediction_costs(models, data), "training": training_costs(models)}
    ratios = {what: ratio(times) for what, times in costs.items()}
    sizes = {name: sum(p.numel() for p in predictor.model.parameters()) / 1e6 for name, predictor in models.items()}
    lines = [
        f"# Depth and classes from one model ({len(data)} test images of {rooms.name}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} thread(s))",
        "",
        "| model | AbsRel | mIoU | parameters, M | ms per image | ms per training step (16 images) |",
        "|---|---|---|---|---|---|",
    ]
    for name in TWINS:
        told = [f"{found[name][score]:.4f}" if score in found[name] else "" for score in ("AbsRel", "mIoU")]
        times = [f"{1000 * median(costs[what][name]):.1f}" for what in costs]
        lines.append(f"| {name} | {' | '.join(told)} | {sizes[name]:.2f} | {' | '.join(times)} |")
    lines += ["", "| the joint model, times its twins' | found | allowed | holds |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {value:.3f} | {BOUNDS[name]} | {held(value <= BOUNDS[name])} |" for name, value in worse.items()
    ]
    for what, (middle, low, high) in ratios.items():
        bound = f"{BOUNDS['cost']} | {held(middle <= BOUNDS['cost'])}" if what == "prediction" else " | "
        lines.append(f"| time of {what}, by both together | {middle:.3f} ({low:.3f} to {high:.3f}) | {bound} |")
    lines.append(f"| parameters, by both together | {sizes['joint'] / (sizes['depth'] + sizes['labels']):.3f} | | |")
    return "\n".join(lines) + "\n"


def held(good: bool) -> str:
    return "yes" if good else "no"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/multitask"))
    parser.add_argument("--report", type=Path, help="write the table there, too")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of all three trainings, steps=200 say")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    models = trained(args.rooms.absolute(), args.work.absolute(), args.overrides)
    data = open_dataset({"type": "rooms", "root": str(args.rooms.absolute()), "split": "test"})
    text = report(models, data, args.rooms)
    print(text)
    if args.report is not None:
        write_text(args.report, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
