"""Truth against the range of a head, on data made in memory."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import add_cameras, small_folder

from densevit.data.datasets.base import Dataset, MixtureSource, open_dataset
from densevit.data.sanity_checks import (
    check_cameras,
    check_depth_range,
    check_ground_truth,
    check_labels,
    check_transforms,
    found_truths,
    has_cameras,
    median_focal,
)
from densevit.data.transforms.geometric import RandomCrop, RandomScale, compose
from densevit.data.transforms.photometric import DepthRange
from densevit.errors import DataError
from densevit.structures import IGNORE, Sample
from densevit.tasks.classification import ClassificationTask
from densevit.tasks.segmentation import SegmentationTask
from densevit.tasks.segments import PanopticTask


@dataclass(init=False)  # so it has no hash
class Flat(Dataset):
    """Forty images; the depth of pixel i of any is `values[i]`, 0 where there is none."""

    def __init__(self, values: list[float]) -> None:
        self.names = [str(i) for i in range(40)]
        self.values = np.array([values], np.float32)
        self.read_ones: list[int] = []
        self.more: dict[str, Any] = {}

    def read(self, index: int) -> Sample:
        self.read_ones.append(index)
        image = np.zeros((*self.values.shape, 3), np.uint8)
        return Sample(name=self.names[index], image=image, depth=self.values, valid=self.values > 0, **self.more)


def test_truth_within_the_range_needs_no_word_and_few_samples() -> None:
    data = Flat([1.0, 2.0, 8.0])
    assert check_depth_range(data, 0.001, 10) == []
    assert len(data.read_ones) == 16 and data.read_ones[0] == 0 and data.read_ones[-1] == 39


def test_what_asks_for_cameras_is_named_where_there_are_none() -> None:
    with pytest.raises(DataError, match=r"none of 16 samples .*model\.camera: canonical.*model\.conditioning\.rays"):
        check_cameras(Flat([1.0]), "data.train")


@pytest.mark.parametrize("truths", [None, ("labels",)])
def test_labels_of_pixels_images_and_segments_differ_and_what_a_source_has_is_read_once(
    truths: tuple[str, ...] | None,
) -> None:
    pixels, images, segments = Flat([1.0]), Flat([1.0]), Flat([1.0])
    segments.more = {"segments": np.zeros((1, 1), np.int32)}
    pixels.more, images.more = {"labels": np.zeros((1, 1), np.int64)}, {"label": 3}
    for data, task in ((pixels, SegmentationTask), (images, ClassificationTask), (segments, PanopticTask)):
        for _ in range(3):
            found = found_truths(MixtureSource("a", data, 1.0, truths))
            assert task.ground_truth_kinds([]) == found - {"metric"} and not has_cameras(data)
        assert len(data.read_ones) == 4


def test_data_without_anything_to_learn_from_is_refused_once_all_of_it_was_read() -> None:
    nothing, some = Flat([0.0, float("nan")]), Flat([0.0, 1.0])
    with pytest.raises(DataError, match=r"nothing to learn from: none of all 40 samples has a pixel of valid depth\."):
        check_ground_truth(nothing, depth=True, labels=False)
    check_ground_truth(some, depth=True, labels=False)
    assert (len(nothing.read_ones), len(some.read_ones)) == (40, 1)


def test_transforms_that_leave_nothing_to_learn_from_are_a_warning() -> None:
    data, only = Flat([0.0, 2000.0]), {"depth": True, "labels": False}  # millimetres that are read as metres
    (warning,) = check_transforms(data, compose([DepthRange(far=10)]), 0, **only)
    assert warning == "data.transforms: none of 16 samples looked at has any ground truth left to learn from."
    assert check_transforms(data, compose([DepthRange(far=4000)]), 0, **only) == []
    crop = compose([RandomCrop(size=(1, 1))])  # which every second time misses the only measured pixel
    assert check_transforms(data, crop, 0, **only) == []


@pytest.mark.parametrize(("factor", "unit"), [(1000, "millimetres"), (100, "centimetres"), (0.001, "kilometres")])
def test_truth_in_another_unit_is_refused_and_the_unit_guessed(factor: float, unit: str) -> None:
    with pytest.raises(DataError, match=f"none of it within the head's range, 1 to 10 m. The values look like {unit}"):
        check_depth_range(Flat([2.0 * factor, 3.0 * factor, 4.0 * factor]), 1, 10)


def test_truth_mostly_outside_is_a_warning_with_the_share() -> None:
    (warning,) = check_depth_range(Flat([5.0, 30.0, 40.0, 50.0]), 0.001, 10)
    assert "median 35" in warning and "75% lies outside the head's range, 0.001 to 10 m" in warning


def test_a_range_far_beyond_the_truth_is_a_warning_with_what_would_fit() -> None:
    (warning,) = check_depth_range(Flat([1.0, 2.0, 5.0]), 0.001, 80)
    assert "the head reaches 80 m" in warning and "set max_depth to 10" in warning
    assert check_depth_range(Flat([1.0, 2.0, 5.0]), 0.001, 80, loaded=True) == []  # the weights' own range


def test_samples_that_lie_a_hundred_times_apart_are_a_warning_that_names_two() -> None:
    class Mixed(Flat):
        """Metres, divided by a thousand in every second sample: PNG in millimetres beside NPY in metres, say."""

        def read(self, index: int) -> Sample:
            sample = super().read(index)
            return replace(sample, depth=sample.depth / np.float32(1000)) if index % 2 else sample

    (warning,) = check_depth_range(Mixed([2.0, 6.0, 9.0]), 0.001, 10)
    assert "the median of '3' is 0.006 m, that of '0' 6 m. Do their files hold different units?" in warning


def test_data_without_any_truth_is_a_warning_since_other_samples_may_have_some() -> None:
    (warning,) = check_depth_range(Flat([0.0, 0.0]), 0.001, 10)
    assert "none of 16 samples looked at, of 40, has any depth" in warning


class Painted(Dataset):
    """Forty images; pixel i of any is of class `ids[i]`."""

    classes = ("background", "cat")

    def __init__(self, ids: list[int]) -> None:
        self.names = [str(i) for i in range(40)]
        self.ids = np.array([ids])

    def read(self, index: int) -> Sample:
        return Sample(name=self.names[index], image=np.zeros((*self.ids.shape, 3), np.uint8), labels=self.ids)


def test_labels_that_tell_nothing_apart_are_a_warning() -> None:
    assert check_labels(Painted([0, 1, IGNORE])) == []
    (warning,) = check_labels(Painted([IGNORE, IGNORE]))
    assert "none of 16 samples looked at, of 40, has a pixel with a class" in warning
    (warning,) = check_labels(Painted([0, IGNORE]))
    assert "every pixel that has a class is 'background'" in warning and "Masks of 0 and 255" in warning


def test_the_median_focal_length_of_a_mixture_is_that_after_the_transforms_of_each_source(tmp_path: Path) -> None:
    add_cameras(small_folder(tmp_path))  # 50 to 100 pixels, in the median 65
    data = {"type": "folder", "root": str(tmp_path), "depth_scale": 1000}
    half = {"data": data, "transforms": [{"type": "resize", "size": [30, 40]}]}
    whole = RandomScale(range=(2.0, 2.0), metric="intrinsics")
    assert median_focal(open_dataset(data), whole, 0) == 130
    assert median_focal(open_dataset({"type": "mix", "sources": [half]}), whole, 0) == 65
