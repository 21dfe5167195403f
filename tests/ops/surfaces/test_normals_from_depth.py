"""Normals from depth, against planes worked out by hand."""

import numpy as np
import pytest
import torch

from densevit.ops.geometry import backproject, pinhole_from_fov
from densevit.ops.normals import normals_from_depth, normals_of_map

SIZE = (48, 64)
K = pinhole_from_fov(SIZE, 75)


def plane(normal: tuple[float, float, float], distance: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Depth of the plane n p = -distance, and its unit normal, which points towards the camera."""
    n = np.array(normal) / np.linalg.norm(normal)
    return -distance / (backproject(np.ones(SIZE), K) @ n), n


def degrees(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    one, other = np.broadcast_arrays(one.astype(np.float64), other)
    return np.degrees(np.arctan2(np.linalg.norm(np.cross(one, other), axis=-1), (one * other).sum(-1)))


@pytest.mark.parametrize("normal", [(0, 0, -1), (0.6, 0, -0.8), (-0.3, -0.5, -1), (0.1, -0.1, -1)])
def test_normals_of_a_plane_are_exact_up_to_the_border_of_the_image(normal: tuple[float, float, float]) -> None:
    depth, n = plane(normal)
    assert degrees(normals_of_map(depth.astype(np.float32), K), n).max() < 0.01


def test_beside_a_crease_and_a_depth_edge_each_side_keeps_its_own_normal() -> None:
    # A wall, a floor that meets it in a crease, and a slanted board before both, ended by depth edges.
    wall, n_wall = plane((0.05, 0, -1), 4.0)
    floor, n_floor = plane((0, -1, -1e-9), 1.0)
    board, n_board = plane((0.5, 0.1, -1), 1.2)
    floor = np.where(floor > 0, floor, np.inf)
    inside = np.zeros(SIZE, bool)
    inside[10:36, 20:45] = True
    depth = np.where(inside, board, np.minimum(wall, floor))
    expected = np.where(inside[..., None], n_board, np.where((wall < floor)[..., None], n_wall, n_floor))
    off = degrees(normals_of_map(depth.astype(np.float32), K), expected)
    assert off.max() < 0.1


def test_sixteen_bits_of_depth_keep_planes_within_half_a_degree() -> None:
    depth, n = plane((0.3, -0.2, -1))
    stored = np.rint(depth * 5000) / 5000
    off = degrees(normals_of_map(stored.astype(np.float32), K), n)
    assert off.mean() < 0.1 and off.max() < 0.5


def test_any_scale_of_depth_gives_the_same_normals() -> None:
    depth, _ = plane((0.3, 0.2, -1))
    np.testing.assert_allclose(normals_of_map(depth, K), normals_of_map(40 * depth, K), atol=1e-9)


def test_what_is_unknown_or_no_plane_has_no_normal_and_spoils_no_other() -> None:
    depth, n = plane((0.3, 0.2, -1))
    holed = depth.copy()
    holed[20:26, 30:36] = 0
    holed[5, 5] = np.nan
    normals = normals_of_map(holed, K)
    unknown = ~normals.any(axis=2)
    assert unknown[20:26, 30:36].all() and unknown[5, 5] and unknown.sum() == 37
    assert degrees(normals[~unknown], n).max() < 0.01
    noise = np.random.default_rng(0).uniform(1, 9, SIZE)
    assert not normals_of_map(noise, K).any(axis=2).mean() > 0.05


def test_a_batch_has_a_camera_and_a_mask_each_and_skew_counts() -> None:
    skewed = K + np.array([[0, 3.0, 0], [0, 5, 0], [0, 0, 0]])
    n = np.array([0.3, -0.2, -1]) / np.linalg.norm([0.3, -0.2, -1])
    depths = [-2 / (backproject(np.ones(SIZE), camera) @ n) for camera in (K, skewed)]
    valid = torch.ones(2, 1, *SIZE, dtype=torch.bool)
    valid[0, 0, :10] = False
    normals = normals_from_depth(
        torch.from_numpy(np.stack(depths))[:, None], torch.from_numpy(np.stack([K, skewed])), valid
    ).permute(0, 2, 3, 1)
    assert not normals[0, :10].any()
    assert degrees(normals[0, 10:].numpy(), n).max() < 0.01 and degrees(normals[1].numpy(), n).max() < 0.01


def test_a_window_is_odd() -> None:
    with pytest.raises(ValueError, match="odd"):
        normals_of_map(np.ones(SIZE), K, window=4)
