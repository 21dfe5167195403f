"""Fifty labelled images and a thousand without labels, beside the fifty alone: depth and classes of unseen rooms.

    benchmarks/pseudo_labels.py --rooms DIR [--work DIR] [--steps N] [--unlabelled N] [--report FILE]

DIR is a data set of datasets/prepare_rooms.py. Its training scenes are parted: a larger teacher learns from all frames
of 108 of them and stands for a published model; the other 132 are the user's. Of these, fifty frames of as many scenes
have ground truth, and a thousand others are images only. The baseline learns from the fifty; `densevit pseudo-label`
labels the thousand by the teacher, and a student of the baseline's size learns from both. Another student learns from
maps in which a tenth of each image's pixels, in squares, were replaced by another place of the map. All take as many
steps of as many images. Runs in --work go on where they were.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
from machine import made_on
from rooms_experiment import TASKS, config, run_command, train, write_folder

from densevit.data.datasets.base import open_dataset
from densevit.engine.logger import read_csv
from densevit.utils.atomic_io import write_text

LABELLED, SQUARE = 50, 8
OWN = 11  # of 20 scenes are the user's; the teacher learns from the others
SMALL, LARGE = (128, 5, 2), (192, 6, 3)  # channels, blocks and heads of student and teacher


def spoil(folder: Path, share: float = 0.1) -> None:
    """Replaces squares of maps, a tenth of the pixels, by other places of the same map."""
    for path in sorted(folder.glob("*.npz")):
        draw = np.random.default_rng(len(path.name) + sum(path.name.encode()))
        with np.load(path) as file:
            arrays = {key: file[key].copy() for key in file.files}
        h, w = next(iter(arrays.values())).shape
        for _ in range(round(share * h * w / SQUARE**2)):
            (y, v), (x, u) = (draw.integers(0, side - SQUARE, 2) for side in (h, w))
            for values in arrays.values():
                values[y : y + SQUARE, x : x + SQUARE] = values[v : v + SQUARE, u : u + SQUARE].copy()
        np.savez_compressed(path, **arrays)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rooms", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/pseudo_labels_benchmark"))
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--unlabelled", type=int, default=1000, metavar="N", help="images without labels")
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    work = args.work
    work.mkdir(parents=True, exist_ok=True)
    data = open_dataset({"type": "rooms", "root": str(args.rooms), "split": "train"})
    scenes: dict[str, list[int]] = {}
    for index in range(len(data)):
        scenes.setdefault(data.scene(index), []).append(index)
    parts: dict[bool, list[list[int]]] = {True: [], False: []}
    for number, frames in enumerate(scenes.values()):
        parts[number % 20 < OWN].append(frames)
    own_scenes = parts[True]
    labelled = [frames[0] for frames in own_scenes[:: max(1, len(own_scenes) // LABELLED)]][:LABELLED]
    others = sorted(index for frames in own_scenes for index in frames if index not in labelled)
    unlabelled = [others[i] for i in np.linspace(0, len(others) - 1, args.unlabelled).astype(int)]
    published = [index for frames in parts[False] for index in frames]
    write_folder(data, labelled, work / "labelled", ["depths", "labels"])
    write_folder(data, unlabelled, work / "unlabelled", [])
    write_folder(data, published, work / "published", ["depths", "labels"])
    foreign, own = (
        {"name": name, "data": {"type": "folder", "root": str(work / name)}, "weight": 1}
        for name in ("published", "labelled")
    )
    tasks = {"depth": TASKS["depth"], "labels": {**TASKS["labels"], "weight": 3}}

    def learn(name: str, *sources: object, size: tuple[int, int, int] = SMALL) -> None:
        run = {"steps": args.steps, "batch_size": 12, "precision": "bf16", "log_every": 50, "tasks": tasks}
        train(config(args.rooms, ["depth", "labels"], sources, size, **run), work / name)

    learn("teacher", foreign, size=LARGE)
    if not (work / "pseudo/images.jsonl").exists():
        images, output = str(work / "unlabelled/images"), str(work / "pseudo")
        run_command(
            "pseudo-label", str(work / "teacher"), images, "--output", output, "--batch-size", "8", "--overwrite"
        )
    if not (work / "spoiled").exists():
        shutil.copytree(work / "pseudo", work / "spoiled")
        spoil(work / "spoiled")
    for name, maps in (("student", "pseudo"), ("spoiled_student", "spoiled")):
        data_set = {"type": "pseudo_labels", "root": str(work / maps)}
        learn(name, own, {"name": "pseudo", "data": data_set, "weight": 4, "drop_worst": 0.1})
    learn("baseline", own)
    text = report(args, len(published), len(parts[False]))
    print(text)
    if args.report:
        write_text(args.report, text)


def report(args: argparse.Namespace, frames: int, scenes: int) -> str:
    """Of the models that are trained. `frames`, `scenes`: that the teacher learned from."""
    names = [n for n in ("baseline", "teacher", "student", "spoiled_student") if (args.work / n / "val.csv").exists()]
    found = {n: read_csv(args.work / n / "val.csv")[-1] for n in names}
    rows = {n: (row["rooms/depth/abs_rel"], row["rooms/labels/miou"]) for n, row in found.items()}
    (base, base_miou), (abs_rel, miou) = rows["baseline"], rows["student"]
    lines = [f"| {n.replace('_', ' ')} | {a:.4f} | {a / base:.2f} | {m:.4f} | {m - base_miou:+.4f} |"
             for n, (a, m) in rows.items()]  # fmt: skip
    goals = [
        f"AbsRel at most 0.85 of the baseline's: {'reached' if abs_rel <= 0.85 * base else 'missed'} "
        f"({abs_rel / base:.2f})",
        f"mIoU +0.03: {'reached' if miou >= base_miou + 0.03 else 'missed'} ({miou - base_miou:+.3f})",
    ]
    if "spoiled_student" in rows:
        spoiled, spoiled_miou = rows["spoiled_student"]
        holds = spoiled <= 1.02 * abs_rel and spoiled_miou >= 0.98 * miou
        goals.append(
            f"a tenth of the teacher's pixels spoiled costs under 2%: {'reached' if holds else 'missed'} "
            f"(AbsRel {spoiled / abs_rel - 1:+.1%}, mIoU {spoiled_miou / miou - 1:+.1%})"
        )
    return "\n".join(
        [
            f"# {LABELLED} labelled and {args.unlabelled} unlabelled images",
            "",
            f"{made_on()}, one thread, bf16, seed 0. Made by",
            f"`benchmarks/pseudo_labels.py --rooms demo/rooms --steps {args.steps} --unlabelled {args.unlabelled}`.",
            "Rooms seen at 96 x 128, scored on those of the test scenes. All models take as many steps of 12 images.",
            "The teacher, 192 wide and 6 blocks deep, stands for a published model: it learned from ground truth",
            f"of {frames} frames of {scenes} other scenes. Baseline and students are 128 wide and 5 blocks deep.",
            "The student draws 1 : 4, the worst 10% of the pixels dropped; a spoiled one learns from maps in which a",
            "tenth of the pixels, in squares, were replaced by another place of the map.",
            "",
            "| model | AbsRel | of baseline | mIoU | gain |",
            "|---|---|---|---|---|",
            *lines,
            "",
            f"Goals: {'; '.join(goals)}.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
