"""The renderer against geometry that can be worked out by hand."""

from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("embreex")

from densevit.data.datasets.rooms import CLASSES
from densevit.ops.geometry import backproject
from densevit_rooms import furniture_models, render_scene
from densevit_rooms.camera import MOUNTS, Camera, look_direction
from densevit_rooms.floorplan import CELL, FloorPlan, FreeFloor, draw_plan, footprint
from densevit_rooms.furniture_layout import ROOM_TYPES, furnish
from densevit_rooms.lights import Light
from densevit_rooms.mesh import quad
from densevit_rooms.ray_tracer import RayTracer
from densevit_rooms.renderer import BASELINE, render_frame, sample_camera, sample_view
from densevit_rooms.room_shell import build_shell
from densevit_rooms.scene import Scene, build_scene, scene_rng
from densevit_rooms.scene_builder import Builder
from densevit_rooms.textures import Textures, plain

SIZE = (48, 64)


def empty_room(w: float, d: float, h: float) -> Scene:
    """A bare box of a room with a lamp, from which the rest is worked out."""
    plan = FloorPlan(np.array([(0, 0), (w, 0), (w, d), (0, d)], dtype=np.float64), h)
    build = Builder()
    build_shell(np.random.default_rng(0), build, plan)
    build.lights.append(Light((w / 2, d / 2, h - 0.3), (10.0, 10.0, 10.0), 0.1))
    geometry = build.finish()
    return Scene(geometry, plan, FreeFloor(plan), RayTracer(geometry.mesh.vertices, geometry.mesh.faces))


def look(position: tuple[float, float, float], yaw: float, pitch: float = 0.0, roll: float = 0.0) -> Camera:
    return Camera(np.array(position, dtype=np.float64), look_direction(yaw, pitch, roll), SIZE, np.deg2rad(60))


def test_a_wall_that_faces_the_camera_has_one_depth_not_one_distance() -> None:
    # From x = 1 along +x to the wall at x = 5: 4 m at every pixel of it. As a distance the corners would have 4.8 m.
    frame = render_frame(np.random.default_rng(0), empty_room(5, 4, 3), look((1, 2, 1.5), 0.0), "x")
    wall = np.asarray(frame.sample.depth)[12:36, 8:56]
    assert np.abs(wall - 4.0).max() < 1e-3
    assert (np.asarray(frame.sample.labels)[12:36, 8:56] == CLASSES.index("wall")).all()


def test_the_floor_under_a_level_camera_is_at_f_times_height_over_rows_below_the_horizon() -> None:
    camera = look((1, 2, 1.5), 0.0)
    frame = render_frame(np.random.default_rng(0), empty_room(9, 9, 3), camera, "x")
    f, cy = camera.intrinsics[1, 1], camera.intrinsics[1, 2]
    for row in (40, 47):
        expected = f * 1.5 / (row - cy)
        assert frame.sample.labels[row, 32] == CLASSES.index("floor")  # type: ignore[index]
        assert frame.sample.depth[row, 32] == pytest.approx(expected, abs=1e-3)  # type: ignore[index]


def test_back_projected_points_lie_on_the_planes_that_their_labels_name() -> None:
    room, camera = empty_room(5, 4, 3), look((1.2, 1.1, 1.4), 0.7, -0.05, 0.05)
    sample = render_frame(np.random.default_rng(0), room, camera, "x").sample
    assert sample.depth is not None and sample.labels is not None and sample.intrinsics is not None
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    rays = np.stack([x, y, np.ones_like(x)], -1) @ np.linalg.inv(sample.intrinsics).T
    points = (rays * sample.depth[..., None]) @ camera.axes.T + camera.position
    on_floor, on_ceiling = (points[sample.labels == CLASSES.index(name)] for name in ("floor", "ceiling"))
    assert len(on_floor) > 5 and np.abs(on_floor[:, 2]).max() < 1e-3
    assert len(on_ceiling) > 5 and np.abs(on_ceiling[:, 2] - 3).max() < 1e-3
    on_walls = points[sample.labels == CLASSES.index("wall")]
    off = np.minimum(np.abs(on_walls[:, :2] - (0, 0)), np.abs(on_walls[:, :2] - (5, 4))).min(axis=1)
    assert off.max() < 0.0151  # the skirting is 1.5 cm thick, and a wall too
    assert (off < 1e-3).mean() > 0.8


