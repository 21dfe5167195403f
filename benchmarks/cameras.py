"""Lenses that training did not show: a plain model beside `model.camera: canonical` and `rays`, on rendered rooms.

    benchmarks/cameras.py --work DIR [--only STAGE] [--report FILE] [key=value ...]

Renders rooms at 50-75 degrees for training and at several angles for testing, each test frame from two poses, trains
the three models on the same images in the same order, and scores them: AbsRel by angle; the same image resized and
cropped; the distance between the point clouds of two poses of a place. What is complete in --work is taken as it is.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import cv2
import numpy as np
import yaml
from jaxtyping import Float
from machine import made_on
from scipy.spatial import KDTree

from densevit import api
from densevit.cli.main import main as command
from densevit.data.datasets.rooms import Rooms
from densevit.evaluation.bootstrap import bootstrap_means, scenes_of
from densevit.inference.predictor import Predictor
from densevit.ops.geometry import backproject, field_of_view
from densevit.structures import Sample
from densevit.utils.atomic_io import write_text

ROOT = Path(__file__).parents[1]
ANGLES = {"30-45": (30, 45), "50-75": (50, 75), "85-100": (85, 100)}
TRAINED = "50-75"
SIZE = (96, 128)  # of the network's input; images are twice as large, so that zooms into them stay sharp
MODES = ("none", "canonical", "rays")
STAGES = ("render", *MODES, "score", "focal")
SCENES = {"train": 4800, "test": 240}
FRAMES = 4  # of a room; in testing two of them from two poses each
MOUNT = "level"  # what an image shows is then ambiguous without the lens
RESIZES = {"resized 0.5 x": 0.5, "resized 2 x": 2.0}
CROPS = {"cropped to 9/10": 0.9, "cropped to 3/4": 0.75}  # of the sides, about the middle
BASELINES = {"near": (0.3, 1.2), "far": (1.0, 2.0), "farther": (2.0, 3.0)}  # metres between two poses of a place
METRIC = {"none": "depth", "canonical": "intrinsics", "rays": "intrinsics"}


class Round(NamedTuple):
    """A training that begins with the weights of the round before.

    All three models see the same zooms. To those that know the lens they are a lens's; to the plain one depth is
    divided by them, as the recipes do: otherwise metres would be ambiguous.
    """

    rooms: str
    steps: int
    lr: float
    zoom: float  # the largest
    zoomed: float  # share of the images


ROUNDS = (
    Round("train", 18_000, 1e-3, 2.0, 0.7),
    Round("train-2", 10_000, 5e-4, 2.0, 0.7),
    Round("train", 9_000, 5e-4, 2.2, 0.9),
    Round("train-2", 9_000, 5e-4, 2.2, 0.9),
)


def config(work: Path, mode: str, part: Round = ROUNDS[0]) -> dict[str, Any]:
    """The network, losses and optimiser of the demo (configs/multitask/rooms.yaml), for depth and normals."""
    size = list(SIZE)
    return {
        "model": {
            "camera": mode,
            "encoder": {
                "type": "vit", "dim": 192, "depth": 6, "heads": 3, "patch_size": 16, "image_size": [*size],
                "stem": "conv", "stem_features": [4], "out_indices": [1, 3, 5], "positions": "sincos", "init": "jax",
            },
            "decoder": {"type": "dpt", "channels": 32},
            "heads": {
                "depth": {
                    "type": "metric", "activation": "log", "min_depth": 0.1, "max_depth": 30, "initial_depth": 2,
                    "hidden": 0,
                },
                "normals": {"type": "normals", "hidden": 0},
            },
            "resize": {"mode": "fixed", "size": [*size], "interpolation": "area"},
        },
        "tasks": {
            "depth": {"losses": [{"type": "silog", "variance_focus": 0.5}, {"type": "log_l1"}]},
            "normals": {"type": "normals", "losses": [{"type": "angular"}]},
        },
        "data": {
            "train": {"type": "rooms", "root": str(work / part.rooms)},
            "transforms": [
                {"type": "resize", "size": [*size]},
                {"type": "random_scale", "range": [1.0, part.zoom], "metric": METRIC[mode], "p": part.zoomed},
                {"type": "center_crop", "size": [*size]},
                {"type": "hflip"},
                {"type": "color", "p": 0.3},
            ],
            "workers": 0,
        },
        "optim": {"lr": part.lr, "weight_decay": 0.05},
        "schedule": {"type": "cosine", "warmup": 0.03},
        "ema": 0.99,
        "steps": part.steps,
        "batch_size": 8,
        "save_every": part.steps,
        "log_every": 100,
    }  # fmt: skip


def render(work: Path) -> None:
    """Rooms for training, and others for each range of angles and of baselines in testing."""
    sets = {}
    for seed, rooms in enumerate(dict.fromkeys(part.rooms for part in ROUNDS), 1):
        sets[rooms] = ("train", TRAINED, ["--frames", FRAMES, "--seed", seed, "--normals"])
    for (distance, baseline), name in product(BASELINES.items(), ANGLES):
        options = ["--frames", FRAMES // 2, "--seed", 8, "--views", 2, "--baseline", *baseline]
        sets[f"test-{distance}-{name}"] = ("test", name, options)
    for folder, (split, angles, options) in sets.items():
        counts = {"train": 0, "val": 0, "test": 0, split: SCENES[split]}
        words = [word for name, count in counts.items() for word in (f"--{name}-scenes", count)]
        words += ["--size", f"{2 * SIZE[0]}x{2 * SIZE[1]}", "--fov", *ANGLES[angles], "--mount", MOUNT, *options]
        words += ["--root", work / folder, "--workers", 2]
        subprocess.run([sys.executable, str(ROOT / "datasets/prepare_rooms.py"), *map(str, words)], check=True)


def train(work: Path, name: str, run: dict[str, Any], overrides: Sequence[str]) -> None:
    """Trains into `work / name`, unless that was done."""
    if (work / name / "checkpoints/last").exists():
        return
    path = work / f"{name}.yaml"
    write_text(path, yaml.safe_dump(run | {"output": str(work / name)}))
    if command(["train", str(path), *overrides]):
        raise SystemExit(f"the training of {name} failed.")


def train_rounds(work: Path, mode: str, overrides: Sequence[str]) -> None:
    """Trains into `work / mode`, by way of `work / f"{mode}-1"` and so on."""
    before = None
    for number, part in enumerate(ROUNDS, 1):
        name = mode if part is ROUNDS[-1] else f"{mode}-{number}"
        run = config(work, mode, part)
        if before:
            run["model"]["init_from"] = str(work / before)
        train(work, name, run, overrides)
        before = name


def estimated_focals(work: Path, overrides: Sequence[str]) -> str:
    """A head that estimates the focal length, learned in 1,200 steps from the canonical model, as a table."""
    run = config(work, "canonical", ROUNDS[0]._replace(steps=1200, lr=5e-4))
    run["model"] |= {
        "init_from": str(work / "canonical"),
        "decoders": {"focal": {"type": "pool", "pool": "average"}},
    }
    run["model"]["heads"]["focal"] = {"type": "focal"}
    run["tasks"]["focal"] = {"type": "focal", "weight": 0.3}
    train(work, "focal", run, overrides)
    predictor = api.load(work / "focal", precision="fp32")
    middle = sum(ANGLES[TRAINED]) / 2
    lines = [
        f"| | error of the field of view | of always {middle:g} | AbsRel, lens known | estimated |",
        "|" + " --- |" * 5,
    ]
    for angles in ANGLES:
        rows = []
        for sample, known in predictions(predictor, Rooms(root=work / f"test-near-{angles}", split="test")):
            width = sample.image.shape[1]
            truth = field_of_view(width, focal_of(sample)[0])
            predictor.focal = None
            found = field_of_view(width, predictor.estimate_focal(sample.image))
            scores = (abs_rel(known, sample), abs_rel(predictor(sample.image), sample))
            rows.append((abs(found - truth), abs(middle - truth), *scores))
        error, usual, lens, guess = np.mean(rows, axis=0)
        lines.append(f"| {angles} | {error:.1f} | {usual:.1f} | {lens:.3f} | {guess:.3f} |")
    return "\n".join(lines)


def predictions(predictor: Predictor, data: Rooms) -> Iterator[tuple[Sample, Float[np.ndarray, "h w"]]]:
    for index in range(len(data)):
        sample = data.read(index)
        predictor.focal = focal_of(sample)
        yield sample, predictor(sample.image)


def focal_of(sample: Sample) -> tuple[float, ...]:
    assert sample.intrinsics is not None
    k = sample.intrinsics
    return float(k[0, 0]), float(k[1, 1]), float(k[0, 2]), float(k[1, 2])


def abs_rel(prediction: np.ndarray, sample: Sample) -> float:
    assert sample.depth is not None
    depth, valid = sample.depth, sample.valid
    return float(np.mean(np.abs(prediction[valid] - depth[valid]) / depth[valid]))


def changed(predictor: Predictor, data: Rooms) -> dict[str, float]:
    """The change of metres of the same image resized or cropped, in percent: of one image, and of all images together.

    An image's change is the median ratio of its pixels; of these the median, without sign and with.
    """

    def ratio(sample: Sample, other: np.ndarray, base: np.ndarray) -> float:
        same = cv2.resize(other, base.shape[::-1], interpolation=cv2.INTER_AREA)
        return float(np.median(same / base))

    found: dict[str, list[float]] = {name: [] for name in (*RESIZES, *CROPS)}
    for sample, base in predictions(predictor, data):
        h, w = base.shape
        fx, fy, cx, cy = focal_of(sample)
        for name, factor in RESIZES.items():
            image = cv2.resize(sample.image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
            middle = (image.shape[1] - 1) / 2, (image.shape[0] - 1) / 2
            predictor.focal = (fx * factor, fy * factor, *middle)
            found[name].append(ratio(sample, predictor(image), base))
        for name, share in CROPS.items():
            top, left = (round(side * (1 - share) / 2) for side in (h, w))
            predictor.focal = (fx, fy, cx - left, cy - top)
            part = predictor(np.ascontiguousarray(sample.image[top : h - top, left : w - left]))
            found[name].append(float(np.median(part / base[top : h - top, left : w - left])))
    one = {name: 100 * median(abs(value - 1) for value in values) for name, values in found.items()}
    return one | {f"{name}, all": 100 * (median(values) - 1) for name, values in found.items()}


def cloud_distance(predictor: Predictor, data: Rooms, least: float) -> float:
    """The median distance in metres between the clouds of two poses of a place, where both see it.

    Of poses at least so many metres apart: where furniture leaves no floor for the other pose, it is the same one.
    """
    clouds = [(sample, cloud(sample, prediction)) for sample, prediction in predictions(predictor, data)]
    found = []
    for (one, near), (two, far) in zip(clouds[::2], clouds[1::2], strict=True):
        seen = overlap(one, two)
        if seen.sum() > 50 and apart(one, two) >= least:
            distances, _ = KDTree(far.reshape(-1, 3)).query(near[seen])
            found.append(float(np.median(distances)))
    return median(found)


def cloud(sample: Sample, depth: np.ndarray) -> Float[np.ndarray, "h w 3"]:
    """Of every second pixel, in world coordinates."""
    assert sample.intrinsics is not None and sample.pose is not None
    points = backproject(depth.astype(np.float64), sample.intrinsics)
    return points[::2, ::2] @ sample.pose[:3, :3].T + sample.pose[:3, 3]


def apart(one: Sample, two: Sample) -> float:
    """Metres between the cameras, along the floor."""
    assert one.pose is not None and two.pose is not None
    return float(np.hypot(*(one.pose - two.pose)[:2, 3]))


def overlap(one: Sample, two: Sample) -> np.ndarray:
    """Which points of one cloud are such that the other image sees the true point, too, within 5 cm."""
    assert one.depth is not None and two.depth is not None
    truth = cloud(one, one.depth)
    distances, _ = KDTree(cloud(two, two.depth).reshape(-1, 3)).query(truth)
    return np.asarray((distances < 0.05) & one.valid[::2, ::2])


def score(work: Path) -> dict[str, dict[str, Any]]:
    """The scores of each trained model; those that are there already are taken as they are."""
    results: dict[str, dict[str, Any]] = {}
    for mode in MODES:
        kept = work / f"scores-{mode}.json"
        if not kept.exists() and (work / mode / "checkpoints/last").exists():
            write_text(kept, json.dumps(score_one(work, mode), indent=1))
        if kept.exists():
            results[mode] = json.loads(kept.read_text())
    return results


def score_one(work: Path, mode: str) -> dict[str, Any]:
    predictor = api.load(work / mode, precision="fp32")
    row: dict[str, Any] = {}
    for angles in ANGLES:
        sets = {name: Rooms(root=work / f"test-{name}-{angles}", split="test") for name in BASELINES}
        row[f"frames {angles}"] = frames = [abs_rel(p, s) for s, p in predictions(predictor, sets["near"])]
        row[f"abs_rel {angles}"] = float(np.mean(frames))
        for distance, (least, _) in BASELINES.items():
            row[f"{distance} {angles}"] = cloud_distance(predictor, sets[distance], least)
    data = Rooms(root=work / f"test-near-{TRAINED}", split="test")
    return row | changed(predictor, data)


def shares(results: dict[str, dict[str, Any]]) -> str:
    """AbsRel as a share of the plain model's, with its 95% interval over rooms, as a table."""
    cells: dict[str, dict[str, Any]] = {mode: {} for mode in results if mode != "none"}
    for angles in ANGLES:
        frames = zip(*(row[f"frames {angles}"] for row in results.values()), strict=True)
        rows = [(f"{i // FRAMES}/{i}", dict(zip(results, errors, strict=True))) for i, errors in enumerate(frames)]
        redrawn = bootstrap_means(rows, results, scenes_of(name for name, _ in rows))
        for mode, row in cells.items():
            share = results[mode][f"abs_rel {angles}"] / results["none"][f"abs_rel {angles}"]
            low, high = redrawn[mode]._replace(values=redrawn[mode].values / redrawn["none"].values).interval()
            row[angles] = f"{share:.2f} ({low:.2f} to {high:.2f})"
    return table(cells, list(ANGLES), str)


