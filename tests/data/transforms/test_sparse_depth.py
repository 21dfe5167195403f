"""Points drawn from an image's depth: as many as asked for, measured ones, the same for the same seed, and kept in
place by what moves pixels."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from densevit.data.loading.collate import collate
from densevit.data.transforms.affine import TRANSFORMS
from densevit.data.transforms.geometric import compose
from densevit.data.transforms.sparse_depth import PATTERNS
from densevit.errors import ConfigError
from densevit.ops.points import move_points, resize_points
from densevit.structures import Sample

SIZE = (96, 128)


def sample() -> Sample:
    """Every pixel has a depth of its own; a corner was not measured."""
    depth = (1 + np.arange(SIZE[0] * SIZE[1]).reshape(SIZE) / 4096).astype(np.float32)
    valid = np.ones(SIZE, np.bool_)
    valid[:20, :30] = False
    image = np.zeros((*SIZE, 3), np.uint8)
    return Sample(name="a", image=image, depth=np.where(valid, depth, np.float32(0)), valid=valid)


def apply(*specs: Mapping[str, Any], seed: int = 0, given: Sample | None = None) -> Sample:
    parts = [TRANSFORMS.check(spec, "transform").build() for spec in specs]
    return compose(parts)(given or sample(), np.random.default_rng(seed))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("count", [20, 100, 500, 2000])
def test_a_pattern_gives_about_as_many_measured_points_as_asked_for(pattern: str, count: int) -> None:
    draw = {"type": "sparse_depth", "count": [count, count], "patterns": [pattern], "dropout": 0, "noise": 0}
    found = [apply(draw, seed=i) for i in range(10)]
    numbers = [(one.inputs["points"] > 0).sum() for one in found]
    assert 0.6 * count <= np.mean(numbers) <= 1.2 * count
    for one in found:
        at = one.inputs["points"] > 0
        assert np.array_equal(one.inputs["points"][at], one.depth[at])


def test_the_same_seed_draws_the_same_points_and_another_one_others() -> None:
    one, same, other = (apply({"type": "sparse_depth"}, seed=seed).inputs["points"] for seed in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)  # type: ignore[arg-type]


def test_dropout_leaves_images_without_points_and_noise_is_relative() -> None:
    drawn = [apply({"type": "sparse_depth", "dropout": 0.5, "noise": 0.05}, seed=i) for i in range(100)]
    assert 30 < sum(not one.inputs["points"].any() for one in drawn) < 70
    points, depth = (np.stack(maps) for maps in zip(*((one.inputs["points"], one.depth) for one in drawn), strict=True))
    errors = np.log(points[points > 0] / depth[points > 0])
    assert np.std(errors) == pytest.approx(0.05, rel=0.05)


def test_flips_crops_and_zooms_keep_points_at_the_pixels_that_they_measured() -> None:
    draw = {"type": "sparse_depth", "dropout": 0, "noise": 0, "count": [300, 300]}
    for move in (
        {"type": "hflip", "p": 1},
        {"type": "random_crop", "size": [64, 80]},
        {"type": "random_crop", "size": [110, 140]},
    ):
        moved = apply(draw, move, seed=3)
        assert moved.depth is not None and moved.inputs["points"].any()
        at = moved.inputs["points"] > 0
        assert np.array_equal(moved.inputs["points"][at], moved.depth[at])
    nearer = apply(draw, {"type": "random_scale", "range": [1.5, 1.5]}, seed=3)
    at = nearer.inputs["points"] > 0
    assert at.sum() == pytest.approx(300, abs=2)
    np.testing.assert_allclose(nearer.inputs["points"][at], nearer.depth[at], rtol=0.02)


def test_of_points_that_fall_together_the_nearest_is_kept() -> None:
    points = np.zeros((4, 4), np.float32)
    points[0, 0], points[0, 1], points[3, 3] = 5, 2, 7
    half = np.diag([0.5, 0.5, 1.0])
    assert move_points(points, half, (2, 2))[0, 0] == 2
    resized = resize_points(torch.from_numpy(points)[None, None], (2, 2))
    assert resized[0, 0].tolist() == [[2, 0], [0, 7]]
    larger = resize_points(torch.from_numpy(points)[None, None], (8, 8))[0, 0]
    assert sorted(larger[larger > 0].tolist()) == [2, 5, 7]


def test_images_whose_depth_is_relative_get_no_points_and_batches_hold_zeros_for_them() -> None:
    with_points = apply({"type": "sparse_depth", "dropout": 0})
    without = apply({"type": "sparse_depth", "dropout": 0}, given=replace(sample(), depth_kind="relative"))
    assert not without.inputs
    batch = collate([with_points, without], [0, 1])
    assert batch.inputs["points"].shape == (2, 1, *SIZE)
    assert batch.inputs["points"][0].any() and not batch.inputs["points"][1].any()
    assert not collate([without], [0]).inputs


@pytest.mark.parametrize("options", [{"patterns": []}, {"count": [9, 3]}])
def test_nonsense_is_refused(options: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match="sparse_depth"):
        TRANSFORMS.check({"type": "sparse_depth", **options}, "transform").build()