def test_normals_are_those_of_the_planes_in_camera_axes_towards_the_camera() -> None:
    sample = render_frame(np.random.default_rng(0), empty_room(5, 4, 3), look((1, 2, 1.5), 0.0), "x").sample
    assert sample.normals is not None and sample.labels is not None
    np.testing.assert_allclose(sample.normals[12:36, 8:56].reshape(-1, 3), np.tile([0, 0, -1], (24 * 48, 1)), atol=1e-6)
    floor, ceiling = (sample.normals[sample.labels == CLASSES.index(name)] for name in ("floor", "ceiling"))
    np.testing.assert_allclose(floor, np.tile([0, -1, 0], (len(floor), 1)), atol=1e-6)
    np.testing.assert_allclose(ceiling, np.tile([0, 1, 0], (len(ceiling), 1)), atol=1e-6)


def test_two_views_show_one_place_from_their_poses() -> None:
    for scene in range(3):
        first, second = (frame.sample for frame in render_scene(4, "train", scene, 1, (48, 64), views=2))
        assert np.array_equal(first.intrinsics, second.intrinsics)
        assert 0.1 < np.linalg.norm(first.pose[:3, 3] - second.pose[:3, 3]) < 1.5
        points = backproject(second.depth.astype(np.float64), second.intrinsics).reshape(-1, 3)
        world = points @ second.pose[:3, :3].T + second.pose[:3, 3]
        seen = (world - first.pose[:3, 3]) @ first.pose[:3, :3]
        u, v = (np.rint((seen @ first.intrinsics[row]) / seen[:, 2]) for row in (0, 1))
        inside = (seen[:, 2] > 0) & (u >= 0) & (u < 64) & (v >= 0) & (v < 48)
        assert inside.mean() > 0.4
        depth = first.depth[v[inside].astype(int), u[inside].astype(int)]
        assert (np.abs(depth - seen[inside, 2]) < 0.05 * depth).mean() > 0.6  # the others are hidden, or at an edge


def test_a_second_view_steps_aside_where_furniture_leaves_little_floor() -> None:
    room = build_scene(7, "test", 10)
    first = sample_camera(scene_rng(7, "test", 10, 0), room, SIZE, MOUNTS["level"])
    assert not len(room.floor.spots_near(first.position[:2], BASELINE, 0.4))
    second = sample_view(scene_rng(7, "test", 10, 0, 1), room, first, MOUNTS["level"])
    assert BASELINE[0] <= np.linalg.norm(first.position[:2] - second.position[:2]) <= BASELINE[1]


def test_views_are_as_far_apart_as_asked_and_look_at_one_place() -> None:
    first, second = (frame.sample for frame in render_scene(4, "train", 0, 1, SIZE, views=2, baseline=(1.5, 2.0)))
    apart = first.pose[:3, 3] - second.pose[:3, 3]
    assert 1.5 <= np.hypot(*apart[:2]) <= 2.0
    sees = second.pose[:3, 2] @ first.pose[:3, 2]  # the cosine between the optical axes
    assert 0.5 < sees < 0.999


def test_where_nothing_is_there_is_no_depth_and_no_label() -> None:
    build = Builder()
    white = build.texture(plain((255, 255, 255)))
    build.add("floor", [quad((0, 0, 0), (9, 0, 0), (0, 9, 0), white)], thing=False)
    build.lights.append(Light((4, 4, 2), (5.0, 5.0, 5.0), 0.1))
    geometry = build.finish()
    plan = FloorPlan(np.array([(0.0, 0.0), (9, 0), (9, 9), (0, 9)]), 3.0)
    room = Scene(geometry, plan, FreeFloor(plan), RayTracer(geometry.mesh.vertices, geometry.mesh.faces))
    frame = render_frame(np.random.default_rng(0), room, look((1, 4, 1.5), 0.0), "x")
    sky, ground = np.s_[:24], np.s_[-8:]
    assert (np.asarray(frame.sample.depth)[sky] == 0).all() and not np.asarray(frame.sample.valid)[sky].any()
    assert (np.asarray(frame.sample.labels)[sky] == 255).all()
    assert np.asarray(frame.sample.valid)[ground].all()


