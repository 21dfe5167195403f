"""Which pixels are one surface: planes at any angle are, and what lies behind an edge is not."""

import numpy as np

from densevit.inference.writers.surface import grid_triangles, joined
from densevit.ops.geometry import backproject, pinhole_from_fov

SIZE = (24, 32)
K = pinhole_from_fov(SIZE, 75)
ALL = np.ones(SIZE, bool)


def plane(normal: tuple[float, float, float], distance: float = 2.0) -> np.ndarray:
    return -distance / (backproject(np.ones(SIZE), K) @ (np.array(normal) / np.linalg.norm(normal)))


def test_a_plane_is_never_cut_however_steep_it_is_seen() -> None:
    steep = plane((0.96, 0, -1))  # depth grows by up to 16 % a pixel
    assert (np.diff(steep, axis=1) / steep[:, :-1]).max() > 0.15
    assert joined(steep, ALL, 1).all() and joined(steep, ALL, 0).all()
    assert len(grid_triangles(steep, ALL)) == 2 * 23 * 31


def test_a_crease_is_kept_and_a_depth_edge_is_cut() -> None:
    wall, side = plane((0, 0, -1), 3.0), plane((1.5, 0, -1), 2.0)
    corner = np.minimum(wall, np.where(side > 0, side, np.inf))
    assert joined(corner, ALL, 1).all()
    step = np.where(np.arange(32) < 16, 2.0, 2.4) * np.ones(SIZE)
    right = joined(step, ALL, 1)
    assert not right[:, 15].any() and right[:, :15].all() and right[:, 16:].all()
    assert len(grid_triangles(step, ALL)) == 2 * 23 * 30
    assert len(grid_triangles(step, ALL, edge=0.5)) == 2 * 23 * 31


def test_holes_part_and_triangles_face_the_camera() -> None:
    valid = ALL.copy()
    valid[10, 10] = False
    depth = plane((0.2, -0.3, -1))
    faces = grid_triangles(depth, valid)
    assert len(faces) == 2 * 23 * 31 - 6 and 10 * 32 + 10 not in faces
    points = backproject(depth, K).reshape(-1, 3)
    a, b, c = points[faces].transpose(1, 0, 2)
    assert (np.einsum("ij,ij->i", np.cross(b - a, c - a), a) < 0).all()
