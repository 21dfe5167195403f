"""Segments of samples: read, moved, cut, mixed and stacked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from densevit.data.datasets.rooms import CLASSES, Rooms
from densevit.data.fields import crop_sample
from densevit.data.labels.joined_classes import JoinedClasses
from densevit.data.loading.collate import collate
from densevit.data.loading.cutmix import cutmix
from densevit.structures import IGNORE, Sample

IDS = np.array([[1, 1, 1, 1, 2, 2], [1, 1, 1, 1, 2, 2], [1, 1, 1, 1, 3, 3], [0, 0, 0, 0, 3, 3]], np.int32)
SAMPLE = Sample(
    name="one",
    image=np.zeros((4, 6, 3), np.uint8),
    segments=IDS,
    segment_classes=np.array([5, 7, 7]),
    segment_crowd=np.array([False, False, True]),
)


def test_what_a_crop_leaves_of_a_segment_is_dropped_if_tiny_and_small_segments_stay() -> None:
    cropped = crop_sample(SAMPLE, (0, 4, 3, 6)).segments
    np.testing.assert_array_equal(cropped, [[0, 2, 2], [0, 2, 2], [0, 3, 3], [0, 3, 3]])  # 3 of 12 pixels are left
    point = replace(SAMPLE, segments=np.where(IDS == 1, IDS, 0) + (np.arange(24).reshape(4, 6) == 23).astype(np.int32))
    np.testing.assert_array_equal(crop_sample(point, (0, 4, 1, 6)).segments, point.segments[:, 1:])


def test_a_batch_pads_the_classes_to_the_longest_image() -> None:
    other = replace(SAMPLE, name="two", segments=np.ones((4, 6), np.int32), segment_classes=np.array([9]),
                    segment_crowd=np.array([False]))  # fmt: skip
    none = Sample(name="three", image=SAMPLE.image)
    batch = collate([SAMPLE, other, none], [0, 1, 2]).to(torch.device("cpu"))
    assert batch.segments is not None and batch.segment_classes is not None and batch.segment_crowd is not None
    assert batch.segment_classes.tolist() == [[5, 7, 7], [9, -1, -1], [-1, -1, -1]]
    assert batch.segment_crowd.tolist() == [[False, False, True], [False] * 3, [False] * 3]
    assert batch.segments.dtype == torch.int64 and not batch.segments[2].any()
    np.testing.assert_array_equal(batch.segments[0], IDS)


def test_cutmix_numbers_the_pasted_segments_after_the_others() -> None:
    other = replace(SAMPLE, segment_classes=np.array([1, 2, 3]))
    mixed = cutmix(SAMPLE, other, np.random.default_rng(0))
    assert mixed.segment_classes is not None and mixed.segment_classes.tolist() == [5, 7, 7, 1, 2, 3]
    np.testing.assert_array_equal(mixed.segments, np.where(mixed.pasted & (IDS > 0), IDS + 3, IDS))


def test_joined_classes_map_segments_and_drop_those_without_a_class() -> None:
    lookup = np.full(IGNORE + 1, IGNORE)
    lookup[7] = 2
    mapped = JoinedClasses(("a", "b", "c"), (), {"one": lookup}).map_sample("one", SAMPLE)
    assert mapped.segment_classes is not None and mapped.segment_classes.tolist() == [2, 2]
    np.testing.assert_array_equal(mapped.segments, np.where(IDS > 1, IDS - 1, 0))


def test_rooms_have_a_segment_for_each_thing_and_one_for_each_class_of_stuff(tmp_path: Path) -> None:
    folder = tmp_path / "train/scene_00000"
    folder.mkdir(parents=True)
    labels = np.array([[0, 0, 9, 9], [1, 255, 9, 0]], np.uint8)
    objects = np.array([[0, 0, 4, 5], [0, 7, 4, 0]], np.uint16)
    for name, pixels in {"labels": labels, "instances": objects, "depth": objects}.items():
        Image.fromarray(pixels).save(folder / f"{name}_00.png")
    Image.fromarray(np.zeros((2, 4, 3), np.uint8)).save(folder / "rgb_00.jpg")
    (folder / "intrinsics.json").write_text("[[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]")
    (tmp_path / "dataset.json").write_text('{"version": 1, "frames": 1, "scenes": {"train": 1}}')
    rooms = Rooms(root=tmp_path, instances=True)
    sample = rooms.read(0)
    assert sample.segment_classes is not None and sample.segment_classes.tolist() == [0, 1, 9, 9]
    np.testing.assert_array_equal(sample.segments, [[1, 1, 3, 4], [2, 0, 3, 1]])
    assert {CLASSES[i] for i in set(range(18)) - set(rooms.things)} == {"wall", "floor", "ceiling"}
