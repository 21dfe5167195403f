"""Surface normals from depth: plane fits that respect depth edges. b images, h x w pixels.

Unit vectors in camera axes (right, down, forward), towards the camera; 0 where unknown.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor
from torch.nn import functional as F

KINDS_WITH_NORMALS = ("metric", "relative")  # of depth that has normals
WINDOW = 5  # pixels along a side of the fitted window
MAX_MISFIT = 0.05  # relative misfit of inverse depth from which on no plane explains the window
DISTANCE_PENALTY = 0.1  # a plane fitted d pixels away must fit 1 + 0.1 d^2 times better than the pixel's own
ROUNDING = 1e-13  # squared relative misfit of depth in float32


def normals_from_depth(
    depth: Float[Tensor, "b 1 h w"],
    intrinsics: Float[Tensor, "b 3 3"],
    valid: Bool[Tensor, "b 1 h w"] | None = None,
    *,
    window: int = WINDOW,
) -> Float32[Tensor, "b 3 h w"]:
    """Return the normals of planes fitted to windows of depth.

    The inverse depth of a plane is linear in pixel coordinates, so a fit is least squares with three unknowns, exact on
    planes under any perspective. Each pixel takes, of all windows that contain it, the one that a plane explains best
    (as the filter of Kuwahara et al. 1976 does for means): beside a depth edge or a crease that is a window on its own
    side.

    Args:
        depth: of any scale; an unknown shift, or disparity, gives wrong normals. Values not over 0 are unknown.
        intrinsics: of these images, in pixels.
        window: pixels along a side, odd; larger ones smooth noise.
    """
    wide = torch.float32 if depth.device.type == "mps" else torch.float64
    usable = torch.isfinite(depth) & (depth > 0) & (True if valid is None else valid)
    inverse = torch.where(usable, 1 / torch.where(usable, depth, 1).to(wide), 0)
    slope, misfit = fit_windows(inverse, usable.to(wide), window)
    u, v, at = best_window(slope, misfit, window)
    fx, skew, cx = (intrinsics[:, 0, i, None, None].to(wide) for i in range(3))
    fy, cy = (intrinsics[:, 1, i, None, None].to(wide) for i in (1, 2))
    h, w = depth.shape[-2:]
    rows = torch.arange(h, device=depth.device, dtype=wide)[:, None]
    columns = torch.arange(w, device=depth.device, dtype=wide)
    # K^T times the gradient over (u, v, 1): 1 / depth = g . ray, and the normal is -g.
    g = torch.stack([fx * u, skew * u + fy * v, (cx - columns) * u + (cy - rows) * v + at], 1)
    length = g.norm(dim=1, keepdim=True)
    fits = usable & torch.isfinite(length) & (length > 0)
    return torch.where(fits, -g / length.where(fits, torch.ones_like(length)), torch.zeros_like(g)).float()


def normals_of_map(
    depth: Float[np.ndarray, "h w"], intrinsics: Float[np.ndarray, "3 3"], *, window: int = WINDOW
) -> Float32[np.ndarray, "h w 3"]:
    """Return `normals_from_depth` of one map as NumPy has it."""
    maps = normals_from_depth(
        torch.from_numpy(np.ascontiguousarray(depth))[None, None], torch.from_numpy(intrinsics)[None], window=window
    )
    return maps[0].permute(1, 2, 0).contiguous().numpy()


def fit_windows(
    values: Float[Tensor, "b 1 h w"], weights: Float[Tensor, "b 1 h w"], window: int
) -> tuple[Float[Tensor, "b 3 h w"], Float[Tensor, "b 1 h w"]]:
    """Return the plane a du + b dv + c of each pixel's window, (du, dv) being the offset from that pixel. Returns a, b,
    c; and the squared relative misfit, infinite where less than half of a window is known or it is a line."""
    n, u, v, uu, uv, vv = window_sums(weights, window, ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2)))
    q, uq, vq = window_sums(weights * values, window, ((0, 0), (1, 0), (0, 1)))
    (qq,) = window_sums(weights * values.square(), window, ((0, 0),))
    count = n.clamp_min(1)
    u, v, q = u / count, v / count, q / count
    uu, uv, vv = uu / count - u * u, uv / count - u * v, vv / count - v * v
    uq, vq, qq = uq / count - u * q, vq / count - v * q, qq / count - q * q
    determinant = uu * vv - uv * uv
    enough = (2 * n > window * window) & (determinant > 1e-3)
    safe = determinant.where(enough, torch.ones_like(determinant))
    a, b = (vv * uq - uv * vq) / safe, (uu * vq - uv * uq) / safe
    misfit = (qq - a * uq - b * vq).clamp_min(0) / q.square().clamp_min(1e-30)
    return torch.cat([a, b, q - a * u - b * v], 1), misfit.where(enough, torch.full_like(misfit, torch.inf))


def best_window(
    plane: Float[Tensor, "b 3 h w"], misfit: Float[Tensor, "b 1 h w"], window: int
) -> tuple[Float[Tensor, "b h w"], Float[Tensor, "b h w"], Float[Tensor, "b h w"]]:
    """Return, of the windows that contain a pixel, the slopes of the one that fits best, and its value at the pixel.

    NaN where none does.
    """
    reach = window // 2
    h, w = misfit.shape[-2:]
    misfits = F.pad(misfit + ROUNDING, (reach,) * 4, value=torch.inf)
    best = torch.full_like(misfit, MAX_MISFIT**2)
    chosen = torch.full_like(misfit, -1, dtype=torch.long)
    sides = range(-reach, reach + 1)
    offsets = sorted(((y, x) for y in sides for x in sides), key=lambda o: o[0] ** 2 + o[1] ** 2)
    for i, (dy, dx) in enumerate(offsets):
        rows, columns = slice(reach + dy, reach + dy + h), slice(reach + dx, reach + dx + w)
        score = misfits[..., rows, columns] * (1 + DISTANCE_PENALTY * (dy * dy + dx * dx))
        better = score < best
        chosen, best = chosen.masked_fill(better, i), torch.where(better, score, best)
    down, right = torch.tensor(offsets, device=misfit.device)[chosen.clamp_min(0)].unbind(-1)
    centres = torch.arange(h * w, device=misfit.device).view(h, w) + down * w + right
    centres = centres.clamp(0, h * w - 1).flatten(2).expand(-1, 3, -1)
    best_plane = plane.flatten(2).gather(2, centres).view_as(plane).masked_fill(chosen < 0, torch.nan)
    a, b, c = best_plane.unbind(1)
    return a, b, c - a * right[:, 0] - b * down[:, 0]


def window_sums(
    x: Float[Tensor, "b 1 h w"], window: int, powers: Sequence[tuple[int, int]]
) -> list[Float[Tensor, "b 1 h w"]]:
    """Return for each (i, j) the sum of x u^i v^j over each pixel's window, u to the right and v down from it."""
    if window < 3 or window % 2 == 0:
        raise ValueError(f"window is {window}; it is an odd number of pixels, 3 or more.")
    reach = window // 2

    def along(x: Tensor, dim: int, power: int) -> Tensor:
        padded = F.pad(x, (reach, reach) if dim == 3 else (0, 0, reach, reach))
        steps = range(-reach, reach + 1)
        return sum((padded.narrow(dim, reach + i, x.shape[dim]) * i**power for i in steps), torch.zeros_like(x))

    rows = {i: along(x, 3, i) for i, _ in powers}
    return [along(rows[i], 2, j) for i, j in powers]
