"""The model in the box on real recordings: AbsRel after scale and shift, and in metres with the known lens.

    python benchmarks/room_model.py SAMPLES CHECKPOINT [CHECKPOINT ...] [--frames N] [--portrait] [--report FILE]

SAMPLES holds a folder for each of RECORDINGS. Each image is scored by itself: `fitted` is AbsRel after the scale and
the shift of least squares, `constant` that of the image's own median depth, `metres` that of the prediction as it is.
The ratio is `fitted` over `constant`, of the recording's means; below 1 the model tells more than one number does.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from jaxtyping import Float
from machine import made_on

import densevit
from densevit.inference.image_input import ImageInput
from densevit.utils.atomic_io import write_text

Depth = Float[np.ndarray, " n"]


class Recording(NamedTuple):
    """Where pairs of image and depth lie, stored units per metre, and fx, fy, cx, cy in pixels."""

    images: str
    depths: str
    depth_scale: float
    camera: tuple[float, float, float, float]


RECORDINGS = {
    "nyu_v2": Recording("rgb/*.jpg", "depth/*.png", 1000, (518.86, 519.47, 325.58, 253.74)),
    "icsl_corridor": Recording("rgb/*.jpg", "depth/*.png", 1000, (530.0, 530.0, 319.5, 239.5)),
    "tum_fr3_cabinet": Recording("rgb/*.jpg", "depth/*.png", 5000, (535.4, 539.2, 320.1, 247.6)),
    "realsense_box": Recording("rgb/*.jpg", "depth/*.png", 1000, (617.25, 617.55, 317.39, 245.98)),
    "shelf_poses": Recording("*.color.jpg", "*.depth.png", 1000, (615.195, 615.195, 298.443, 247.519)),
}


class Scores(NamedTuple):
    """Means over images."""

    constant: float
    fitted: float
    metres: float

    @property
    def ratio(self) -> float:
        return self.fitted / self.constant


def pairs(folder: Path, recording: Recording, frames: int) -> Iterator[tuple[Path, Path]]:
    """At most `frames` pairs, evenly spaced."""
    found = list(zip(sorted(folder.glob(recording.images)), sorted(folder.glob(recording.depths)), strict=True))
    if not found:
        raise SystemExit(f"{folder}: no {recording.images}.")
    yield from (found[i] for i in np.unique(np.linspace(0, len(found) - 1, frames).round().astype(int)))


def abs_rel(prediction: Depth, depth: Depth) -> float:
    return float(np.mean(np.abs(prediction - depth) / depth))


def fit(prediction: Depth, depth: Depth) -> Depth:
    """The prediction after scale and shift by least squares; kept over a centimetre."""
    columns = np.stack([prediction, np.ones_like(prediction)], axis=1)
    return np.maximum(columns @ np.linalg.lstsq(columns, depth)[0], 0.01)


def score(
    predictor: densevit.Predictor, folder: Path, recording: Recording, frames: int, portrait: bool = False
) -> Scores:
    rows = []
    fx, fy, cx, cy = recording.camera
    for image_file, depth_file in pairs(folder, recording, frames):
        image = cv2.imread(str(image_file), cv2.IMREAD_COLOR_RGB)
        h, w = image.shape[:2]
        left = (w - h * 3 // 4) // 2 if portrait else 0
        part = slice(left, w - left)
        maps = predictor.predict_all(ImageInput(image[:, part], (fx, fy, cx - left, cy)))
        depth = cv2.imread(str(depth_file), cv2.IMREAD_UNCHANGED)[:, part] / recording.depth_scale
        measured = depth > 0
        truth, prediction = depth[measured], maps["depth"][measured].astype(np.float64)
        constant = np.full_like(truth, np.median(truth))
        rows.append((abs_rel(constant, truth), abs_rel(fit(prediction, truth), truth), abs_rel(prediction, truth)))
    return Scores(*np.mean(rows, axis=0).tolist())


def table(results: dict[str, Scores]) -> str:
    lines = ["| recording | best constant | fitted | ratio | metres |", "| --- | --- | --- | --- | --- |"]
    for name, s in results.items():
        lines.append(f"| {name} | {s.constant:.3f} | {s.fitted:.3f} | {s.ratio:.2f} | {s.metres:.3f} |")
    ratio, metres = (float(np.mean([getattr(s, key) for s in results.values()])) for key in ("ratio", "metres"))
    return "\n".join([*lines, f"| mean | | | {ratio:.2f} | {metres:.3f} |"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path)
    parser.add_argument("checkpoints", nargs="+")
    parser.add_argument("--frames", type=int, default=10, help="of each recording (default: %(default)s)")
    parser.add_argument("--portrait", action="store_true", help="the middle of each image, 3:4, as phones are held")
    parser.add_argument("--report", type=Path, help="write the tables to this file, too")
    args = parser.parse_args(arguments)
    texts = [made_on()]
    for checkpoint in args.checkpoints:
        predictor = densevit.load(checkpoint, precision="fp32")
        results = {
            name: score(predictor, args.samples / name, recording, args.frames, args.portrait)
            for name, recording in RECORDINGS.items()
        }
        texts.append(f"{checkpoint}\n\n{table(results)}")
        print(texts[-1], flush=True)
    if args.report:
        write_text(args.report, "\n\n".join(texts) + "\n")


if __name__ == "__main__":
    main()
