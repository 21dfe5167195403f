"""How well the motion between frames of rendered walks is measured by matches, beside their true poses.

python benchmarks/self_supervised_odometry.py ROOMS [--split train] [--scenes 30]
"""

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from densevit.data.datasets.rooms import Rooms
from densevit.data.loading.clips import videos
from densevit.objectives.self_supervised.odometry import relative_motion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--split", default="train")
    parser.add_argument("--scenes", type=int, default=30)
    args = parser.parse_args()
    data = Rooms(root=args.root, split=args.split)
    walks = list(videos(data).values())[: args.scenes]
    rows, turned = [], []
    for first, second in ((data.read(i), data.read(j)) for walk in walks for i, j in pairwise(walk)):
        true = np.linalg.inv(second.pose) @ first.pose
        turned.append(degrees(true))
        if (measured := relative_motion(first, second)) is not None:
            motion, points = measured
            length = np.linalg.norm(true[:3, 3])
            off = np.degrees(np.arccos(np.clip(motion[:3, 3] @ true[:3, 3] / length, -1, 1)))
            columns, rounded = np.rint(points.u).astype(int), np.rint(points.v).astype(int)
            ratio = np.median(first.depth[rounded, columns] / points.depth) / length
            rows.append((turned[-1], degrees(motion @ np.linalg.inv(true)), off, ratio))
    print(f"{len(rows)} of {len(turned)} pairs measured, rotation of all {rms(turned):.2f} degrees (RMS)")
    names = ("rotation, degrees", "error of rotation, degrees", "error of direction, degrees", "length by true depth")
    for name, values in zip(names, np.transpose(rows), strict=True):
        low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
        print(f"{name:30} RMS {rms(values):.2f}, 10% {low:.2f}, median {middle:.2f}, 90% {high:.2f}")


def degrees(motion: np.ndarray) -> float:
    return float(np.degrees(Rotation.from_matrix(motion[:3, :3]).magnitude()))


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


if __name__ == "__main__":
    main()
