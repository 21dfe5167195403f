"""Transforms: pixel moves by hand on small arrays, and the property that a plane in space stays that plane."""

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from densevit.data.loading.collate import collate
from densevit.data.transforms.affine import TRANSFORMS, AffineStep, Transform
from densevit.data.transforms.geometric import LazySample, compose
from densevit.data.transforms.photometric import light_table
from densevit.errors import ConfigError, DataError
from densevit.ops.geometry import backproject, rotate
from densevit.structures import Sample

K = np.array([[50.0, 0.0, 30.0], [0.0, 52.0, 22.0], [0.0, 0.0, 1.0]])
NORMAL, OFFSET = np.array([0.1, -0.3, 1.0]), 4.0  # the plane n x = d, in metres


def part(spec: Mapping[str, Any]) -> Transform:
    return TRANSFORMS.check(spec, "transform").build()


def apply(sample: Sample, *specs: Mapping[str, Any], seed: int = 0) -> Sample:
    return compose([part(spec) for spec in specs])(sample, np.random.default_rng(seed))


def small() -> Sample:
    """2 x 3 pixels numbered 1 to 6, the last without depth."""
    numbers = np.arange(1, 7).reshape(2, 3)
    depth = np.where(numbers < 6, numbers, 0).astype(np.float32)
    return Sample(
        name="small",
        image=np.repeat(numbers[..., None] * 10, 3, axis=2).astype(np.uint8),
        depth=depth,
        valid=depth > 0,
        labels=numbers.astype(np.int64),
        intrinsics=np.array([[5.0, 0.0, 1.0], [0.0, 5.0, 0.5], [0.0, 0.0, 1.0]]),
    )


def plane(size: tuple[int, int] = (48, 64), holes: bool = True) -> Sample:
    """A slanted plane seen by K, with every seventh pixel not measured."""
    rays = backproject(np.ones(size), K)
    depth = (OFFSET / (rays @ NORMAL)).astype(np.float32)
    valid = np.arange(depth.size).reshape(size) % 7 != 0 if holes else np.ones(size, np.bool_)
    image = np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8)
    labels = (depth * 10).astype(np.int64)
    return Sample(
        name="plane", image=image, depth=np.where(valid, depth, np.float32(0)), valid=valid, labels=labels, intrinsics=K
    )


def fields(sample: Sample) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return sample.depth, sample.valid, sample.labels, sample.intrinsics


EVERY_MOVE: list[dict[str, Any]] = [
    {"type": "hflip", "p": 1.0},
    {"type": "rotate", "degrees": 20},
    {"type": "random_crop", "size": (30, 40)},
    {"type": "random_crop", "size": (60, 80)},
    {"type": "center_crop", "size": (31, 90)},
    {"type": "crop_box", "rows": (5, 40), "columns": (3, 60)},
    {"type": "resize", "size": (31, 77)},
    {"type": "resize", "short_side": 20},
    {"type": "random_scale", "range": (0.6, 1.7), "metric": "depth"},
    {"type": "random_scale", "range": (0.6, 1.7), "metric": "intrinsics"},
    {"type": "random_resized_crop", "size": (40, 40), "metric": "depth"},
    {"type": "random_resized_crop", "size": (40, 40), "metric": "intrinsics"},
]


EVERY_OTHER: list[dict[str, Any]] = [
    {"type": "color", "p": 1.0, "contrast": (0.8, 1.2), "saturation": (0.5, 1.5), "hue": (-0.1, 0.1)},
    {"type": "blur", "p": 1.0},
    {"type": "noise", "p": 1.0},
    {"type": "grayscale", "p": 1.0},
    {"type": "albumentations", "name": "CLAHE", "p": 1.0},
    {"type": "depth_range", "near": 3.5, "far": 4.5},
]


def name(spec: Mapping[str, Any]) -> str:
    return "-".join(map(str, spec.values()))


# By hand


