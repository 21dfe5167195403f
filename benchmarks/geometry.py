"""Normals and uncertainty of a small model on rendered rooms: `benchmarks/*-geometry.md`.

    python benchmarks/geometry.py data FOLDER       renders the rooms, with exact normals
    python benchmarks/geometry.py train FOLDER plain|laplace
    python benchmarks/geometry.py report FOLDER     scores both, calibrates intervals on val, prints the report

Training rooms, those that intervals are calibrated on (val) and those that are scored (test) share none.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from densevit.cli.main import main as command

SIZE = (96, 128)
SCENES = {"train": 3600, "val": 80, "test": 80}
FRAMES = 4

CONFIG = """
model:
  camera: rays
  encoder: {{type: vit, dim: 192, depth: 6, heads: 3, patch_size: 16, image_size: [96, 128], stem: conv,
             stem_features: [4], out_indices: [1, 3, 5], positions: sincos, init: jax}}
  decoder: {{type: dpt, channels: 32}}
  heads:
    depth: {{type: metric, activation: log, min_depth: 0.1, max_depth: 13, initial_depth: 2, hidden: 0{uncertainty}}}
    normals: {{type: normals, hidden: 0}}
  resize: {{mode: fixed, size: [96, 128], interpolation: area}}
tasks:
  depth: {{losses: [{{type: silog, variance_focus: 0.5}}, {{type: log_l1}}]}}
  normals: {{type: normals, losses: [{{type: angular}}]}}
data:
  train: {{type: rooms, root: {root}, split: train}}
  val: {{type: rooms, root: {root}, split: val}}
  transforms: [{{type: resize, size: [96, 128]}}, {{type: hflip}}, {{type: color, p: 0.3}}]
  workers: 0
optim: {{lr: 1e-3, weight_decay: 0.05}}
schedule: {{type: cosine, warmup: 0.03}}
steps: {steps}
batch_size: 8
ema: 0.99
validate_every: {steps}
output: {output}
"""


def render(folder: Path) -> None:
    scenes = [word for split, count in SCENES.items() for word in (f"--{split}-scenes", str(count))]
    size = f"{SIZE[0]}x{SIZE[1]}"
    script = Path(__file__).parents[1] / "datasets/prepare_rooms.py"
    more = ["--frames", str(FRAMES), "--size", size, "--mount", "level", "--fov", "50", "75", "--normals"]
    subprocess.run([sys.executable, str(script), "--root", str(folder / "rooms"), *scenes, *more], check=True)


def train(folder: Path, name: str, steps: int) -> None:
    uncertainty = ", uncertainty: laplace" if name == "laplace" else ""
    config = folder / f"{name}.yaml"
    config.write_text(CONFIG.format(root=folder / "rooms", output=folder / name, uncertainty=uncertainty, steps=steps))
    if command(["train", str(config)]):
        sys.exit(1)


def scores(folder: Path, name: str, evaluator: str, *options: str) -> dict[str, float]:
    """The metrics of one evaluation of the test rooms."""
    out = folder / "scores" / "-".join([name, evaluator, *(word.strip("-") for word in options)])
    data = ["--data", "rooms", "--root", str(folder / "rooms"), "--split", "test", "--output", str(out)]
    if command([evaluator, str(folder / name), *data, *options]):
        sys.exit(1)
    found: dict[str, float] = json.loads((out / "metrics.json").read_text())["metrics"]
    return found


def report(folder: Path) -> None:
    """Calibrates on val, scores both models on test, and prints the tables."""
    calibrated, data = folder / "calibrated", ["--data", "rooms", "--root", str(folder / "rooms")]
    if not calibrated.exists():
        words = ["calibrate-uncertainty", str(folder / "laplace"), *data, "--split", "val", "--output", str(calibrated)]
        if command(words):
            sys.exit(1)
    head, own = scores(folder, "laplace", "eval-normals"), scores(folder, "laplace", "eval-normals", "--head", "depth")
    print("| normals (dsine) | mean | median | < 11.25 | < 30 |\n|---|---|---|---|---|")
    for name, row in (("head", head), ("of its own depth", own)):
        cells = (row["mean"], row["median"], row["within_11.25"], row["within_30"])
        print(f"| {name} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    plain, laplace = scores(folder, "plain", "eval-depth"), scores(folder, "calibrated", "eval-depth")
    print(f"\nAbsRel: {plain['abs_rel']:.4f} without uncertainty, {laplace['abs_rel']:.4f} with it")
    print("\n| | value |\n|---|---|")
    for name, value in laplace.items():
        if name.startswith(("coverage", "ause_", "aurg_")):
            print(f"| `{name}` | {value:.4f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["data", "train", "report"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", nargs="?", choices=["plain", "laplace"])
    parser.add_argument("--steps", type=int, default=5000)
    args = parser.parse_args()
    folder = args.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if args.what == "data":
        render(folder)
    elif args.what == "train":
        train(folder, args.name, args.steps)
    else:
        report(folder)


if __name__ == "__main__":
    main()
