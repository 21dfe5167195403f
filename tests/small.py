"""A run small enough for a test, on real files: six images of a slanted, textured plane, in the `folder` layout."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

FOCALS = (50.0, 60.0, 80.0, 100.0, 60.0, 70.0)

CONFIG = """
model:
  encoder: {{type: vit, dim: 32, depth: 2, heads: 2, patch_size: 16, image_size: 64, out_indices: 2}}
  decoder: {{type: conv_transpose, stride: 4, min_channels: 8}}
  heads: {{depth: {{type: metric, max_depth: 10, hidden: 8}}}}
tasks:
  depth: {{losses: [{{type: silog}}, {{type: l1, weight: 0.5}}]}}
data:
  train: {{type: folder, root: {root}, depth_scale: 1000}}
  val: {{type: folder, root: {root}, depth_scale: 1000}}
  transforms:
    - {{type: random_crop, size: [48, 64]}}
    - {{type: hflip}}
  workers: 0
optim: {{lr: 1e-3}}
schedule: {{type: constant, warmup: 0}}
steps: 8
batch_size: 4
precision: fp32
validate_every: 4
log_every: 1
output: {output}
"""


def small_folder(root: Path, count: int = 6, size: tuple[int, int] = (60, 80)) -> Path:
    """`images/*.jpg` and `depths/*.png` in millimetres, 1.5 to 6 m."""
    draw = np.random.default_rng(0)
    for kind in ("images", "depths"):
        (root / kind).mkdir(parents=True, exist_ok=True)
    rows, columns = np.mgrid[: size[0], : size[1]] / np.array(size).reshape(2, 1, 1)
    for i in range(count):
        near, slope = draw.uniform(1.5, 3), draw.uniform(0, 3)
        depth = near + slope * rows
        texture = draw.uniform(0, 40, (*size, 3))
        image = np.stack([60 + 25 * depth, 128 + 90 * np.sin(9 * columns / depth), 200 - 20 * depth], -1) + texture
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(root / f"images/{i:03d}.jpg", quality=95)
        Image.fromarray((depth * 1000).astype(np.uint16)).save(root / f"depths/{i:03d}.png")
    return root


def noise(size: tuple[int, int] = (48, 64), seed: int = 0) -> np.ndarray:
    """An image of random colours."""
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


def small_config(folder: Path) -> Path:
    root = small_folder(folder / "data")
    path = folder / "small.yaml"
    path.write_text(CONFIG.format(root=root, output=folder / "run"))
    return path


def config_with_loss(folder: Path, plugin: str, *losses: str) -> list[str]:
    """The config and the words by which its depth is trained with these losses, some of a plugin."""
    (folder / "plugin.py").write_text(plugin)
    types = ", ".join(f"{{type: {loss}}}" for loss in losses)
    return [str(small_config(folder)), f"plugins=[{folder / 'plugin.py'}]", f"tasks.depth.losses=[{types}]"]


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def add_cameras(folder: Path, zoom: float = 1.0) -> None:
    """Each image gets a camera of its own."""
    cameras = {f"{i:03d}": {"fx": f * zoom, "fy": f * zoom, "cx": 39.5, "cy": 29.5} for i, f in enumerate(FOCALS)}
    (folder / "intrinsics.json").write_text(json.dumps(cameras))
