"""Wide rooms: shapes whose depth can be worked out by hand, and rooms that stay what they were without the option."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("embreex")

from densevit.data.datasets.rooms import CLASSES, Rooms
from densevit.errors import DataError
from densevit.structures import Sample
from densevit_rooms import generate, render_scene
from densevit_rooms.camera import MOUNTS, Camera, look_direction
from densevit_rooms.clutter import add_pile, compartment, person
from densevit_rooms.crowd import add_beams, add_post, add_stack, cabinet, hang_on_wall
from densevit_rooms.floorplan import FloorPlan, FreeFloor
from densevit_rooms.lights import Light
from densevit_rooms.mesh import Mesh, revolved
from densevit_rooms.ray_tracer import RayTracer
from densevit_rooms.renderer import aim, preview, render_frame, sample_camera, shade
from densevit_rooms.room_shell import DOOR, THICKNESS, Passage, build_shell, draw_passages
from densevit_rooms.scene import Scene, build_scene
from densevit_rooms.scene_builder import Builder
from densevit_rooms.textures import plain
from densevit_rooms.variety import DEMO, VARIETIES

SIZE = (48, 64)
PLAN = FloorPlan(np.array([(0, 0), (5, 0), (5, 4), (0, 4)], dtype=np.float64), 3.0)
ALONG_X = Camera(np.array([1.0, 2.0, 1.5]), look_direction(0.0, 0.0, 0.0), (49, 65), np.deg2rad(60))  # middle 24, 32


def room(passages: list[Passage] | None = None, thing: Mesh | None = None) -> Scene:
    """A bare room of 5 x 4 x 3 metres with a lamp, openings and a white thing."""
    build = Builder()
    build_shell(np.random.default_rng(0), build, PLAN, DEMO, passages or [])
    if thing is not None:
        build.texture(plain((255, 255, 255)))
        build.add("object", [replace(thing, texture=np.full(len(thing.faces), len(build.images) - 1))])
    build.lights.append(Light((2.5, 2.0, 2.7), (10.0, 10.0, 10.0), 0.1))
    geometry = build.finish()
    return Scene(geometry, PLAN, FreeFloor(PLAN), RayTracer(geometry.mesh.vertices, geometry.mesh.faces))


def shot(scene: Scene, camera: Camera = ALONG_X) -> Sample:
    return render_frame(np.random.default_rng(0), scene, camera, "x").sample


def depth_of(scene: Scene, camera: Camera = ALONG_X) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    return np.asarray(shot(scene, camera).depth)


def test_through_an_open_passage_the_wall_of_the_room_behind_is_seen() -> None:
    wall = next(wall for wall in PLAN.walls() if wall.start[0] == wall.end[0] == 5)
    depth = depth_of(room([Passage(wall, 1.5, 2.5, 2.1, 3.0, (0.5, 0.5))]))
    assert depth[24, 32] == pytest.approx(4 + THICKNESS + 3, abs=1e-3)
    assert depth[24, 16] == depth[24, 48] == pytest.approx(4, abs=1e-3)  # the wall beside it
    assert depth[10, 32] == pytest.approx(4, abs=1e-3)  # and above: 14 rows of 4 m / f = 56.3 are 0.99 m over 1.5 m


@pytest.mark.parametrize("seed", range(5))
def test_passages_lead_outwards_and_leave_the_wall_its_ends(seed: int) -> None:
    for passage in draw_passages(np.random.default_rng(seed), PLAN, 2):
        assert 0.2 <= passage.low < passage.high <= passage.wall.length - 0.2
        assert passage.high - passage.low >= DOOR[0] - 1e-9 and DOOR[1] <= passage.height < PLAN.height
        x, y = passage.wall.point((passage.low + passage.high) / 2, -0.1)
        assert not (0 <= x <= 5 and 0 <= y <= 4)


def test_a_body_of_revolution_is_as_far_away_as_its_radius_says() -> None:
    drum = revolved([(0, 0), (0.4, 0), (0.4, 2.5), (0, 2.5)], 0, (1, 1, 1)).transformed(0.0, (3.5, 2.0, 0.0))
    depth = depth_of(room(thing=drum))
    assert depth[24, 32] == pytest.approx(3.5 - 0.4 - 1, abs=1e-3)  # an edge of its 14 sides faces the camera
    flat = revolved([(0, 0), (0.4, 0), (0.4, 2.5), (0, 2.5)], 0, (1, 1, 1), flat=0.5)
    across = flat.transformed(np.pi / 2, (3.5, 2.0, 0.0))
    assert depth_of(room(thing=across))[24, 32] < 3.5 - 0.4 * 0.5 - 1 + 0.01
    assert np.abs(np.linalg.norm(flat.normals, axis=1) - 1).max() < 1e-5


def test_normals_of_a_body_of_revolution_point_away_from_it() -> None:
    turn = np.linspace(0, np.pi, 9)
    ball = revolved(np.stack([np.sin(turn), 1 - np.cos(turn)], 1).tolist(), 0, (1, 1, 1))
    outward = ball.vertices - (0, 0, 1)
    assert (np.einsum("ij,ij->i", outward, ball.normals) > 0.9).all()
    assert np.linalg.norm(outward, axis=1) == pytest.approx(np.ones(len(outward)))


def test_a_shifted_principal_point_moves_the_horizon_and_keeps_metres() -> None:
    camera = replace(ALONG_X, centre=(0.1, -0.05))
    assert camera.intrinsics[0, 2] == pytest.approx(32 + 6.5) and camera.intrinsics[1, 2] == pytest.approx(24 - 3.25)
    sample, (f, cy) = shot(room(), camera), camera.intrinsics[1, 1:]
    assert np.asarray(sample.depth)[22, 38] == pytest.approx(4, abs=1e-3)
    expected = f * 1.5 / (48 - cy)  # the floor, 1.5 m below the camera, in the last row
    assert np.asarray(sample.labels)[48, 38] == CLASSES.index("floor")
    assert np.asarray(sample.depth)[48, 38] == pytest.approx(expected, abs=1e-3)


def test_a_polished_floor_mirrors_what_is_above_it_and_nothing_else_changes() -> None:
    scene, rays = room(), ALONG_X.rays()
    triangle, distance, weights = scene.tracer.intersect(ALONG_X.position, rays)
    dull, glossy = (
        shade(np.random.default_rng(0), replace(scene, gloss=gloss), ALONG_X, rays, triangle, distance, weights)
        for gloss in (0.0, 0.8)
    )
    floor = scene.geometry.label[triangle] == CLASSES.index("floor")
    assert (glossy[floor] > dull[floor]).all()
    assert np.array_equal(glossy[~floor], dull[~floor])


def test_figures_are_as_tall_as_people_and_stand_on_the_floor() -> None:
    for seed in range(10):
        z = person(np.random.default_rng(seed), [0, 1], 2).vertices[:, 2]
        assert z.min() == 0 and 1.1 <= z.max() <= 1.9


def test_a_pile_is_a_tray_with_small_things_in_it() -> None:
    sizes = []
    for seed in range(10):
        rng, build = np.random.default_rng(seed), Builder()
        add_pile(rng, build, FreeFloor(PLAN), [build.texture(plain((255, 255, 255)))])
        tray, *things = (mesh.vertices for mesh in build.meshes)
        sizes.append(np.ptp(tray, axis=0)[2])
        assert 3 <= len(things) <= 12 and 0.02 <= sizes[-1] <= 0.5
        for thing in things:
            middle = (thing.min(axis=0) + thing.max(axis=0)) / 2
            assert np.hypot(*(middle - tray.mean(axis=0))[:2]) < 0.5 and 0 <= thing[:, 2].min() < 0.15
    assert min(sizes) < 0.06 and max(sizes) > 0.2


@pytest.mark.slow
def test_a_compartment_is_open_to_one_side_and_shows_smaller_things_within() -> None:
    dark, boards = 0, 0
    for seed in range(24):
        mesh = compartment(np.random.default_rng(seed), [0], (0.8, 0.6, 1.0), 0, (1, 1, 1))
        lined = mesh.tint[10:20].max() < 0.5  # triangles after the ten of the box
        shell = 40 if lined else 20  # vertices
        board = mesh.vertices[shell : shell + 4]
        if np.ptp(board[:, 1]) == 0 and np.ptp(board[:, 0]) == pytest.approx(0.8):
            assert board[:, 1] == pytest.approx(-0.3) and 0.05 <= board[:, 2].max() <= 0.35
            shell, boards = shell + 4, boards + 1
        things = mesh.vertices[shell:]
        assert (
            len(things) and (np.abs(things[:, :2]) < 0.6).all() and 0 <= things[:, 2].min() < things[:, 2].max() < 0.4
        )
        dark += lined
        from_front = mesh.transformed(-np.pi / 2, (3.0, 2.0, 1.0))  # the camera looks over the things at the back
        back = 3.0 + 0.3 - 0.002 - 0.003 * bool(lined)  # a lining is narrower than the box by 1% of its shortest side
        assert depth_of(room(thing=from_front))[24, 32] == pytest.approx(back - 1, abs=1e-3)
        from_behind = mesh.transformed(np.pi / 2, (3.0, 2.0, 1.0))
        assert depth_of(room(thing=from_behind))[24, 32] == pytest.approx(3.0 - 0.3 + 0.002 - 1, abs=1e-3)
    assert 6 <= dark <= 18 and 6 <= boards <= 18


@pytest.mark.parametrize("seed", range(10))
def test_stacks_stand_apart_on_the_floor_inside_the_walls_and_hung_things_at_a_wall(seed: int) -> None:
    rng, build, floor = np.random.default_rng(seed), Builder(), FreeFloor(PLAN)
    pool = [build.texture(plain((255, 255, 255)))]
    free = floor.free.copy()
    while not build.meshes:  # some do not fit where they were drawn
        add_stack(rng, build, PLAN, floor, pool)
    stack = np.concatenate([mesh.vertices for mesh in build.meshes])
    assert stack[:, 2].min() == 0 and (stack > -0.2).all() and (stack < (5.2, 4.2, 3)).all()
    bottoms, tops = (sorted({round(float(way(mesh.vertices[:, 2])), 6) for mesh in build.meshes}) for way in (min, max))
    assert bottoms[1:] == tops[: len(bottoms) - 1]  # each stands on the one below
    build.meshes.clear()
    hang_on_wall(rng, build, PLAN, floor, pool)
    (hung,) = build.meshes
    assert 0.8 <= hung.vertices[:, 2].min() <= 1.7 and hung.vertices[:, 2].max() <= 3
    to_walls = np.stack([hung.vertices[:, :2], (5, 4) - hung.vertices[:, :2]])
    assert to_walls.min(axis=1).min() == pytest.approx(0.01, abs=0.2)
    build.meshes.clear()
    add_post(rng, build, PLAN, floor, pool)
    (post,) = build.meshes
    assert (post.vertices[:, 2].min(), post.vertices[:, 2].max()) == (0, 3)
    assert floor.free.sum() < free.sum()
    build.meshes.clear()
    add_beams(rng, build, PLAN, pool)
    (beams,) = build.meshes
    assert beams.vertices[:, 2].max() == 3 and (beams.vertices[:, 2] > 2.6).all()


def test_an_open_cabinet_shows_its_inside_to_the_room() -> None:
    mesh = cabinet(np.random.default_rng(1), [0], (0.8, 0.6, 1.0), open_front=True)
    facing = mesh.transformed(np.pi / 2, (3.0, 2.0, 1.0))  # its front looks along -x, at the camera
    assert depth_of(room(thing=facing))[24, 32] == pytest.approx(3.0 + 0.3 - 0.002 - 1, abs=1e-3)


@pytest.mark.slow
def test_a_crowded_room_has_more_things(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for share in (0.0, 1.0):
        monkeypatch.setitem(VARIETIES, "wide", replace(VARIETIES["wide"], crowded=share))
        counts.append(np.mean([build_scene(0, "train", scene, "wide").geometry.instance.max() for scene in range(5)]))
    assert counts[1] > counts[0] + 10


def test_less_ambient_light_is_left_in_corners_when_so_chosen() -> None:
    scene, rays = room(), ALONG_X.rays()
    triangle, distance, weights = scene.tracer.intersect(ALONG_X.position, rays)
    dark, light = (
        shade(
            np.random.default_rng(0), replace(scene, occluded_ambient=share), ALONG_X, rays, triangle, distance, weights
        )
        for share in (0.05, 0.6)
    )
    assert (dark <= light + 1e-6).all() and dark.mean() < 0.99 * light.mean()


@pytest.mark.slow
def test_a_wide_frame_depends_on_its_numbers_alone_and_is_whole() -> None:
    lenses = []
    for scene in range(4):
        frames = [frame.sample for frame in render_scene(0, "train", scene, 2, SIZE, variety="wide")]
        (again,) = (frame.sample for frame in render_scene(0, "train", scene, 1, SIZE, variety="wide"))
        assert np.array_equal(frames[0].image, again.image)
        assert np.array_equal(np.asarray(frames[0].depth), np.asarray(again.depth))
        for sample in frames:
            assert np.asarray(sample.valid).mean() > 0.95  # what is over 13.1 m away has no depth
            lenses.append(np.asarray(sample.intrinsics)[0, 0])
    low, high = (SIZE[1] / 2 / np.tan(np.deg2rad(angle) / 2) for angle in reversed(MOUNTS["any"].fov))
    assert low <= min(lenses) < max(lenses) <= high and len(set(lenses)) == 8


def test_aimed_cameras_stand_anywhere_in_the_room_and_come_near_to_things() -> None:
    scene, rng = build_scene(0, "train", 2, "wide"), np.random.default_rng(0)
    outline, nearest = scene.plan.outline.astype(np.float32), []
    for _ in range(20):
        camera = aim(rng, scene, sample_camera(rng, scene, SIZE, MOUNTS["any"]))
        assert cv2.pointPolygonTest(outline, camera.position[:2].tolist(), True) > 0.1
        assert 0.08 < camera.position[2] < scene.plan.height - 0.1
        nearest.append(np.median(scene.tracer.intersect(camera.position, preview(camera).rays())[1]))
    assert min(nearest) < 0.8 and max(nearest) > 2


def test_each_instance_of_a_wide_room_is_one_class() -> None:
    geometry = build_scene(0, "train", 1, "wide").geometry
    for instance in np.unique(geometry.instance)[1:]:
        assert len(np.unique(geometry.label[geometry.instance == instance])) == 1


@pytest.mark.parametrize(("scene", "faces", "total"), [(0, 10153, 29098.3556), (3, 27216, 54988.1778)])
def test_demo_rooms_are_those_of_the_releases_before(scene: int, faces: int, total: float) -> None:
    mesh = build_scene(0, "train", scene).geometry.mesh  # counted at commit ca60011
    assert len(mesh.faces) == faces and mesh.vertices.sum() == pytest.approx(total)


def test_the_data_set_says_that_it_is_wide_and_another_is_not_mixed_in(tmp_path: Path) -> None:
    generate(tmp_path / "rooms", {"train": 1}, 1, SIZE, seed=3, progress=False, variety="wide")
    (frame,) = render_scene(3, "train", 0, 1, SIZE, variety="wide")
    read = Rooms(root=tmp_path / "rooms").read(0)
    assert np.abs(np.asarray(read.depth) - np.asarray(frame.sample.depth)).max() < 2e-4
    with pytest.raises(DataError, match=r"another data set \(.*variety wide, not None"):
        generate(tmp_path / "rooms", {"train": 1}, 1, SIZE, seed=3, progress=False)
    with pytest.raises(DataError, match="a walk shows demo rooms"):
        generate(tmp_path / "walk", {"train": 1}, 4, SIZE, fps=15, progress=False, variety="wide")
