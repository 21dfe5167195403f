"""A video small enough for a test, with poses, cameras and depth: a board before a wall, both with a smooth texture."""

from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from scipy.spatial.transform import Rotation

FOCAL, SIZE = 60.0, (48, 64)

CONFIG = """
model:
  encoder: {{type: vit, dim: 32, depth: 2, heads: 2, patch_size: 16, image_size: 64, out_indices: 2}}
  decoder: {{type: conv_transpose, stride: 4, min_channels: 8}}
  heads: {{depth: {{type: metric, max_depth: 10, initial_depth: 3, hidden: 8}}}}
  resize: {{mode: fixed, size: [48, 64]}}
data:
  train: {{type: folder, root: {root}, manifest: manifest.csv, depth_scale: 1000}}
  val: {{type: folder, root: {root}, manifest: manifest.csv, depth_scale: 1000}}
  transforms: [{{type: hflip}}]
  clip: 3
  workers: 0
objective: {{type: self_supervised}}
optim: {{lr: 1e-3}}
schedule: {{type: constant, warmup: 0}}
steps: 4
batch_size: 6
precision: fp32
device: cpu
validate_every: 2
save_every: 2
keep_last: 0
log_every: 1
best: photometric
output: {output}
"""


def small_video(
    root: Path,
    count: int = 9,
    step: tuple[float, float, float] = (0.12, 0.01, 0.05),
    turn: float = 0.5,
    columns: str = "camera pose depth",
) -> Path:
    """Images, depth in millimetres and `manifest.csv`.

    Args:
        step: metres to the right, down and forwards from frame to frame.
        turn: degrees about the vertical axis.
        columns: what the table has of camera, pose and depth.
    """
    for kind in ("images", "depths"):
        (root / kind).mkdir(parents=True, exist_ok=True)
    h, w = SIZE
    v, u = np.mgrid[:h, :w]
    rays = np.stack([(u - (w - 1) / 2) / FOCAL, (v - (h - 1) / 2) / FOCAL, np.ones((h, w))], -1)
    head = ["image", *["fx", "fy", "cx", "cy"] * ("camera" in columns), *["depth"] * ("depth" in columns)]
    head += ["tx", "ty", "tz", "qx", "qy", "qz", "qw"] * ("pose" in columns)
    rows = [",".join(head)]
    for i in range(count):
        rotation = Rotation.from_euler("y", turn * (i - count / 2), degrees=True)
        place = np.array(step) * (i - count / 2)
        directions = rays @ rotation.as_matrix().T
        far, near = ((z - place[2]) / directions[..., 2:] for z in (5.0, 2.0))
        on_board = np.abs(place + near * directions - [0.2, 0.3, 2])[..., :2].max(-1, keepdims=True) < 0.6
        depth = np.where(on_board, near, far)[..., 0]
        x, y, z = np.moveaxis(place + depth[..., None] * directions, -1, 0)
        waves = [np.sin(5 * x + k * y) + np.sin(4 * y - 3 * x + k) + np.sin(2.5 * z + k) for k in (0, 2, 4)]
        image = 128 + 40 * np.stack(waves, -1)
        name = f"{i:03d}"
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(root / f"images/{name}.png")
        cv2.imwrite(str(root / f"depths/{name}.png"), (1000 * depth).round().astype(np.uint16))
        cells = [f"images/{name}.png", *[FOCAL, FOCAL, (w - 1) / 2, (h - 1) / 2] * ("camera" in columns)]
        cells += [f"depths/{name}.png"] * ("depth" in columns)
        cells += [*place, *rotation.as_quat()] if "pose" in columns else []
        rows.append(",".join(map(str, cells)))
    (root / "manifest.csv").write_text("\n".join(rows) + "\n")
    return root


def video_config(folder: Path) -> Path:
    root = small_video(folder / "data")
    path = folder / "video.yaml"
    path.write_text(CONFIG.format(root=root, output=folder / "run"))
    return path