def test_a_flip_mirrors_everything() -> None:
    flipped = apply(small(), {"type": "hflip", "p": 1.0})
    depth, valid, labels, intrinsics = fields(flipped)
    assert flipped.image[..., 0].tolist() == [[30, 20, 10], [60, 50, 40]]
    assert depth.tolist() == [[3, 2, 1], [0, 5, 4]]
    assert valid.tolist() == [[True, True, True], [False, True, True]]
    assert labels.tolist() == [[3, 2, 1], [6, 5, 4]]
    assert intrinsics[0].tolist() == [5, 0, 1]  # the middle of three columns stays


def test_a_crop_cuts_rows_and_columns() -> None:
    cut = apply(small(), {"type": "crop_box", "rows": (1, 2), "columns": (1, 3)})
    depth, valid, labels, intrinsics = fields(cut)
    assert cut.image[..., 0].tolist() == [[50, 60]]
    assert depth.tolist() == [[5, 0]] and valid.tolist() == [[True, False]] and labels.tolist() == [[5, 6]]
    assert intrinsics.tolist() == [[5, 0, 0], [0, 5, -0.5], [0, 0, 1]]


def test_a_crop_larger_than_the_picture_pads_with_nothing() -> None:
    padded = apply(small(), {"type": "center_crop", "size": (4, 5)})
    depth, valid, labels, intrinsics = fields(padded)
    assert depth.tolist() == [[0] * 5, [0, 1, 2, 3, 0], [0, 4, 5, 0, 0], [0] * 5]
    assert valid.sum() == 5 and (padded.image[0] == 0).all()
    assert labels.tolist() == [[255] * 5, [255, 1, 2, 3, 255], [255, 4, 5, 6, 255], [255] * 5]
    assert intrinsics[:2, 2].tolist() == [2, 1.5]


def test_a_random_crop_reaches_every_place_and_no_other() -> None:
    pictures = {
        tuple(apply(small(), {"type": "random_crop", "size": (1, 2)}, seed=s).image[0, :, 0]) for s in range(60)
    }
    assert pictures == {(10, 20), (20, 30), (40, 50), (50, 60)}


def test_doubling_by_resize_repeats_depth_and_keeps_its_values() -> None:
    depth, valid, labels, intrinsics = fields(apply(small(), {"type": "resize", "size": (4, 6)}))
    rows = [[1, 1, 2, 2, 3, 3], [4, 4, 5, 5, 0, 0]]
    assert depth.tolist() == [rows[0], rows[0], rows[1], rows[1]]
    assert (valid == (depth > 0)).all() and labels[3].tolist() == [4, 4, 5, 5, 6, 6]
    assert intrinsics.tolist() == [[10, 0, 2.5], [0, 10, 1.5], [0, 0, 1]]  # 2 (c + 0.5) - 0.5


def test_resize_by_one_side_keeps_the_aspect() -> None:
    assert apply(plane(), {"type": "resize", "short_side": 24}).image.shape == (24, 32, 3)
    assert apply(plane(), {"type": "resize", "long_side": 24}).image.shape == (18, 24, 3)


def test_a_rotation_by_a_right_angle_of_a_square_is_exact() -> None:
    square = apply(small(), {"type": "crop_box", "rows": (0, 2), "columns": (0, 2)})
    depth, _, _, _ = fields(LazySample.of(square).transform(AffineStep((2, 2), rotate(90, (2, 2)))).render())
    assert depth.tolist() == [[2, 5], [1, 4]]  # counter-clockwise


@pytest.mark.parametrize(
    ("metric", "focal", "depth"), [("intrinsics", 10.0, 5.0), ("depth", 5.0, 2.5)], ids=["intrinsics", "depth"]
)
def test_a_zoom_by_two_changes_the_lens_or_the_distance(metric: str, focal: float, depth: float) -> None:
    zoomed = apply(small(), {"type": "random_scale", "range": (2.0, 2.0), "metric": metric})
    values, _, _, intrinsics = fields(zoomed)
    assert zoomed.image.shape == (4, 6, 3)
    assert values.max() == depth
    assert intrinsics.tolist() == [[focal, 0, 2.5], [0, focal, 1.5], [0, 0, 1]]


