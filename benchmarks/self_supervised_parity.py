"""The self-supervised losses beside Monodepth2's and SC-Depth's functions, on the same tensors: largest differences.

    pip install kornia                                                     # which SC-Depth needs
    python benchmarks/self_supervised_parity.py MONODEPTH2 SC_DEPTH_PL

Both are clones of the repositories (licences: not commercial, GPL; nothing of them is part of this project).
"""

import argparse
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch
import torch.nn.functional as F

from densevit.objectives.self_supervised.geometry import project, rigid, rotation_of, sample
from densevit.objectives.self_supervised.photometric import (
    geometric_difference,
    photometric_error,
    smoothness,
    ssim_error,
)

N, H, W = 4, 60, 80


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("monodepth2", type=Path)
    parser.add_argument("sc_depth_pl", type=Path)
    args = parser.parse_args()
    theirs = runpy.run_path(str(args.monodepth2 / "layers.py"))
    sys.path.insert(0, str(args.sc_depth_pl))
    sys.modules |= {f"losses.{name}_ranking_loss": MagicMock() for name in ("mask", "normal")}  # not compared
    from losses import inverse_warp, loss_functions

    generator = torch.Generator().manual_seed(0)
    x, y = (torch.rand(N, 3, H, W, generator=generator, dtype=torch.float64) for _ in range(2))
    depth = 1 + 4 * torch.rand(N, 1, H, W, generator=generator, dtype=torch.float64)
    motion = rigid(
        rotation_of(0.05 * torch.randn(N, 3, generator=generator, dtype=torch.float64)),
        0.1 * torch.randn(N, 3, generator=generator, dtype=torch.float64),
    )
    camera = torch.tensor([[70.0, 0, 39], [0, 71, 30], [0, 0, 1]], dtype=torch.float64).expand(N, 3, 3)
    ssim = theirs["SSIM"]()(x, y)
    disparity = 1 / depth
    scaled = disparity / (disparity.mean((2, 3), keepdim=True) + 1e-7)
    square = torch.eye(4, dtype=torch.float64).repeat(N, 1, 1)
    square[:, :3, :3] = camera
    points = theirs["BackprojectDepth"](N, H, W).double()(depth, torch.linalg.inv(square))
    places = theirs["Project3D"](N, H, W)(points, square, motion)
    pixels, _ = project(depth, motion, camera, camera)
    theirs_pixels = (places + 1) / 2 * places.new_tensor([W - 1, H - 1])
    aligned = F.grid_sample(x, places, padding_mode="border", align_corners=True)
    half_off = F.grid_sample(x, places, padding_mode="border", align_corners=False)
    other = 1 + 4 * torch.rand(N, 1, H, W, generator=generator, dtype=torch.float64)
    inverse_warp.pose_vec2mat = lambda pose: pose[:, :3]  # motions as matrices
    plain = SimpleNamespace(no_auto_mask=True, no_ssim=True, no_dynamic_mask=True)
    _, _, sc_difference, _ = loss_functions.compute_pairwise_loss(x, y, depth, other, motion, camera, plain)
    _, z = project(depth, motion, camera, camera)
    theirs_other = F.grid_sample(other, places, padding_mode="zeros", align_corners=False)
    rows = {
        "SC-Depth: geometric difference, sampled as it does": geometric_difference(z, theirs_other) - sc_difference,
        "SC-Depth: smoothness, of depth": smoothness(depth, x) - loss_functions.compute_smooth_loss(depth, x),
        "ssim": ssim_error(x, y) - ssim,
        "photometric error": photometric_error(x, y) - (0.85 * ssim + 0.15 * (x - y).abs()).mean(1, keepdim=True),
        "smoothness": smoothness(disparity, x) - theirs["get_smooth_loss"](scaled, x),
        "projected pixels": pixels - theirs_pixels,
        "warped image, align_corners=True for theirs": sample(x, pixels) - aligned,
        "warped image, as theirs calls it (half a pixel off at the border)": sample(x, pixels) - half_off,
    }
    for name, difference in rows.items():
        print(f"{name:70} {difference.abs().max():.1e}")


if __name__ == "__main__":
    main()
