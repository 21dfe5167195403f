"""Optical flow between two frames of a video, and what follows from it. h x w pixels, (x, y) in pixels.

A flow from `a` to `b` moves pixel x of a to x + flow(x) in b, so `sample(b, flow)` brings b onto a.
"""

from functools import cache

import cv2
import numpy as np
from jaxtyping import Bool, Float32, UInt8

from densevit.ops.align import lower_median

Gray = UInt8[np.ndarray, "h w"]
Flow = Float32[np.ndarray, "h w 2"]

LARGEST_CHANGE = 32.0  # of the brightness of a point from one frame to the next, of 255


def dense_flow(first: Gray, second: Gray) -> Flow:
    """Return the flow from `first` to `second` by dense inverse search (Kroeger et al. 2016), OpenCV's DIS, preset
    medium."""
    # An object that has seen small frames keeps their coarsest scale, and then misses large motion in larger frames.
    dis = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)  # type: ignore[attr-defined]
    return np.asarray(dis.calc(first, second, None))


def sample(values: Float32[np.ndarray, "h w *c"], flow: Flow) -> Float32[np.ndarray, "h w *c"]:
    """Return the values at x + flow(x), bilinear; 0 outside of the image."""
    x, y = _grid(*flow.shape[:2])
    at = (flow[..., 0] + x, flow[..., 1] + y)
    if values.ndim == 2 or values.shape[2] <= 4:
        return np.asarray(cv2.remap(values, *at, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT)).reshape(
            values.shape
        )
    groups = [values[..., i : i + 4] for i in range(0, values.shape[2], 4)]  # OpenCV takes four channels at most
    return np.concatenate([sample(np.ascontiguousarray(group), flow) for group in groups], axis=-1)


def consistent(flow: Flow, back: Flow, first: Gray, second: Gray, *, slack: float = 1.0) -> Bool[np.ndarray, "h w"]:
    """Return where a pixel of `first` is seen in `second`, too: it comes back to its place, and its brightness stays.

    |flow(x) + back(x + flow(x))| < slack + 5% of both lengths, as Sundaram et al. 2010 find occlusions, in pixels.
    """
    h, w = flow.shape[:2]
    x, y = _grid(h, w)
    returned = sample(back, flow)
    there = np.hypot(flow[..., 0], flow[..., 1]) + np.hypot(returned[..., 0], returned[..., 1])
    off = np.hypot(flow[..., 0] + returned[..., 0], flow[..., 1] + returned[..., 1])
    to_x, to_y = x + flow[..., 0], y + flow[..., 1]
    inside = (to_x >= 0) & (to_x <= w - 1) & (to_y >= 0) & (to_y <= h - 1)
    change = np.abs(sample(second.astype(np.float32), flow) - first)
    return np.asarray(inside & (off < slack + 0.05 * there) & (change < LARGEST_CHANGE))


@cache
def _grid(h: int, w: int) -> tuple[Float32[np.ndarray, "h w"], Float32[np.ndarray, "h w"]]:
    x, y = np.meshgrid(np.arange(w, dtype=np.float32), np.arange(h, dtype=np.float32))
    return x, y


def depth_change(
    flow: Flow, depth: Float32[np.ndarray, "h w"], seen: Bool[np.ndarray, "h w"], focal: float
) -> Float32[np.ndarray, "h w"]:
    """Return log(Z' / Z) of every pixel from this frame to the one that `flow` leads to, as the motion of the camera
    has it.

    The motion (three of rotation, three of translation in the unit of `depth`) is fitted to the flow by iteratively
    reweighted least squares on the equations of Longuet-Higgins and Prazdny (1980), so that moving objects hardly
    count.
    A wrong scale of `depth` scales the translation, and leaves the result as it is.

    Args:
        depth: over 0.
        seen: where the flow holds.
        focal: in pixels of this size; a guess does, for depth changes by what moves along the axis.
    """
    h, w = depth.shape
    grid_x, grid_y = _grid(h, w)
    x, y = (grid_x - (w - 1) / 2) / focal, (grid_y - (h - 1) / 2) / focal
    rows = np.flatnonzero(seen)
    if len(rows) < 50:
        return np.zeros((h, w), np.float32)
    rows = rows[:: max(1, len(rows) // 1500)]
    px, py, inverse = (values.ravel()[rows].astype(np.float64) for values in (x, y, 1 / depth))
    u, v = (flow[..., i].ravel()[rows].astype(np.float64) / focal for i in (0, 1))
    zero = np.zeros_like(px)
    # Columns: translation x, y, z, rotation x, y, z.
    horizontal = np.stack([inverse, zero, -px * inverse, -px * py, 1 + px**2, -py], 1)
    vertical = np.stack([zero, inverse, -py * inverse, -(1 + py**2), px * py, px], 1)
    unit = 1 / lower_median(inverse)  # conditions the translation
    scale = np.array([unit, unit, unit, 1.0, 1.0, 1.0])
    system, target = np.concatenate([horizontal, vertical]) * scale, np.concatenate([u, v])
    weights = np.ones(len(rows))
    motion = np.zeros(6)
    for _ in range(6):
        both = np.concatenate([weights, weights])
        weighted = system * both[:, None]
        ridge = 1e-6 * both.sum() * np.eye(6)
        motion = np.linalg.solve(system.T @ weighted + ridge, weighted.T @ target)
        rest = (target - system @ motion).reshape(2, -1)
        size = np.hypot(*rest)
        spread = max(1.5 * lower_median(size), 0.1 / focal)
        weights = 1 / (1 + (size / spread) ** 2) ** 2  # Geman-McClure
    along, turn = motion[2] * unit, motion[3:5]
    change = np.log(np.maximum(1 + along / depth + turn[0] * y - turn[1] * x, 0.2))
    return np.asarray(change.astype(np.float32))