def test_crops_of_benchmarks_are_theirs_and_refuse_what_does_not_fit() -> None:
    # FIELD table for 375 x 1242: top 23, left 13.
    sample = Sample(name="k", image=np.zeros((375, 1242, 3), np.uint8), intrinsics=np.diag([700.0, 700.0, 1.0]))
    cut = apply(sample, {"type": "kb_crop"})
    assert cut.image.shape == (352, 1216, 3) and cut.intrinsics[:2, 2].tolist() == [-13, -23]
    image = np.zeros((480, 640, 3), np.uint8)
    image[45:472, 43:608] = 255
    cut = apply(Sample(name="n", image=image), {"type": "nyu_crop"})
    assert cut.image.shape == (427, 565, 3) and (cut.image == 255).all()
    beyond = {"type": "crop_box", "rows": (0, 49), "columns": (0, 9)}
    for spec, says in (({"type": "kb_crop"}, "352x1216"), ({"type": "nyu_crop"}, "48x64"), (beyond, "48x64")):
        with pytest.raises(DataError, match=says):
            apply(plane(), spec)


def test_depth_out_of_range_counts_as_not_measured() -> None:
    facing = np.tile(np.float32([0, 0, -1]), (*small().image.shape[:2], 1))
    given = replace(small(), normals=facing)
    kept = apply(given, {"type": "depth_range", "near": 2.0, "far": 4.0})
    depth, valid, _, _ = fields(kept)
    np.testing.assert_array_equal(kept.normals.any(2), valid | ~given.valid)  # holes of depth may have them
    assert depth.tolist() == [[0, 2, 3], [4, 0, 0]] and (valid == (depth > 0)).all()


def test_the_light_table_is_gamma_then_brightness_per_channel_and_contrast_about_the_mean() -> None:
    table = light_table(0.0, 1.0, 2.0, np.array([1.0, 0.5, 3.0]))[0]
    assert table[51].tolist() == [10, 5, 31]  # 0.2 ** 2 = 0.04; x 255 = 10.2, 5.1, 30.6
    assert table[255].tolist() == [255, 128, 255]
    table = light_table(0.4, 1.5, 1.0, np.ones(3))[0, :, 0]
    assert table[102] == 102 and table[112] == 117 and table[92] == 87  # ten from 0.4 x 255 becomes fifteen


def test_neutral_colour_changes_nothing_and_grayscale_makes_the_channels_equal() -> None:
    neutral = dict.fromkeys(("gamma", "brightness", "channels"), (1.0, 1.0))
    assert np.array_equal(apply(plane(), {"type": "color", "p": 1.0} | neutral).image, plane().image)
    gray = apply(plane(), {"type": "grayscale", "p": 1.0}).image
    assert (gray == gray[..., :1]).all()


# Properties


@pytest.mark.parametrize("spec", EVERY_MOVE, ids=name)
def test_a_plane_stays_the_plane_of_the_moved_camera(spec: Mapping[str, Any]) -> None:
    """The moved points satisfy some n x = d to within the depth step of a nearest pixel, where depth is |n_z| d."""
    before, unit = plane(), NORMAL / np.linalg.norm(NORMAL)
    before = replace(before, normals=np.tile(-unit, (*before.depth.shape, 1)).astype(np.float32))
    for seed in range(3):
        moved = apply(before, spec, seed=seed)
        depth, valid, _, intrinsics = fields(moved)
        points = backproject(depth.astype(np.float64), intrinsics)[valid]
        normal, *_ = np.linalg.lstsq(points, np.ones(len(points)), rcond=None)
        assert np.abs(points @ normal - 1).max() < 0.012  # a pixel of this plane is 1 % of its depth
        # Normals are those of the moved depth, and 0 where nothing is.
        assert moved.normals.dtype == np.float32
        assert np.abs(moved.normals[valid] + normal / np.linalg.norm(normal)).max() < 0.02
        inside = np.linalg.norm(moved.normals, axis=2) > 0
        assert np.allclose(np.linalg.norm(moved.normals[inside], axis=1), 1, atol=1e-5) and inside[valid].all()
        if spec.get("metric") != "depth":  # which squeezes the scene along the axis: another plane
            assert 1 / np.linalg.norm(normal) == pytest.approx(OFFSET / np.linalg.norm(NORMAL), rel=0.01)
            assert normal[2] / np.linalg.norm(normal) == pytest.approx(unit[2], abs=0.01)


