"""Variants of the demo's recipe on the same rooms: CPU time of the training, and scores on the test rooms.

    benchmarks/demo.py --rooms DIR --work DIR [--report FILE] NAME[:key=value]... ...

DIR is what `make demo` leaves in demo/rooms. A variant is a name and overrides of configs/multitask/rooms.yaml, joined
by single colons: `bf16:precision=bf16 small:model.encoder.dim=128:steps=600`. Variants with a result in --work are
taken as they are. Time is that of the process (user and system, all threads, loading included), which other jobs on the
machine disturb less than the wall clock; nothing is validated meanwhile.
"""

import argparse
import json
import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # before torch is imported, as commands do

from machine import made_on

import densevit
from densevit.cli.main import main as command
from densevit.data.datasets.base import Dataset, open_dataset
from densevit.data.loading.prefetch import prefetch_samples
from densevit.evaluation.depth.evaluate import evaluate
from densevit.evaluation.depth.published_protocols import find_protocol
from densevit.evaluation.segmentation.evaluate import count, summarise
from densevit.inference.predictor import Predictor
from densevit.utils.atomic_io import write_text

CONFIG = Path(__file__).parents[1] / "configs/multitask/rooms.yaml"
ALONE = ("data.workers=0", "data.val=null")  # no other process, no validation
COLUMNS = {"steps": "d", "cpu": ".0f", "AbsRel": ".4f", "median": ".4f", "F1 3 px": ".4f", "F1": ".4f", "mIoU": ".4f"}
HEADER = """# Variants of the demo's recipe

{machine}, one thread. Made by

    {command}

Each variant is `configs/multitask/rooms.yaml` of that day with these overrides, trained from scratch on {train:,}
images and scored on {test} of rooms that it has not seen. CPU: seconds of the process for the training, user and
system, all threads; the neighbours on the core stretch them by up to a third. AbsRel: mean and median over images.
F1 3 px, F1: depth boundaries within 3 pixels (MoGe) and exact (Depth Pro).

| variant | overrides | steps | CPU, s | AbsRel | median | F1 3 px | F1 | mIoU |
|---|---|---|---|---|---|---|---|---|
"""


def scores(predictor: Predictor, data: Dataset) -> dict[str, float]:
    """AbsRel (mean and median over images), boundary F1 (MoGe's within 3 pixels, Depth Pro's) and mIoU."""
    samples = list(prefetch_samples(data))
    maps = list(predictor.stream_all(sample.image for sample in samples))
    items = ((s.name, m["depth"], s.depth, s.valid) for s, m in zip(samples, maps, strict=True))
    depth = evaluate(items, find_protocol("plain", data.depth_range), metrics=["boundary"])
    found = {
        "AbsRel": depth.mean["abs_rel"],
        "median": sorted(row["abs_rel"] for _, row in depth.rows)[len(depth.rows) // 2],
        "F1 3 px": depth.mean["boundary_moge_3"],
        "F1": depth.mean["boundary_depth_pro"],
    }
    if "labels" in predictor.card.outputs:
        k = len(data.classes)
        pairs = zip(samples, maps, strict=True)
        counts = ((s.name, count(m["labels"].argmax(0), s.labels, k, boundary=False)) for s, m in pairs)
        found["mIoU"] = summarise(counts, data.classes).mean["miou"]
    return found


def measure(rooms: Path, run: Path, overrides: list[str]) -> dict[str, Any]:
    """Trains a variant and scores it."""
    began = time.process_time()
    code = command(["train", str(CONFIG), *overrides, f"data.train.root={rooms}", *ALONE, f"output={run}"])
    if code:
        sys.exit(code)
    cpu = time.process_time() - began
    trained = densevit.Run(run)
    predictor = densevit.load(trained.last, precision="fp32", batch_size=16)
    return {"steps": trained.config["steps"], "cpu": cpu, **scores(predictor, open_rooms(rooms, "test"))}


def open_rooms(root: Path, split: str) -> Dataset:
    return open_dataset({"type": "rooms", "root": str(root), "split": split})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--report", type=Path)
    parser.add_argument("variants", nargs="+", metavar="NAME[:key=value]...")
    args = parser.parse_args()
    rows = []
    for variant in args.variants:
        name, *overrides = re.split(":(?=[a-z_.]+=)", variant)
        kept = args.work / f"{name}.json"
        if not kept.exists():
            row = measure(args.rooms.absolute(), args.work / name, overrides)
            write_text(kept, json.dumps({"name": name, "overrides": overrides, **row}))
        rows.append(json.loads(kept.read_text()))
        print(kept.read_text(), flush=True)
    if args.report:
        words = ["benchmarks/demo.py", "--rooms", "DIR", "--work", "DIR", *map(shlex.quote, args.variants)]
        train, test = (len(open_rooms(args.rooms, split)) for split in ("train", "test"))
        text = HEADER.format(machine=made_on(), command=" ".join(words), train=train, test=test)
        write_text(args.report, text + "".join(map(line, rows)))


def line(row: dict[str, Any]) -> str:
    cells = [row["name"], "`" + " ".join(row["overrides"]) + "`" if row["overrides"] else ""]
    return (
        "| "
        + " | ".join([*cells, *("" if row[key] is None else format(row[key], how) for key, how in COLUMNS.items())])
        + " |\n"
    )


if __name__ == "__main__":
    main()
