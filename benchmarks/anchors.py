"""What measured points bring: AbsRel of the fit of `export-depth --anchors` and of a trained `model.prompt`, on
rendered rooms and on real frames.

    benchmarks/anchors.py --work DIR [--samples DIR] [--report FILE] [key=value ...]

--work is what benchmarks/cameras.py leaves: its plain model, training and test images. Prompt blocks are trained on top
of that model, which stays as it is; DIR/prompt is taken as it is where it is complete. --samples holds
icsl_corridor and realsense_box, each `rgb/` or `color/` and `depth/` (PNG16, mm) under the same names. Points are drawn
at random among the measured pixels (seed 0) and scored on all other measured pixels.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cameras
import numpy as np
from jaxtyping import Bool, Float32, UInt8
from machine import made_on

from densevit import api
from densevit.data.datasets.rooms import Rooms
from densevit.data.io.readers import read_depth, read_image
from densevit.inference.camera import as_focal
from densevit.inference.predictor import Predictor
from densevit.ops.anchors import Anchors, fit_globally, fit_to_anchors, sample
from densevit.utils.atomic_io import write_text

COUNTS = (20, 100, 500, 2000)
# Name, steps, points an image: the second training goes on from the first.
TRAININGS = (("prompt-first", 3000, (20, 2000)), ("prompt", 2500, (10, 2500)))
FRAMES = 40  # of each set, evenly spread
FOCALS = {"icsl_corridor": 530.0, "realsense_box": 617.4}
FURTHEST = 8.0  # metres that these depth cameras measure


def config(work: Path, start: str, steps: int, count: tuple[int, int], seed: int) -> dict[str, Any]:
    """Prompt blocks on the plain model of benchmarks/cameras.py, which stays as it is."""
    plain = cameras.config(work, "none")
    draw = {"type": "sparse_depth", "count": list(count)}
    return {
        **plain,
        "model": {
            "init_from": str(work / start),
            "heads": {"depth": plain["model"]["heads"]["depth"]},
            "prompt": {"type": "points", "freeze_rest": True},
        },
        "tasks": {"depth": plain["tasks"]["depth"]},
        "data": {**plain["data"], "transforms": [*plain["data"]["transforms"], draw]},
        "optim": {"lr": 1e-3, "weight_decay": 0.01},
        "steps": steps,
        "save_every": steps,
        "seed": seed,
    }


def train(work: Path, overrides: Sequence[str]) -> None:
    start = "none"
    for seed, (name, steps, count) in enumerate(TRAININGS):
        cameras.train(work, name, config(work, start, steps, count, seed), overrides)
        start = name


class Frame(NamedTuple):
    image: UInt8[np.ndarray, "h w 3"]
    depth: Float32[np.ndarray, "h w"]
    focal: float | tuple[float, ...]

    @property
    def valid(self) -> Bool[np.ndarray, "h w"]:
        return np.asarray((self.depth > 0) & (self.depth < FURTHEST))


def rooms(root: Path) -> Iterator[Frame]:
    data = Rooms(root=root, split="test")
    for index in np.linspace(0, len(data) - 1, FRAMES).astype(int):
        found = data.read(int(index))
        assert found.depth is not None and found.intrinsics is not None
        yield Frame(found.image, found.depth, as_focal(found.intrinsics))


def real(folder: Path) -> Iterator[Frame]:
    """Frames that have an image and a depth map of one name."""
    images = next(folder / name for name in ("rgb", "color", "images") if (folder / name).is_dir())
    depths = {path.stem: path for path in sorted((folder / "depth").glob("*.png"))}
    pairs = [(path, depths[path.stem]) for path in sorted(images.iterdir()) if path.stem in depths]
    for index in np.linspace(0, len(pairs) - 1, min(FRAMES, len(pairs))).astype(int):
        image, depth = pairs[index]
        yield Frame(read_image(image), read_depth(depth, 1000.0), FOCALS[folder.name])


def abs_rel(prediction: np.ndarray, frame: Frame, counted: np.ndarray) -> float:
    truth = frame.depth[counted]
    return float(np.mean(np.abs(prediction[counted] - truth) / truth))


def scores(plain: Predictor, prompted: Predictor, frames: Sequence[Frame]) -> dict[str, float]:
    """The mean over frames: without points; by the global fit; by the fit and its local correction; by the prompt."""
    rows: dict[str, list[float]] = {}
    for frame in frames:
        prediction = plain(frame.image)
        places = np.random.default_rng(0).permutation(np.flatnonzero(frame.valid))
        rows.setdefault("no points", []).append(abs_rel(prediction, frame, frame.valid))
        rows.setdefault("prompt without points", []).append(float(np.abs(prompted(frame.image) - prediction).max()))
        for count in COUNTS:
            v, u = np.unravel_index(places[:count], frame.depth.shape)
            anchors = Anchors(u.astype(float), v.astype(float), frame.depth[v, u].astype(float))
            counted = frame.valid.copy()
            counted[v, u] = False
            maps = {
                "scaled": fit_globally(sample(prediction, anchors), anchors.depth, "metric")(prediction),
                "fit": fit_to_anchors(prediction, anchors, "metric").depth,
                "prompt": prompted(frame.image, anchors=anchors),
            }
            for name, values in maps.items():
                rows.setdefault(f"{count}, {name}", []).append(abs_rel(values, frame, counted))
    return {name: float(np.mean(values)) for name, values in rows.items()}


def report(results: dict[str, dict[str, float]]) -> str:
    columns = [name for name in next(iter(results.values())) if name != "prompt without points"]
    rows = [[name, *(f"{row[c]:.3f}" for c in columns)] for name, row in results.items()]
    apart = max(row["prompt without points"] for row in results.values())
    return f"""# What measured points bring

`python benchmarks/anchors.py --work DIR --samples DIR`, {made_on()}. AbsRel of the plain model of the report on
cameras: without points; scaled by their median ratio; by the whole fit of `export-depth --anchors`, with its local
correction; and with prompt blocks that were trained on top of that model, which stayed as it was
({" + ".join(f"{steps:,}" for _, steps, _ in TRAININGS)} steps of 8 rendered rooms at 50-75 degrees; the second training
goes on from the first). Up to {FRAMES} frames of each set; points are drawn at random among the measured pixels, and
scored on all others. The real sets are indoor frames of depth cameras, measured up to {FURTHEST:g} m.

{cameras.markdown_table(["set", *columns], rows)}

Without points the model with prompt blocks differs from the plain one by {apart:.1g} m at most.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="what benchmarks/cameras.py leaves")
    parser.add_argument("--samples", type=Path, help="folder with icsl_corridor and realsense_box")
    parser.add_argument("--report", type=Path, help="Markdown file")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the training configs")
    args = parser.parse_args()
    sets = {"rooms, 50-75 degrees": list(rooms(args.work / "test-near-50-75"))}
    sets |= {
        f"rooms, {angles} degrees": list(rooms(args.work / f"test-near-{angles}")) for angles in ("30-45", "85-100")
    }
    if args.samples:
        sets |= {name: list(real(args.samples / name)) for name in FOCALS}
    train(args.work, args.overrides)
    plain, prompted = (api.load(args.work / name, precision="fp32") for name in ("none", "prompt"))
    results = {name: scores(plain, prompted, frames) for name, frames in sets.items()}
    text = report(results)
    print(text)
    if args.report:
        write_text(args.report, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
