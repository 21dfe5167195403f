"""What measured points bring: AbsRel of `export-depth --anchors` on rendered rooms and on real frames.

    benchmarks/anchors.py --work DIR [--samples DIR] [--report FILE]

--work is what benchmarks/cameras.py leaves: its canonical model and its test images. --samples holds
icsl_corridor and realsense_box, each `rgb/` or `color/` and `depth/` (PNG16, mm) under the same names. Points are drawn
at random among the measured pixels (seed 0) and scored on all other measured pixels.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

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

COUNTS = (20, 100, 500)
FRAMES = 8  # of each set, evenly spread
FOCALS = {"icsl_corridor": 530.0, "realsense_box": 617.4}
FURTHEST = 8.0  # metres that these depth cameras measure


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


def scores(predictor: Predictor, frames: Sequence[Frame]) -> dict[str, float]:
    """The mean over frames: without points; by the global fit alone; and with the local correction."""
    rows: dict[str, list[float]] = {}
    for frame in frames:
        predictor.focal = frame.focal
        prediction = predictor(frame.image)
        places = np.random.default_rng(0).permutation(np.flatnonzero(frame.valid))
        rows.setdefault("no points", []).append(abs_rel(prediction, frame, frame.valid))
        for count in COUNTS:
            v, u = np.unravel_index(places[:count], frame.depth.shape)
            anchors = Anchors(u.astype(float), v.astype(float), frame.depth[v, u].astype(float))
            counted = frame.valid.copy()
            counted[v, u] = False
            alone = fit_globally(sample(prediction, anchors), anchors.depth, "metric")(prediction)
            rows.setdefault(f"{count}, fit", []).append(abs_rel(alone, frame, counted))
            fitted = fit_to_anchors(prediction, anchors, "metric").depth
            rows.setdefault(f"{count}, corrected", []).append(abs_rel(fitted, frame, counted))
    return {name: float(np.mean(values)) for name, values in rows.items()}


def report(results: dict[str, dict[str, float]]) -> str:
    columns = list(next(iter(results.values())))
    lines = [["set", *columns], ["---"] * (1 + len(columns))]
    lines += [[name, *(f"{row[c]:.3f}" if c in row else "" for c in columns)] for name, row in results.items()]
    table = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return f"""# What measured points bring

`python benchmarks/anchors.py --work DIR --samples DIR`, {made_on()}. AbsRel of the small model with
`camera: canonical` of the report on cameras, trained on rendered rooms, on {FRAMES} frames of each set. Points are
drawn at random among the measured pixels, and scored on all others. The real sets are indoor frames of depth cameras,
measured up to {FURTHEST:g} m; a model trained on 1,600 rendered images is a poor one there, and that is shown, too.

{table}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="what benchmarks/cameras.py leaves")
    parser.add_argument("--samples", type=Path, help="folder with icsl_corridor and realsense_box")
    parser.add_argument("--report", type=Path, help="Markdown file")
    args = parser.parse_args()
    sets = {"rooms, 50-75 degrees": list(rooms(args.work / "test-50-75"))}
    sets |= {"rooms, 85-100 degrees": list(rooms(args.work / "test-85-100"))}
    if args.samples:
        sets |= {name: list(real(args.samples / name)) for name in FOCALS}
    predictor = api.load(args.work / "canonical", precision="fp32")
    results = {name: scores(predictor, frames) for name, frames in sets.items()}
    text = report(results)
    print(text)
    if args.report:
        write_text(args.report, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