def test_up_is_up_and_left_is_left() -> None:
    camera = look((2, 2, 1.5), 0.0)  # looks along +x, so that +y is on the left
    rays = camera.rays().reshape(*SIZE, 3)
    assert rays[0, 32, 2] > 0 > rays[-1, 32, 2]
    assert rays[24, 0, 1] > 0 > rays[24, -1, 1]
    assert np.linalg.det(camera.axes) == pytest.approx(1)
    assert look((0, 0, 0), 0.3, pitch=0.5).axes[2, 2] == pytest.approx(np.sin(0.5))


@pytest.mark.parametrize("size", [(192, 256), (60, 199), (65, 33)])
def test_a_frame_of_any_size_is_whole(size: tuple[int, int]) -> None:
    (frame,) = render_scene(5, "val", 2, 1, size)
    sample = frame.sample
    assert sample.image.shape == (*size, 3)
    assert sample.depth.shape == sample.labels.shape == frame.instances.shape == size
    assert np.array_equal(sample.valid, sample.depth > 0)
    assert sample.valid.mean() > 0.999
    assert sample.depth.max() < 13.1  # what 16 bits hold at 5000 units per metre
    assert set(np.unique(sample.labels)) <= {*range(len(CLASSES)), 255}


def test_each_instance_is_one_class_and_only_the_room_is_instance_0() -> None:
    room = [CLASSES.index(name) for name in ("wall", "floor", "ceiling")]
    for frame in render_scene(1, "train", 4, 2, SIZE):
        labels = np.asarray(frame.sample.labels)
        assert np.array_equal(frame.instances == 0, np.isin(labels, [*room, 255]))
        for instance in np.unique(frame.instances)[1:]:
            assert len(np.unique(labels[frame.instances == instance])) == 1


def test_a_frame_depends_on_its_numbers_alone() -> None:
    first, second = (frame.sample for frame in render_scene(0, "train", 3, 2, SIZE))
    (again,) = (frame.sample for frame in render_scene(0, "train", 3, 1, SIZE))
    assert np.array_equal(first.image, again.image)
    assert np.array_equal(np.asarray(first.depth), np.asarray(again.depth))
    assert not np.array_equal(np.asarray(first.depth), np.asarray(second.depth))


@pytest.mark.parametrize("other", [(1, "train", 3), (0, "val", 3), (0, "train", 4)])
def test_seed_split_and_scene_each_make_another_room(other: tuple[int, str, int]) -> None:
    vertices = build_scene(0, "train", 3).geometry.mesh.vertices
    others = build_scene(*other).geometry.mesh.vertices
    assert vertices.shape != others.shape or not np.allclose(vertices, others)


def test_clearance_is_the_distance_to_the_nearest_wall_on_all_four_sides() -> None:
    floor = FreeFloor(FloorPlan(np.array([(0.0, 0), (4, 0), (4, 3), (0, 3)]), 2.5))
    clear = floor.clearance()
    y, x = (np.indices(clear.shape) + 0.5) * CELL
    walls = np.stack([x, y, 4 - x, 3 - y]).min(0)
    inside = clear > 0
    assert inside[walls > CELL].all() and not inside[walls < 0].any()
    assert np.abs(clear - walls)[inside].max() < 0.05


