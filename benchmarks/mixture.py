"""A mixture of three sources beside a specialist for each of its heads, at equal samples of each source.

    benchmarks/mixture.py --rooms DIR [--work DIR] [--report FILE] [key=value ...]

DIR is a data set of datasets/prepare_rooms.py. A third of its training scenes gives metric depth, a third disparity of
an unknown scale and shift of each image, a third labels. One model with three heads learns from all of them, and one
model for each head from its own third alone, with as many draws of it. Disparity has a head of its own, which the
metric source teaches, too: its specialist learns from both, as often.
Runs in --work go on where they were.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rooms_experiment import HEADS, config, train, write_folder

from densevit.data.datasets.base import open_dataset
from densevit.engine.logger import read_csv
from densevit.utils.atomic_io import write_text

SOURCES = {"metric": "metric", "stereo": "disparity", "street": "labels"}
TEACHERS = {"depth": ["metric"], "relative": ["metric", "stereo"], "labels": ["street"]}
SCORES = {"depth": ("abs_rel", "min"), "relative": ("abs_rel", "min"), "labels": ("miou", "max")}
BOUND = 0.03


def write_sources(rooms: Path, work: Path) -> dict[str, dict[str, Any]]:
    """The three sources as folders; every third scene each."""
    data = open_dataset({"type": "rooms", "root": str(rooms), "split": "train"})
    scenes = {scene: i for i, scene in enumerate(dict.fromkeys(data.scene(i) for i in range(len(data))))}
    for place, source in enumerate(SOURCES):
        own = [i for i in range(len(data)) if scenes[data.scene(i)] % 3 == place]
        names = write_folder(data, own, work / source, ["labels" if source == "street" else "depths"])
        draw = np.random.default_rng(0)
        for name in names.values() if source == "stereo" else ():
            depth = np.load(path := work / f"stereo/depths/{name}.npy")
            disparity = draw.uniform(5, 500) / np.maximum(depth, 1e-3) + draw.uniform(1, 100)
            np.save(path, np.where(depth > 0, disparity, 0).astype(np.float32))
    return {
        name: {"name": name, "data": {"type": "folder", "root": str(work / name)}, "weight": 1, "truth": truth}
        for name, truth in SOURCES.items()
    }


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

    def trained(name: str, heads: Sequence[str], drawn: Sequence[Any]) -> dict[str, float]:
        tree = config(args.rooms, heads, drawn, steps=args.steps, batch_size=4 * len(drawn), precision="fp32")
        return train(tree, args.work / name, args.overrides)

    joint = trained("mixture", list(HEADS), list(sources.values()))
    lines = []
    for head, teachers in TEACHERS.items():
        score, direction = SCORES[head]
        scores = trained(head, [head], [sources[name] for name in teachers])
        alone, together = scores[f"rooms/{score}"], joint[f"rooms/{head}/{score}"]
        change = together / alone - 1
        holds = (change if direction == "min" else -change) <= BOUND
        lines.append(
            f"| {head} | {', '.join(teachers)} | {score} | {alone:.4f} | {together:.4f} | {change:+.1%} | "
            f"{'yes' if holds else 'no'} |"
        )
    last = read_csv(args.work / "mixture/train.csv")[-1]
    drawn = ", ".join(f"{name} {last[f'{name}/samples']:,.0f}" for name in SOURCES)
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