def test_a_pose_follows_the_image_so_that_two_views_of_a_point_agree() -> None:
    """A point seen by two cameras: after the same transform its pixel in one still leads to its pixel in the other."""
    turn = np.array([[0.96, 0, 0.28], [0, 1, 0], [-0.28, 0, 0.96]])
    poses = np.stack([np.eye(4), np.block([[turn, np.array([[0.3], [-0.1], [0.2]])], [np.zeros((1, 3)), 1]])])
    point = np.array([0.2, -0.1, 3.0])
    for kind, options in {
        "random_crop": {"size": (9, 9)}, "resize": {"short_side": 24}, "random_scale": {"metric": "intrinsics"},
        "hflip": {"p": 1.0}, "rotate": {"degrees": 30},
    }.items():  # fmt: skip
        views = [apply(replace(plane(), pose=pose), {"type": kind, **options}) for pose in poses]
        before = [plane().intrinsics @ np.linalg.inv(pose)[:3] @ [*point, 1] for pose in poses]
        step = part({"type": kind, **options}).draw(plane().image.shape[:2], np.random.default_rng(0))
        pixels = [step.matrix @ (x / x[2]) for x in before]
        rays = np.linalg.inv(views[0].intrinsics) @ pixels[0] * before[0][2]
        moved = np.linalg.inv(views[1].pose) @ views[0].pose @ [*rays, 1]
        found = views[1].intrinsics @ moved[:3]
        np.testing.assert_allclose(found / found[2], pixels[1], atol=1e-6)
        assert found[2] == pytest.approx(before[1][2])
        assert np.linalg.det(views[1].pose[:3, :3]) == pytest.approx(1)
    assert apply(replace(plane(), pose=poses[0]), {"type": "random_scale"}).pose is None


def test_poses_of_a_batch_count_from_its_first_position() -> None:
    far = np.eye(4)
    far[:3, 3] = 4e6, 5e6, 100
    near = far.copy()
    near[0, 3] += 0.01
    batch = collate([replace(plane(), pose=pose) for pose in (None, far, near)], range(3))
    assert batch.pose[0].isnan().all() and batch.pose[1].equal(torch.eye(4))
    assert float(batch.pose[2, 0, 3]) == pytest.approx(0.01, abs=1e-6)


@pytest.mark.parametrize("spec", EVERY_MOVE + EVERY_OTHER, ids=name)
def test_a_transform_is_a_function_of_sample_and_generator_and_leaves_the_sample_alone(spec: Mapping[str, Any]) -> None:
    transform, before, sample = part(spec), plane(), plane()
    first, second = (transform(sample, np.random.default_rng(5)) for _ in range(2))
    again = pickle.loads(pickle.dumps(transform))(plane(), np.random.default_rng(5))
    for left, right in ((first, second), (first, again), (sample, before)):
        assert np.array_equal(left.image, right.image)
        assert all(np.array_equal(a, b) for a, b in zip(fields(left), fields(right), strict=True))
    if spec["type"] in ("color", "blur", "noise"):
        assert not np.array_equal(apply(plane(), spec, seed=1).image, apply(plane(), spec, seed=2).image)