@pytest.mark.slow
def test_cameras_stand_off_the_walls_in_crowded_rooms_too() -> None:
    for scene in (12, 24, 37, 45, 52):  # of the most crowded ones
        room = build_scene(8, "test", scene)
        camera = sample_camera(scene_rng(8, "test", scene, 0), room, SIZE, MOUNTS["level"])
        place = camera.position[:2].astype(np.float32)
        off = cv2.pointPolygonTest(room.plan.outline.astype(np.float32), [float(side) for side in place], True)
        assert off >= 0.9 * min(0.5, room.floor.clearance().max()), scene


def test_no_furniture_stands_in_another_or_in_a_wall() -> None:
    for seed, (name, theme) in enumerate(ROOM_TYPES.items()):
        rng = scene_rng(seed, "train", 0)
        plan = draw_plan(rng, theme.sides, theme.height)
        pieces = [p for p in furnish(rng, plan, FreeFloor(plan), theme) if p.centre[2] == 0]
        assert pieces, name
        # In millimetres on a canvas: the pieces' areas add up exactly where none covers another.
        canvas = np.zeros([int(1000 * side) + 2000 for side in plan.extent[::-1]], dtype=np.uint8)
        for piece in pieces:
            mask = np.zeros_like(canvas)
            corners = footprint(piece.centre, piece.model.size, piece.angle)
            cv2.fillConvexPoly(mask, np.round(corners * 1000 + 1000).astype(np.int32), 1)
            canvas += mask
            for corner in corners:
                inside = cv2.pointPolygonTest(plan.outline.astype(np.float32), [float(c) for c in corner], True)
                assert inside > -0.001, (name, piece.model.name)
        assert canvas.max() == 1, name


def test_shadow_falls_behind_a_thing_and_not_before_it() -> None:
    tracer = RayTracer(np.array([(1.0, -1, -1), (1, 1, -1), (1, 0, 1)]), np.array([[0, 1, 2]]))
    origins, ways = np.zeros((2, 3), np.float32), np.array([(2, 0, 0), (0.9, 0, 0)], dtype=np.float32)
    assert tracer.occluded(origins, ways).tolist() == [True, False]
    assert tracer.occluded(origins[:0], ways[:0]).shape == (0,)


def test_a_texture_repeats_and_fades_to_its_mean_from_afar() -> None:
    chequer = (np.indices((8, 8)).sum(0) % 2 * 200).astype(np.uint8)[..., None].repeat(3, 2)
    textures = Textures([plain((10, 20, 30)), chequer])
    uv = np.array([(0.0625, 0.0625), (1.0625, -0.9375), (0.1875, 0.0625)], dtype=np.float32)  # texel centres
    near = textures.sample(np.ones(3, np.int64), uv, np.full(3, 1e-3, np.float32))
    assert near[:, 0].tolist() == [0, 0, 200]
    far = textures.sample(np.ones(3, np.int64), uv, np.ones(3, np.float32))
    assert far == pytest.approx(100)
    assert textures.sample(np.zeros(1, np.int64), uv[:1], np.ones(1, np.float32)).tolist() == [[10, 20, 30]]


def test_every_model_has_its_catalogue_size_its_class_and_its_licence() -> None:
    folder = Path(furniture_models.__file__).parent / "furniture"
    assert "Creative Commons Zero" in (folder / "LICENSE.txt").read_text()
    assert max(path.stat().st_size for path in folder.iterdir()) < 2**20
    assert {path.stem for path in folder.glob("*.npz")} == set(furniture_models.models())
    for model in furniture_models.models().values():
        assert model.label in CLASSES
        mesh, images = furniture_models.load(model.name)
        size = np.ptp(mesh.vertices, axis=0)
        # Some have a pane of glass left out, or points merged: 2 cm, the coarsest grid.
        assert size == pytest.approx(model.size, abs=0.0201), model.name
        assert mesh.vertices[:, 2].min() == pytest.approx(0, abs=0.0101), model.name
        assert mesh.texture.max() < len(images)


def test_every_model_that_a_theme_wishes_for_exists() -> None:
    wished = {name for theme in ROOM_TYPES.values() for wish in theme.furniture for name in wish.names}
    assert wished <= set(furniture_models.models())
