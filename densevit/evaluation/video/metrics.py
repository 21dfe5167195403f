"""Temporal consistency of depth maps of neighbouring frames. h x w pixels, depth over 0, poses from camera to world.

A map that never changes is perfect by all of these but the first: read them beside AbsRel.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Bool, Float, Float64, UInt8

from densevit.evaluation.metrics import register_metrics
from densevit.ops.flow import Flow, consistent, dense_flow, sample
from densevit.ops.geometry import Matrix, backproject

Depth = Float[np.ndarray, "h w"]
Rgb = UInt8[np.ndarray, "h w 3"]

STEADY = 1.01  # ratio of two depths of one place that counts as the same

FORMULAE = {
    "abs_rel": "mean(|d - p| / d), of a frame; mean over the frames of a clip",
    "d1": "share of pixels with max(p / d, d / p) < 1.25",
    "tae": "temporal alignment error in %: depth moved to the next frame by the true pose, |p - moved| / p, both ways",
    "opw": "mean(exp(-50 |I - warped I|^2) |D - warped D|) by optical flow, in the unit of the depth",
    "rtc": f"share of places seen in both frames whose depths differ by less than {STEADY - 1:.0%}",
    "flicker": "mean |r(t+1) - r(t)| in %, where r is the median of log(D / warped D) between two frames",
    "scale_jitter": "standard deviation of the frames' log(median(d / p)), in %",
}
"""In words, for depth p (of a map, D) and ground truth d."""
register_metrics("video", FORMULAE)
register_metrics("video", {name: FORMULAE[name] for name in ("d1", "rtc")}, "max")


@dataclass(frozen=True, eq=False)
class Change:
    """Two neighbouring frames compared by optical flow."""

    opw: float  # weighted change of depth
    rtc: float  # share of places of the same depth; NaN where no place is seen in both
    ratio: float  # median of log(D / warped D) of these places; NaN likewise


def temporal_alignment_error(
    first: Depth, second: Depth, first_pose: Float64[np.ndarray, "4 4"], second_pose: Float64[np.ndarray, "4 4"],
    first_camera: Matrix, second_camera: Matrix,
) -> float:  # fmt: skip
    """TAE of a pair in percent, the mean of both directions (Video Depth Anything, benchmark/eval/eval_tae.py).

    As there, a point goes to the nearest pixel and the last one written stays: no test of what hides what, so even true
    depth has an error. For static scenes. NaN where no point of one frame falls into the other.
    """
    there = np.linalg.inv(second_pose) @ first_pose
    forth = one_way(first, second, there, first_camera, second_camera)
    back = one_way(second, first, np.linalg.inv(there), second_camera, first_camera)
    return 100 * (forth + back) / 2


def one_way(source: Depth, target: Depth, motion: Float64[np.ndarray, "4 4"], k: Matrix, target_k: Matrix) -> float:
    h, w = source.shape
    points = backproject(source.astype(np.float64), k).reshape(-1, 3)
    moved = points[(source > 0).reshape(-1) & np.isfinite(source).reshape(-1)] @ motion[:3, :3].T + motion[:3, 3]
    moved = moved[moved[:, 2] > 1e-6]
    u, v = (np.rint((moved @ target_k.T)[:, i] / moved[:, 2]).astype(np.int64) for i in (0, 1))
    inside = (u >= 0) & (u < w) & (v >= 0) & (v < h)
    warped = np.zeros((h, w))
    warped[v[inside], u[inside]] = moved[inside, 2]
    both = (warped > 0) & (target > 0) & np.isfinite(target)
    if not both.any():
        return float("nan")
    return float((np.abs(target - warped)[both] / target[both]).mean())


def flow_change(before: Rgb, after: Rgb, earlier: Depth, later: Depth) -> Change:
    """What optical flow (OpenCV's DIS) says of two neighbouring frames and their maps.

    OPW as in NVDS (Wang et al. 2023): all pixels count, by how well their colours agree. The others are over pixels
    whose flow is consistent forward and back.
    """
    grays = [cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in (before, after)]
    back, forth = dense_flow(grays[1], grays[0]), dense_flow(grays[0], grays[1])
    seen = consistent(back, forth, grays[1], grays[0])
    return compare(before, after, earlier, later, back, seen)


def compare(before: Rgb, after: Rgb, earlier: Depth, later: Depth, back: Flow, seen: Bool[np.ndarray, "h w"]) -> Change:
    """`back`: flow from `after` to `before`; `seen`: pixels of `after` that are in both."""
    warped = sample(earlier.astype(np.float32), back)
    inside = sample(np.ones(later.shape, np.float32), back) > 0.999
    valid = inside & (warped > 0) & (later > 0) & np.isfinite(warped) & np.isfinite(later)
    colours = sample(before.astype(np.float32), back) / 255 - after.astype(np.float32) / 255
    weight = np.exp(-50 * (colours**2).sum(-1))
    opw = float((weight * np.abs(later - warped))[valid].mean()) if valid.any() else float("nan")
    logs = np.log(later[valid & seen].astype(np.float64) / warped[valid & seen])
    if not logs.size:
        return Change(opw, float("nan"), float("nan"))
    return Change(opw, float((np.abs(logs) < np.log(STEADY)).mean()), float(np.median(logs)))


def flicker(ratios: list[float]) -> float:
    """Mean change in percent of the median ratio of neighbouring maps from one pair to the next; NaN of fewer than two.

    A camera that moves steadily changes depths by much the same from frame to frame, a scale that jumps does not.
    """
    steps = np.abs(np.diff(np.array(ratios, np.float64)))
    steps = steps[np.isfinite(steps)]
    return 100 * float(steps.mean()) if steps.size else float("nan")