@pytest.mark.parametrize("spec", EVERY_MOVE + EVERY_OTHER, ids=name)
def test_no_depth_or_label_appears_that_was_not_there(spec: Mapping[str, Any]) -> None:
    before, after = plane(), apply(plane(), spec)
    depth, valid, labels, _ = fields(after)
    assert depth.dtype == np.float32 and labels.dtype == np.int64 and valid.dtype == np.bool_
    assert (valid == (depth > 0)).all()
    assert depth.shape == valid.shape == labels.shape == after.image.shape[:2]
    assert set(np.unique(labels)) <= {*np.unique(before.labels), 255}
    if spec.get("metric") != "depth":
        assert set(np.unique(depth)) <= {0.0, *np.unique(before.depth)}
    alone = apply(Sample(name="alone", image=plane().image), spec)
    assert fields(alone) == (None, None, None, None)
    flipped = apply(plane(), {"type": "hflip", "p": 1.0})  # a view
    assert flipped.image.strides[1] < 0
    copied = replace(flipped, image=flipped.image.copy())
    assert np.array_equal(apply(flipped, spec).image, apply(copied, spec).image)


def test_joined_moves_equal_the_same_moves_one_by_one() -> None:
    chain = [{"type": "rotate", "degrees": 4}, {"type": "random_crop", "size": (20, 30)}, {"type": "hflip", "p": 0.5}]
    for seed in range(6):
        joined = apply(plane(), *chain, seed=seed)
        rng, step_by_step = np.random.default_rng(seed), plane()
        for spec in chain:
            step_by_step = part(spec)(step_by_step, rng)
        assert np.array_equal(joined.image, step_by_step.image)
        assert np.array_equal(fields(joined)[0], fields(step_by_step)[0])
        assert np.allclose(fields(joined)[3], fields(step_by_step)[3])


def test_what_a_crop_cut_away_never_comes_back_and_corners_from_outside_are_invalid() -> None:
    image = np.full((480, 640, 3), 255, np.uint8)  # NYU's white frame
    image[45:472, 43:608] = 100
    sample = Sample(name="framed", image=image)
    for seed in range(5):
        turned = apply(sample, {"type": "nyu_crop"}, {"type": "rotate", "degrees": 10}, seed=seed)
        assert turned.image.max() == 100
    depth, valid, labels, _ = fields(apply(plane(holes=False), {"type": "rotate", "degrees": 30}, seed=3))
    assert not valid[0, 0] and depth[0, 0] == 0 and labels[0, 0] == 255
    assert valid[20:28, 28:36].all()


def test_shrinking_averages_instead_of_skipping() -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, 1::4] = stripes[:, 2::4] = 200  # of each four columns, the two in the middle
    shrunk = apply(Sample(name="s", image=stripes), {"type": "resize", "size": (16, 16)}).image
    assert (shrunk == 100).all()


def test_two_zooms_bring_the_scene_nearer_twice() -> None:
    twice = [{"type": "random_scale", "range": (zoom, zoom)} for zoom in (2.0, 3.0)]
    depth, _, _, intrinsics = fields(apply(small(), *twice))
    assert depth.max() == pytest.approx(5 / 6) and intrinsics[0, 0] == 5


def test_a_zoom_that_a_resize_takes_back_still_divides_depth_and_focal_length() -> None:
    zoom, back = {"type": "random_scale", "range": (2.0, 2.0)}, {"type": "resize", "size": (2, 3)}
    depth, _, _, intrinsics = fields(apply(small(), zoom, back))
    assert depth.max() == 2.5 and intrinsics[0, 0] == 2.5


@pytest.mark.parametrize("share", [1.0, 0.75, 0.5])
@pytest.mark.parametrize("metric", ["depth", "intrinsics"])
def test_a_random_resized_crop_is_a_zoom_relative_to_the_resized_whole(metric: str, share: float) -> None:
    """A wall at 3 m: its crop is the wall of a nearer camera, or of a longer lens, than the resized whole shows."""
    wall = replace(plane((48, 64), holes=False), depth=np.full((48, 64), 3, np.float32))
    whole = apply(wall, {"type": "resize", "size": (24, 32)})
    crop = apply(wall, {"type": "random_resized_crop", "size": (24, 32), "range": (share, share), "metric": metric})
    nearer, longer = (share, 1.0) if metric == "depth" else (1.0, 1 / share)
    assert crop.depth == pytest.approx(3 * nearer)
    assert crop.intrinsics[0, 0] == pytest.approx(whole.intrinsics[0, 0] * longer)
    # The width of what an image of the wall shows, in metres, is the same by depth and by focal length.
    assert 32 * crop.depth[0, 0] / crop.intrinsics[0, 0] == pytest.approx(share * 64 * 3 / K[0, 0])


