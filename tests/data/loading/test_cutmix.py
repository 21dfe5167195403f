"""CutMix: a rectangle of another image with its ground truth, aligned by itself in losses without unit."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from densevit.data.loading.augmented import AREA, cutmix
from densevit.data.loading.collate import collate
from densevit.errors import DataError
from densevit.losses.depth import DEPTH_LOSSES
from densevit.losses.reduction import best_pixels
from densevit.model_card import HeadSpec
from densevit.model_inputs import INPUT_KINDS
from densevit.structures import IGNORE, Batch, Sample
from densevit.tasks.depth import DepthTask
from densevit.tasks.focal import FocalTask


def sample(value: int, **more: object) -> Sample:
    image = np.full((40, 50, 3), value, np.uint8)
    depth = np.full((40, 50), float(value), np.float32)
    return Sample(name=str(value), image=image, depth=depth, valid=depth > 0, **more)  # type: ignore[arg-type]


def test_a_rectangle_comes_from_the_other_image_with_its_ground_truth() -> None:
    labels = np.ones((40, 50), np.int64)
    for seed in range(20):
        mixed = cutmix(sample(3, labels=labels), sample(7), np.random.default_rng(seed))
        assert (mixed.image[mixed.pasted] == 7).all() and (mixed.image[~mixed.pasted] == 3).all()
        np.testing.assert_array_equal(mixed.depth, np.where(mixed.pasted, 7, 3))
        np.testing.assert_array_equal(mixed.labels, np.where(mixed.pasted, IGNORE, 1))  # the other has none
        rows, columns = np.nonzero(mixed.pasted)
        assert mixed.pasted[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].all()
        assert mixed.pasted.mean() < AREA[1] + 0.03 and mixed.name == "3"


def test_a_head_for_one_focal_length_is_taught_each_region_by_its_own_camera() -> None:
    task = DepthTask("depth", HeadSpec(kind="metric", unit="metre", range=(0.1, 50), focal=50), [], dict, dict)
    cameras = [np.diag([focal, focal, 1.0]) for focal in (100.0, 200.0)]
    first, second = (sample(value, intrinsics=k) for value, k in zip((4, 8), cameras, strict=True))
    mixed = cutmix(first, second, np.random.default_rng(0))
    unknown = cutmix(first, sample(8), np.random.default_rng(0))
    for batch in (collate([mixed, first], [0, 1]), collate([unknown, first], [0, 1])):
        target, valid = task.ground_truth(batch, 50)
        inside = batch.pasted[:, None] if batch.pasted is not None else None
        assert inside is not None and inside[0].any() and not inside[1].any()
        assert (target[valid & inside] == 2).all() and (target[~inside] == 2).all() and valid[~inside].all()
        assert bool(valid[inside].all()) == (batch.pasted_intrinsics is not None)


def test_an_image_of_two_cameras_has_none_for_the_network() -> None:
    """One embedding of rays, and one scale of measured points, would be wrong for one of the regions."""
    cameras = [np.diag([focal, focal, 1.0]) for focal in (100.0, 200.0)]
    first, second = (sample(value, intrinsics=k) for value, k in zip((4, 8), cameras, strict=True))
    mixed = [cutmix(first, other, np.random.default_rng(0)) for other in (second, first)]
    batch = collate([*mixed, second], [0, 1, 2])
    values = INPUT_KINDS["camera"].of_batch(batch)
    assert values.isnan().all(1).tolist() == [True, False, False] and values[1:, 0].tolist() == [100, 200]
    shares = FocalTask("focal", HeadSpec(kind="focal"), [], dict, dict).ground_truth(batch)
    assert shares[0].isnan() and shares[1:].tolist() == [2, 4]  # 100 and 200 of 50 pixels


def test_images_of_two_sizes_are_not_mixed() -> None:
    other = Sample(name="other", image=np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(DataError, match="cutmix needs images of one size, but they are 40x50 and 8x8"):
        cutmix(sample(3), other, np.random.default_rng(0))


def test_each_region_is_aligned_by_itself_and_counts_by_its_area() -> None:
    torch.manual_seed(0)
    target = torch.rand(1, 1, 10, 12) + 1
    pasted = torch.zeros(1, 10, 12, dtype=torch.bool)
    pasted[:, 2:6, 3:9] = True
    pred = torch.where(pasted[:, None], 5 * (1 / target) + 3, 0.5 / target - 1)  # two scales and shifts
    loss = DEPTH_LOSSES.components["ssi"](trim=0)
    task = DepthTask("depth", HeadSpec(kind="disparity", unit=""), [("ssi", 1.0, loss)], dict, dict)
    options = {"names": ("a",), "indices": (0,), "image": torch.zeros(1, 3, 10, 12), "depth": target}
    batch = Batch(**options, valid=torch.ones(1, 1, 10, 12, dtype=torch.bool), pasted=pasted)  # type: ignore[arg-type]
    assert float(task.losses(pred, batch, 0)["ssi"]) < 1e-5
    assert float(task.losses(pred, replace(batch, pasted=None), 0)["ssi"]) > 0.1
    noisy = torch.where(pasted[:, None], torch.rand(1, 1, 10, 12), pred)
    inside = loss(noisy, target, pasted[:, None])
    assert float(task.losses(noisy, batch, 0)["ssi"]) == pytest.approx(float(inside) * 24 / 120, rel=1e-4)


def of_two_scales() -> tuple[torch.Tensor, Batch]:
    """A perfect prediction of disparity for each of two regions."""
    target = 1 + torch.rand(1, 1, 10, 12, generator=torch.Generator().manual_seed(0))
    pasted = torch.zeros(1, 10, 12, dtype=torch.bool)
    pasted[:, 2:6, 3:9] = True
    pred = torch.where(pasted[:, None], 5 / target + 3, 0.5 / target - 1)
    valid = torch.ones_like(target, dtype=torch.bool)
    image, kinds = torch.zeros(1, 3, 10, 12), ("disparity",)
    batch = Batch(names=("a",), indices=(0,), image=image, depth_kinds=kinds, depth=target, valid=valid, pasted=pasted)
    return pred, batch


def test_the_worst_pixels_of_depth_without_unit_are_those_of_each_region_as_it_is_aligned() -> None:
    pred, batch = of_two_scales()
    pred[0, 0, 3, 4] += 5
    pred[0, 0, 8, 8] += 0.5
    task = DepthTask("depth", HeadSpec(kind="disparity", unit=""), [], dict, dict)
    valid = task.trim_outliers(pred, batch, 2 / 120).valid
    assert valid is not None and (~valid[0, 0]).nonzero().tolist() == [[3, 4], [8, 8]]


def test_an_uncertainty_of_disparity_is_learned_from_disparity_of_each_region_by_itself() -> None:
    pred, batch = of_two_scales()
    task = DepthTask("depth", HeadSpec(kind="disparity", unit=""), [], dict, dict)
    scale = torch.full_like(pred, 0.01)
    loss = task.losses(pred, batch, 0, {"uncertainty": scale})["laplace"]
    least = math.log(0.01) + 7  # of a perfect prediction
    assert float(loss) == pytest.approx(least, abs=1e-3)
    assert task.losses(pred, replace(batch, pasted=None), 0, {"uncertainty": scale})["laplace"] > least + 30
    assert task.losses(pred, replace(batch, depth_kinds=("affine",)), 0, {"uncertainty": scale})["laplace"] == 0


def test_the_worst_pixels_of_each_image_are_dropped_among_those_that_count() -> None:
    errors = torch.tensor([[[9.0, 1, 2, 3, 8, 4, 5, 6, 7, 0]], [[0.0, 1, 2, 3, 4, 5, 6, 7, 8, 9]]])
    mask = torch.ones(2, 1, 10, dtype=torch.bool)
    mask[1, 0, 5:] = False
    kept = best_pixels(errors, mask, 0.2)
    assert kept[0, 0].tolist() == [False, True, True, True, False, *[True] * 5]
    assert kept[1, 0].tolist() == [True, True, True, True, False, *[False] * 5]  # 1 of 5
    assert best_pixels(errors, mask, 0.0).equal(mask)
