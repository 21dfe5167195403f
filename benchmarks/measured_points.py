"""What measured points bring to a map, beside interpolation between them, on real recordings.

    python benchmarks/measured_points.py SAMPLES CHECKPOINT [--frames N] [--counts N,N,...] [--seed N] [--report FILE]

AbsRel on measured pixels that were not given as points, mean over frames and, of up to 100 points, six draws. `fitted`
is the map of the checkpoint after its global fit, `linear` takes the nearest point outside of the triangles, `rbf` is
the thin plate of the logarithm over 32 neighbours (smoothing 1e-3; of at most 1,000 points). `model`, `good` and
`foreign` are what densevit makes of the points and of: the checkpoint's map; the ground truth, blurred and bent by 10%,
in place of a model that fits; a ramp.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np
from machine import made_on
from room_model import RECORDINGS, Recording, pairs
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator, RBFInterpolator

import densevit
from densevit.inference.image_input import ImageInput
from densevit.inference.point_fit import fit_globally, fit_to_points
from densevit.ops.points import MeasuredPoints, sample
from densevit.utils.atomic_io import write_text

ALL = RECORDINGS | {"kitti": Recording("rgb/*", "depth/*.png", 256, (721.5, 721.5, 609.6, 172.9))}
SCORED = 20_000  # pixels of a frame
FEW, DRAWS = 100, 6  # up to so many points, several draws of them a frame
COLUMNS = ("nearest", "linear", "rbf", "fitted", "model", "good", "foreign")


def bent(depth: np.ndarray) -> np.ndarray:
    """The ground truth with its gaps filled, blurred, and bent by a smooth field of 10%."""
    v, u = np.nonzero(depth)
    grid = np.stack(np.meshgrid(np.arange(depth.shape[1]), np.arange(depth.shape[0])), -1)
    whole = np.log(NearestNDInterpolator(np.stack([u, v], 1), depth[v, u])(grid))
    field = np.random.default_rng(0).normal(0, 0.1, (4, 5))
    bend = cv2.resize(field, depth.shape[::-1], interpolation=cv2.INTER_CUBIC)
    return np.exp(cv2.GaussianBlur(whole, (0, 0), 4) + bend)


def score(maps: dict[str, np.ndarray], depth: np.ndarray, count: int, draw: int) -> list[float]:
    v, u = np.nonzero(depth)
    order = np.random.default_rng(draw).permutation(len(v))
    chosen, scored = order[:count], order[max(count, len(v) - SCORED) :]
    places, queries = (np.stack([u[i], v[i]], 1).astype(float) for i in (chosen, scored))
    truth, points = depth[v[scored], u[scored]], MeasuredPoints(*places.T, depth[v[chosen], u[chosen]].astype(float))
    nearest = NearestNDInterpolator(places, points.depth)(queries)
    linear = LinearNDInterpolator(places, points.depth)(queries)
    rbf = np.full(len(truth), np.nan)
    if count <= 1000:
        rbf = np.exp(RBFInterpolator(places, np.log(points.depth), min(32, count), 1e-3)(queries))
    to_metres, _ = fit_globally(sample(maps["model"], points), points, "metric")
    found = [
        nearest,
        np.where(np.isfinite(linear), linear, nearest),
        rbf,
        to_metres(maps["model"])[v[scored], u[scored]],
    ]
    found += [fit_to_points(each, points, "metric")[0][v[scored], u[scored]] for each in maps.values()]
    return [float(np.mean(np.abs(each / truth - 1))) for each in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path)
    parser.add_argument("checkpoint")
    parser.add_argument("--frames", type=int, default=4, help="of each recording (default: %(default)s)")
    parser.add_argument("--counts", default="5,20,100,1000,8000,50000")
    parser.add_argument("--seed", type=int, default=0, help="of the first draw of points (default: %(default)s)")
    parser.add_argument("--report", type=Path, help="write the table to this file, too")
    args = parser.parse_args()
    predictor = densevit.load(args.checkpoint, precision="fp32")
    lines = ["| recording | points | " + " | ".join(COLUMNS) + " |", "| --- " * (len(COLUMNS) + 2) + "|"]
    for name, recording in ALL.items():
        frames = []
        for image, file in pairs(args.samples / name, recording, args.frames):
            depth = cv2.imread(str(file), cv2.IMREAD_UNCHANGED) / recording.depth_scale
            pixels = cv2.imread(str(image), cv2.IMREAD_COLOR_RGB)
            ramp = np.linspace(3, 1, depth.shape[0])[:, None].repeat(depth.shape[1], 1)
            model = predictor.predict_all(ImageInput(pixels, recording.camera))["depth"]
            frames.append(({"model": np.asarray(model), "good": bent(depth), "foreign": ramp}, depth))
        for count in map(int, args.counts.split(",")):
            draws = range(args.seed, args.seed + (DRAWS if count <= FEW else 1))
            scores = np.mean([score(maps, depth, count, draw) for maps, depth in frames for draw in draws], 0)
            lines.append(f"| {name} | {count:,} | " + " | ".join(f"{x:.5f}" for x in scores) + " |")
            print(lines[-1], flush=True)
    if args.report:
        write_text(args.report, made_on() + "\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