def test_a_random_resized_crop_lies_inside_the_picture() -> None:
    spec = {"type": "random_resized_crop", "size": (20, 50), "range": (0.3, 1.0)}
    assert all(fields(apply(plane(holes=False), spec, seed=seed))[1].all() for seed in range(5))


def test_the_image_moves_with_its_depth() -> None:
    v, u = np.mgrid[:480, :640]
    gray = (20 + u / 8 + v / 4).astype(np.float32)  # 20 to 220: a step of 0.4 per pixel at most
    painted = Sample(name="p", image=np.repeat(gray[..., None], 3, axis=2).astype(np.uint8), depth=gray, valid=gray > 0)
    moved = apply(
        painted,
        {"type": "random_scale", "range": (0.7, 1.4), "metric": "intrinsics"},
        {"type": "rotate", "degrees": 10},
        {"type": "random_crop", "size": (300, 400)},
        {"type": "hflip", "p": 1.0},
    )
    inside = cv2.erode(moved.valid.astype(np.uint8), np.ones((5, 5), np.uint8), borderValue=0) > 0
    assert inside.sum() > 60_000
    assert np.abs(moved.image[..., 0].astype(np.float32) - moved.depth)[inside].max() < 2


# Faults


REFUSED = [
    ({"type": "resize"}, "one of size"),
    ({"type": "resize", "size": (4, 4), "short_side": 4}, "one of size"),
    ({"type": "resize", "size": (0, 4)}, "transform.size"),
    ({"type": "random_crop", "size": (4, 4), "max_share": 0.0}, "transform.max_share"),
    ({"type": "random_crop", "size": (4, 4), "max_share": 1.5}, "transform.max_share"),
    ({"type": "random_scale", "range": (2.0, 1.0)}, "random_scale.range"),
    ({"type": "random_scale", "metric": "length"}, "transform.metric"),
    ({"type": "crop_box", "rows": (5, 5), "columns": (0, 3)}, "crop_box.rows"),
    ({"type": "depth_range", "near": 5.0, "far": 1.0}, "near"),
    ({"type": "hflip", "p": 1.5}, "transform.p"),
    ({"type": "color", "gama": (1.0, 1.0)}, "Did you mean 'gamma'"),
    ({"type": "albumentations", "name": "GausianBlur"}, "Did you mean 'GaussianBlur'"),
    ({"type": "albumentations", "name": "Rotate"}, "no image-only transform 'Rotate'"),
    ({"type": "albumentations", "name": "CLAHE", "options": {"clip": 3}}, "CLAHE refuses"),
]


def test_options_that_cannot_mean_anything_are_refused() -> None:
    for spec, says in REFUSED:
        with pytest.raises(ConfigError, match=says):
            part(spec)


@pytest.mark.slow
@pytest.mark.parametrize(
    "specs",
    [
        [{"type": "random_crop", "size": (1, 1)}, {"type": "grayscale", "p": 1.0}],
        [{"type": "albumentations", "name": "ToGray", "options": {"num_output_channels": 1}, "p": 1.0}],
    ],
)
def test_an_image_of_another_shape_from_albumentations_is_refused(specs: list[Mapping[str, Any]]) -> None:
    with pytest.raises(DataError, match=r"albumentations' ToGray makes .* of an image \(., ., 3\)"):
        apply(small(), *specs)


@pytest.mark.slow
def test_albumentations_is_imported_late_and_told_not_to_use_the_network() -> None:
    code = (
        "import socket, sys\n"
        "def refuse(*_): raise SystemExit('network')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse\n"
        "from densevit.data.transforms.photometric import albumentations\n"
        "if 'albumentations' in sys.modules: raise SystemExit('imported')\n"
        "albumentations()\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "NO_ALBUMENTATIONS_UPDATE"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
