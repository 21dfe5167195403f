"""Depth and classes for a test, on real files: a box before a wall on a floor, in the `folder` layout."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = [
    {"id": 1, "name": "wall", "color": [120, 120, 180]},
    {"id": 2, "name": "floor", "color": [80, 50, 50]},
    {"id": 3, "name": "box", "color": [255, 200, 0]},
    {"id": 0, "name": "unlabelled", "ignore": True},
]

MODEL = """
model:
  encoder: {{type: vit, dim: 32, depth: 2, heads: 2, patch_size: 8, image_size: 64, out_indices: 2}}
  decoder: {{type: conv_transpose, stride: 4, min_channels: 8}}
"""

RUN = """
  transforms: [{{type: random_crop, size: [48, 64]}}, {{type: hflip}}]
  workers: 0
optim: {{lr: 2e-3}}
schedule: {{type: constant, warmup: 0}}
batch_size: 4
precision: fp32
device: cpu
validate_every: 4
log_every: 1
output: {output}
"""

CONFIG = (
    MODEL
    + """
  heads:
    depth: {{type: metric, max_depth: 10, hidden: 0}}
    labels: {{type: segmentation}}
tasks:
  depth: {{}}
  labels: {{type: segmentation}}
data:
  train: {{type: folder, root: {root}, depth_scale: 1000, require_depth: false, require_labels: false}}
  val: {{type: folder, root: {root}, depth_scale: 1000, require_depth: false, require_labels: false}}
"""
    + RUN
    + "steps: 8\n"
)


def small_scenes(
    root: Path, count: int = 6, size: tuple[int, int] = (60, 80), without: Sequence[tuple[int, str]] = ()
) -> Path:
    """Images, depths in millimetres, and stored ids 1 to 3, of which `classes.json` tells the names and colours.

    Args:
        without: number of an image and `depths` or `labels`, which it then lacks.
    """
    draw = np.random.default_rng(0)
    rows, columns = np.mgrid[: size[0], : size[1]] / np.array(size).reshape(2, 1, 1)
    for kind in ("images", "depths", "labels"):
        (root / kind).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        horizon, left = draw.uniform(0.4, 0.6), draw.uniform(0.1, 0.6)
        ids = np.where(rows < horizon, 1, 2)
        ids[(columns > left) & (columns < left + 0.3) & (rows > 0.3) & (rows < 0.8)] = 3
        depth = np.select([ids == 1, ids == 2], [np.full(size, 6.0), 6 - 4 * (rows - horizon)], 2.5)
        ids[:2, :2] = 0  # nobody labelled this corner
        shades = np.array([[0, 0, 0], [150, 150, 200], [110, 80, 70], [230, 190, 40]])
        image = shades[np.maximum(ids, 1)] + draw.uniform(-15, 15, (*size, 3))
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(root / f"images/{i:03d}.jpg", quality=95)
        maps = {"depths": (depth * 1000).astype(np.uint16), "labels": ids.astype(np.uint8)}
        for kind, pixels in maps.items():
            if (i, kind) not in without:
                Image.fromarray(pixels).save(root / kind / f"{i:03d}.png")
    (root / "classes.json").write_text(json.dumps(CLASSES))
    return root


def small_joint_config(folder: Path, **layout: object) -> Path:
    root = small_scenes(folder / "data", **layout)  # type: ignore[arg-type]
    path = folder / "joint.yaml"
    path.write_text(CONFIG.format(root=root, output=folder / "run"))
    return path
