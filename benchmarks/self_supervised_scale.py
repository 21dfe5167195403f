"""The photometric error of a recording along a scale of its measured depth: where is its minimum?

python benchmarks/self_supervised_scale.py FOLDER --camera FX FY CX CY [--stride 5] [--size 240x320]
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from densevit.data.datasets.recording import Recording
from densevit.data.loading.clips import Clips
from densevit.data.loading.collate import collate
from densevit.data.transforms.geometric import Resize
from densevit.objectives.self_supervised.geometry import Pairs, inside, inverse, project, returns, sample
from densevit.objectives.self_supervised.parallax import parallax
from densevit.objectives.self_supervised.photometric import matched_brightness, photometric_error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--camera", type=float, nargs=4, metavar=("FX", "FY", "CX", "CY"))
    parser.add_argument("--stride", type=int, default=5)
    parser.add_argument("--size", default="240x320")
    args = parser.parse_args()
    camera = tuple(args.camera) if args.camera else None
    data = Recording(root=args.folder.resolve(), camera=camera)
    resize = Resize(size=tuple(map(int, args.size.split("x"))))
    factors = np.geomspace(0.85, 1.18, 23)
    clips, totals, counts, moved = Clips(data, 2, args.stride), np.zeros(len(factors)), np.zeros(len(factors)), []
    for clip in range(len(clips)):
        samples = [resize(data.read(index), np.random.default_rng(0)) for index in clips.frames(clip)]
        moved.append(parallax(*samples))
        batch = collate(samples, range(2))
        pairs = Pairs.of(2, 2, torch.device("cpu"))
        image, depth, valid, pose = batch.image.double() / 255, batch.depth.double(), batch.valid, batch.pose.double()
        camera = batch.intrinsics.double()[pairs.targets], batch.intrinsics.double()[pairs.sources]
        motion = inverse(pose[pairs.sources]) @ pose[pairs.targets]
        true, z = project(depth[pairs.targets], motion, *camera)
        seen = valid[pairs.targets] & inside(true, z) & returns(true, pairs.reversed(true))
        errors = []
        for factor in factors:
            pixels, z = project(factor * depth[pairs.targets], motion, *camera)
            seen &= inside(pixels, z)
            warped = matched_brightness(sample(image[pairs.sources], pixels), image[pairs.targets], seen)
            errors.append(photometric_error(warped, image[pairs.targets]))
        totals += [float(error[seen].sum()) for error in errors]
        counts += int(seen.sum())
    means = totals / counts
    least = int(means.argmin())
    near = slice(max(0, least - 3), least + 4)
    a, b, _ = np.polyfit(np.log(factors[near]), means[near], 2)
    print(f"{len(clips)} pairs, median parallax {np.median(moved):.2f} pixels, {counts[0]:,.0f} pixels")
    print("  ".join(f"{factor:.3f}: {mean:.5f}" for factor, mean in zip(factors, means, strict=True)))
    print(f"minimum at {np.exp(-b / (2 * a)):.4f} times the measured depth")


if __name__ == "__main__":
    main()