def table(results: dict[str, dict[str, Any]], columns: Sequence[str], form: Callable[[float], str]) -> str:
    rows = [[f"`{mode}`", *(form(row[name]) for name in columns)] for mode, row in results.items()]
    return markdown_table(["camera", *columns], rows)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *rows])


def report(results: dict[str, dict[str, Any]]) -> str:
    angles = list(ANGLES)
    train, test = SCENES["train"], SCENES["test"]
    changes = [*RESIZES, *CROPS]
    together = {mode: {name: row[f"{name}, all"] for name in changes} for mode, row in results.items()}
    training = markdown_table(
        ["rooms", "steps of 8", "first learning rate", "zooms up to", "of the images"],
        [
            [f"`{rooms}`", f"{steps:,}", f"{lr:g}", f"{zoom:g} x", f"{zoomed:.0%}"]
            for rooms, steps, lr, zoom, zoomed in ROUNDS
        ],
    )
    return f"""# Lenses that training did not show

`python benchmarks/cameras.py --work DIR`, {made_on()}. The network, losses and optimiser of
`configs/multitask/rooms.yaml` (a ViT/16 of 3.6 M parameters with DPT, from nothing, at 96 x 128) for depth and
normals. The same images in the same order with the same zooms into their middle for all three: they divide depth for
the plain model and lengthen the lens for the others. Each round begins with the weights of the one before; each folder
of rooms has {FRAMES * train:,} images of {train:,} rendered rooms at {TRAINED} degrees:

{training}

{FRAMES * test} test frames of {test} other rooms for each range of angles. Images are of 192 x 256. The camera is
level, 0.4 m over the floor, as on a small robot. Rendered rooms are no photographs: the ratios tell, the numbers do not
carry over.

## AbsRel by horizontal field of view (trained: {TRAINED})

{table(results, [f"abs_rel {name}" for name in angles], lambda value: f"{value:.3f}")}

As a share of the plain model's, with 95% intervals over rooms (bootstrap):

{shares(results)}

## Distance between two poses' clouds where both see the place, median in metres

{"; ".join(f"`{name}`: poses {low:g} to {high:g} m apart" for name, (low, high) in BASELINES.items())}.

{table(results, [f"{distance} {name}" for distance, name in product(BASELINES, angles)], lambda value: f"{value:.3f}")}

## The same image resized or cropped: change of metres

Of one image (the median without sign of the images' changes, each the median over its pixels):

{table(results, changes, "{:.1f}%".format)}

Of all images together (the median of the same changes with their sign):

{table(together, changes, "{:+.1f}%".format)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for images, models and scores")
    parser.add_argument("--only", choices=STAGES, help="one stage; default: all that are not there yet")
    parser.add_argument("--report", type=Path, help="Markdown file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the training configs")
    args = parser.parse_args()
    stages = (args.only,) if args.only else STAGES
    if "render" in stages:
        render(args.work)
    for mode in MODES:
        if mode in stages:
            train_rounds(args.work, mode, args.overrides)
    if "focal" in stages:
        print(estimated_focals(args.work, args.overrides))
    if "score" in stages:
        text = report(score(args.work))
        print(text)
        if args.report:
            write_text(args.report, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
