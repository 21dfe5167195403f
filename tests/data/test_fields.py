"""The table of a sample's fields: none is forgotten by transforms, crops, CutMix or collation."""

from dataclasses import fields, replace

import numpy as np
import pytest

from densevit.data.fields import FIELDS, crop_sample
from densevit.data.loading.augmented import cutmix
from densevit.data.loading.collate import STACKED, collate
from densevit.errors import DataError
from densevit.structures import Batch, Sample

H, W = 6, 8
SAMPLE = Sample(
    name="one",
    image=np.arange(H * W * 3, dtype=np.uint8).reshape(H, W, 3),
    depth=np.arange(H * W, dtype=np.float32).reshape(H, W),
    valid=np.ones((H, W), np.bool_),
    inputs={"points": np.arange(H * W, dtype=np.float32).reshape(H, W)},
    intrinsics=np.array([[10.0, 0, 4], [0, 10.0, 3], [0, 0, 1]]),
    pose=np.eye(4),
)


def test_the_table_has_every_array_of_a_sample_and_every_tensor_of_a_batch() -> None:
    arrays = {field.name for field in fields(Sample) if field.name != "inputs" and "ndarray" in str(field.type)}
    tensors = {field.name for field in fields(Batch) if field.name != "inputs" and "Tensor" in str(field.type)}
    assert arrays | {"label", "points"} <= set(FIELDS)  # objectives add fields of theirs
    assert tensors <= set(STACKED)


def test_a_crop_takes_a_window_of_all_maps_and_moves_the_principal_point() -> None:
    cropped = crop_sample(SAMPLE, (1, 4, 2, 7))
    for name in ("image", "depth", "valid", "points"):
        np.testing.assert_array_equal(cropped.arrays()[name], SAMPLE.arrays()[name][1:4, 2:7])
    np.testing.assert_array_equal(cropped.intrinsics, [[10, 0, 2], [0, 10, 2], [0, 0, 1]])
    np.testing.assert_array_equal(cropped.pose, SAMPLE.pose)


def test_measured_points_of_a_pasted_rectangle_are_those_of_its_image() -> None:
    mixed = cutmix(SAMPLE, Sample(name="two", image=SAMPLE.image), np.random.default_rng(0))
    assert mixed.pasted is not None and mixed.pasted.any()
    np.testing.assert_array_equal(mixed.inputs["points"], np.where(mixed.pasted, 0, SAMPLE.inputs["points"]))


def test_pixels_of_another_type_than_a_sample_has_are_no_batch() -> None:
    """Such a plug-in trained in silence: an image of floats up to 255 was one of 255 times the brightness."""
    for name, given in (("image", np.float32), ("depth", np.float64), ("valid", np.uint8)):
        sample = replace(SAMPLE)
        object.__setattr__(sample, name, getattr(SAMPLE, name).astype(given))  # past the check of tests
        with pytest.raises(DataError, match=f"'one': {name} is {given.__name__} instead of"):
            collate([sample], [0])
