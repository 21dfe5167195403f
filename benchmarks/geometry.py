"""Normals and uncertainty of a small model on rendered rooms: `benchmarks/*-geometry.md`.

    python benchmarks/geometry.py --work DIR [--steps N]

Trains on the rooms that `benchmarks/cameras.py --work DIR --only render` leaves, renders others with exact normals,
calibrates intervals on some of them (val), scores the rest (test) and prints the report. What is complete in --work is
taken as it is.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from densevit.cli.main import main as command

SIZE = (96, 128)
SCENES = {"train": 0, "val": 160, "test": 160}
FRAMES = 4
SEED = 8  # not that of any other rooms in --work
STEPS = 9_000

CONFIG = """
model:
  camera: rays
  encoder: {{type: vit, dim: 192, depth: 6, heads: 3, patch_size: 16, image_size: [96, 128], stem: conv,
             stem_features: [4], out_indices: [1, 3, 5], positions: sincos, init: jax}}
  decoder: {{type: dpt, channels: 32}}
  heads:
    depth: {{type: metric, activation: log, min_depth: 0.1, max_depth: 13, initial_depth: 2, hidden: 0,
             uncertainty: laplace}}
    normals: {{type: normals, hidden: 0}}
  resize: {{mode: fixed, size: [96, 128], interpolation: area}}
tasks:
  depth: {{losses: [{{type: silog, variance_focus: 0.5}}, {{type: log_l1}}]}}
  normals: {{type: normals, losses: [{{type: angular}}]}}
data:
  train: {{type: rooms, root: {work}/train}}
  val: {{type: rooms, root: {work}/geometry-rooms, split: val}}
  transforms: [{{type: resize, size: [96, 128]}}, {{type: hflip}}, {{type: color, p: 0.3}}]
  workers: 0
optim: {{lr: 1e-3, weight_decay: 0.05}}
schedule: {{type: cosine, warmup: 0.03}}
steps: {steps}
batch_size: 8
ema: 0.99
validate_every: {steps}
output: {work}/geometry
"""


def render(work: Path) -> None:
    options = [word for split, count in SCENES.items() for word in (f"--{split}-scenes", count)]
    options += ["--frames", FRAMES, "--size", f"{SIZE[0]}x{SIZE[1]}", "--seed", SEED, "--mount", "level"]
    options += ["--fov", 50, 75, "--normals", "--root", work / "geometry-rooms"]
    script = Path(__file__).parents[1] / "datasets/prepare_rooms.py"
    subprocess.run([sys.executable, str(script), *map(str, options)], check=True)


def train(work: Path, steps: int) -> None:
    if (work / "geometry/checkpoints/last").exists():
        return
    config = work / "geometry.yaml"
    config.write_text(CONFIG.format(work=work, steps=steps))
    run("train", str(config))


def calibrate(work: Path) -> None:
    if (work / "geometry-calibrated").exists():
        return
    data = ["--data", "rooms", "--root", str(work / "geometry-rooms"), "--split", "val"]
    run("calibrate-uncertainty", str(work / "geometry"), *data, "--output", str(work / "geometry-calibrated"))


def scores(work: Path, evaluator: str, *options: str) -> dict[str, float]:
    """The metrics of one evaluation of the test rooms."""
    out = work / "geometry-scores" / "-".join([evaluator, *(word.strip("-") for word in options)])
    data = ["--data", "rooms", "--root", str(work / "geometry-rooms"), "--split", "test", "--output", str(out)]
    run(evaluator, str(work / "geometry-calibrated"), *data, *options)
    found: dict[str, float] = json.loads((out / "metrics.json").read_text())["metrics"]
    return found


def run(*words: str) -> None:
    if command([*words]):
        sys.exit(1)


def report(work: Path) -> None:
    head, own = scores(work, "eval-normals"), scores(work, "eval-normals", "--head", "depth")
    depth = scores(work, "eval-depth")
    print("| normals (dsine) | mean | median | < 11.25 | < 30 |\n|---|---|---|---|---|")
    for name, row in (("head", head), ("of its own depth", own)):
        cells = (row["mean"], row["median"], row["within_11.25"], row["within_30"])
        print(f"| {name} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    print("\n| depth | value |\n|---|---|")
    for name, value in depth.items():
        if name.startswith(("abs_rel", "coverage", "ause_", "aurg_")):
            print(f"| `{name}` | {value:.4f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="what benchmarks/cameras.py leaves")
    parser.add_argument("--steps", type=int, default=STEPS)
    args = parser.parse_args()
    work = args.work.absolute()
    render(work)
    train(work, args.steps)
    calibrate(work)
    report(work)


if __name__ == "__main__":
    main()
