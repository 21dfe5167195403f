"""Depth of rendered walks, found by the losses of `self_supervised` alone: coarse maps in place of a network's.

python benchmarks/self_supervised_depth.py WALKS [--clips 8] [--steps 120]
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from densevit.data.datasets.rooms import Rooms
from densevit.data.loading.clips import Clips
from densevit.data.loading.collate import collate
from densevit.data.transforms.geometric import Resize
from densevit.objectives.self_supervised.geometry import Pairs, inverse, scaled
from densevit.objectives.self_supervised.photometric import smoothness
from densevit.objectives.self_supervised.views import ViewOptions, compare

SIZE, COARSE, PYRAMID, START = (48, 64), (12, 16), 3, 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walks", type=Path)
    parser.add_argument("--clips", type=int, default=8)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    data = Rooms(root=args.walks.resolve(), split="val")
    clips, resize = Clips(data, 3), Resize(size=SIZE)
    chosen = np.linspace(0, len(clips) - 1, args.clips).astype(int)
    indices = [index for clip in chosen for index in clips.frames(int(clip))]
    batch = collate([resize(data.read(index), np.random.default_rng(0)) for index in indices], indices)
    image, true, valid = batch.image.float() / 255, batch.depth, batch.valid
    pairs = Pairs.of(len(batch), 3, image.device)
    motion = inverse(batch.pose[pairs.sources]) @ batch.pose[pairs.targets]
    known = torch.ones(len(pairs.targets), 1, 1, 1, dtype=torch.bool)

    def abs_rel(depth: Tensor) -> float:
        return float(((depth - true).abs() / true.clamp_min(1e-3))[valid].mean())

    constants = {c: abs_rel(torch.full_like(true, c)) for c in np.geomspace(0.5, 8, 60)}
    best = min(constants, key=constants.__getitem__)
    print(f"constant {START:g} m: abs_rel {abs_rel(torch.full_like(true, START)):.4f}")
    print(f"best constant, {best:.2f} m: abs_rel {constants[best]:.4f}")
    for name, geometry, options in (
        ("as by default", 0.1, ViewOptions(weighted=True)),
        ("without auto-mask", 0.1, ViewOptions(weighted=True, auto_mask=False)),
        ("without geometric consistency", 0.0, ViewOptions()),
        ("with occlusion", 0.1, ViewOptions(weighted=True, occlusion=True)),
    ):
        coarse = torch.full((len(batch), 1, *COARSE), math.log(START), requires_grad=True)
        optimizer = torch.optim.Adam([coarse], lr=0.03)
        for _ in range(args.steps):
            depth = F.interpolate(coarse, SIZE, mode="bicubic").exp()
            small, camera, loss = image, batch.intrinsics, 1e-3 * smoothness(1 / depth, image)
            for level in range(PYRAMID):
                if level:
                    small, camera = F.avg_pool2d(small, 2), scaled(camera, 0.5)
                shown = F.interpolate(depth, small.shape[-2:], mode="area")
                views = compare(small, shown, camera, motion, known, pairs, options)
                loss = loss + views.error.mean() / PYRAMID + (0 if level else geometry) * views.difference
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"{name}: abs_rel {abs_rel(depth.detach()):.4f}")


if __name__ == "__main__":
    main()
