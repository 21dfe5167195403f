"""Segments of samples: read, moved, cut, mixed and stacked."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from densevit.data.datasets.folder import Folder
from densevit.data.datasets.rooms import CLASSES, Rooms
from densevit.data.fields import crop_sample
from densevit.data.labels.joined_classes import JoinedClasses
from densevit.data.loading.augmented import cutmix
from densevit.data.loading.collate import collate
from densevit.errors import DataError
from densevit.losses.point_sampling import VOID
from densevit.losses.set_criterion import BACKGROUND
from densevit.model_card import HeadSpec
from densevit.ops.segments import InstancePrediction, segments_of_ids, segments_of_labels
from densevit.structures import IGNORE, Sample
from densevit.tasks.segments import InstancesTask, PanopticTask

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
    assert batch.segments.dtype == torch.int64 and (batch.segments[2] == -1).all()
    np.testing.assert_array_equal(batch.segments[0], IDS)


@pytest.mark.parametrize(("task_type", "outside"), [(PanopticTask, VOID), (InstancesTask, BACKGROUND)])
def test_an_image_without_segments_is_unknown_and_one_without_objects_is_not(
    task_type: type[PanopticTask], outside: int
) -> None:
    spec = HeadSpec(kind=task_type.kinds[0], unit="", classes=tuple("abcdefgh"), things=(5, 7))
    task = task_type("head", spec, (), lambda *_: {"scored": 1.0}, lambda rows: {})
    none = Sample(name="two", image=SAMPLE.image)
    empty = replace(SAMPLE, name="three", segments=np.zeros_like(IDS))
    half = cutmix(SAMPLE, none, np.random.default_rng(0), [5])
    batch = collate([SAMPLE, none, empty, half], range(4)).to(torch.device("cpu"))
    expected = np.array([outside, 0, 1, VOID])[IDS]  # the third is a crowd
    ids = task.ground_truth(batch).ids
    np.testing.assert_array_equal(ids[0], expected)
    assert (ids[1] == VOID).all() and (ids[2] == outside).all()
    np.testing.assert_array_equal(ids[3], np.where(half.pasted, VOID, expected))
    predicted = InstancePrediction(np.zeros((0, 4, 6), np.bool_), np.zeros(0, np.int64), np.zeros(0, np.float32))
    assert [*map(bool, task.image_scores([predicted] * 4, batch))] == [True, False, True, False]


def test_cutmix_numbers_the_pasted_segments_after_the_others() -> None:
    other = replace(SAMPLE, segment_classes=np.array([1, 2, 3]))
    mixed = cutmix(SAMPLE, other, np.random.default_rng(0))
    assert mixed.segment_classes is not None and mixed.segment_classes.tolist() == [5, 7, 7, 1, 2, 3]
    np.testing.assert_array_equal(mixed.segments, np.where(mixed.pasted & (IDS > 0), IDS + 3, IDS))


def test_stuff_of_both_images_of_cutmix_is_one_segment_and_objects_are_several() -> None:
    mixed = cutmix(SAMPLE, replace(SAMPLE, name="two"), np.random.default_rng(0), things=[7])
    assert mixed.segment_classes is not None and mixed.segment_classes.tolist() == [5, 7, 7, 7, 7]
    np.testing.assert_array_equal(mixed.segments, np.where(mixed.pasted & (IDS > 1), IDS + 2, IDS))


def test_joined_classes_map_segments_and_drop_those_without_a_class() -> None:
    lookup = np.full(IGNORE + 1, IGNORE)
    lookup[7] = 2
    mapped = JoinedClasses(("a", "b", "c"), (), {"one": lookup}).map_sample("one", SAMPLE, [2])
    assert mapped.segment_classes is not None and mapped.segment_classes.tolist() == [2, 2]
    np.testing.assert_array_equal(mapped.segments, np.where(IDS > 1, IDS - 1, 0))


def test_two_classes_of_stuff_that_are_joined_are_one_segment_and_objects_stay_apart() -> None:
    lookup = np.full(IGNORE + 1, 1)
    joined = JoinedClasses(("wall", "ground"), (), {"one": lookup})
    sample = replace(SAMPLE, segment_crowd=np.zeros(3, np.bool_))
    stuff, objects = (joined.map_sample("one", sample, things) for things in ([0], [0, 1]))
    assert stuff.segment_classes is not None and stuff.segment_classes.tolist() == [1]
    np.testing.assert_array_equal(stuff.segments, np.minimum(IDS, 1))
    assert objects.segment_classes is not None and objects.segment_classes.tolist() == [1, 1, 1]
    np.testing.assert_array_equal(objects.segments, IDS)


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


def test_a_crowd_is_a_thing_without_a_number_and_stuff_is_one_segment() -> None:
    labels = np.array([[0, 0, 11, 11, 12, 255]])
    objects = np.array([[7, 8, 0, 11000, 12001, 0]])
    found = segments_of_labels(labels, objects, range(11, 19))
    assert found.ids.tolist() == [[1, 1, 2, 3, 4, 0]]
    assert found.classes.tolist() == [0, 11, 11, 12] and found.crowd.tolist() == [False, True, False, False]
    assert found.labels().tolist() == [[0, 0, 255, 11, 12, 255]]
    large, unknown = segments_of_ids(np.array([[1 << 27, 5, 0]]), [1 << 27], [3], [False])
    assert large.ids.tolist() == [[1, 0, 0]] and unknown == [5]


def folder(root: Path, ids: np.ndarray, table: str = "", labels: np.ndarray | None = None) -> Path:
    maps = {"images": np.zeros((*ids.shape[:2], 3), np.uint8), "segments": ids}
    for kind, pixels in {**maps, **({} if labels is None else {"labels": labels})}.items():
        (root / kind).mkdir(parents=True)
        Image.fromarray(pixels).save(root / kind / "a.png")
    (root / "classes.json").write_text('[{"id": 0, "name": "sky", "isthing": 0}, {"id": 1, "name": "car"}]')
    if table:
        (root / "segments.csv").write_text(table)
    return root


IMAGE_IDS = np.array([[0, 300, 300], [4, 4, 300]], np.uint16)


def test_a_folder_has_maps_of_segments_and_a_table_or_a_label_map_for_their_classes(tmp_path: Path) -> None:
    table = Folder(root=folder(tmp_path / "a", IMAGE_IDS, "image,id,class,crowd\na,4,sky,\na,300,1,1.0\n"))
    assert list(table.things) == [1]
    sample = table.read(0)
    assert sample.segment_classes is not None and sample.segment_classes.tolist() == [0, 1]
    assert sample.segment_crowd is not None and sample.segment_crowd.tolist() == [False, True]
    np.testing.assert_array_equal(sample.segments, [[0, 2, 2], [1, 1, 2]])
    np.testing.assert_array_equal(sample.labels, [[255, 255, 255], [0, 0, 255]])
    np.testing.assert_array_equal(table.label_map(0), sample.labels)
    colours = np.stack([IMAGE_IDS % 256, IMAGE_IDS // 256, 0 * IMAGE_IDS], -1).astype(np.uint8)
    labels = np.array([[255, 1, 1], [0, 0, 1]], np.uint8)
    named = Folder(root=folder(tmp_path / "b", colours, labels=labels)).read(0)
    assert named.segment_classes is not None and named.segment_classes.tolist() == [0, 1]
    np.testing.assert_array_equal(named.segments, [[0, 2, 2], [1, 1, 2]])


def test_numbers_in_a_table_of_segments_are_ids_of_the_list_of_classes(tmp_path: Path) -> None:
    root = folder(tmp_path, IMAGE_IDS, "image,id,class\na,4,1\na,300,2\n")
    (root / "classes.json").write_text('{"1": "sky", "2": "car", "3": "tree"}')
    data = Folder(root=root)
    assert [data.classes[i] for i in data.read(0).segment_classes] == ["sky", "car"]


def test_segments_below_0_are_refused(tmp_path: Path) -> None:
    root = folder(tmp_path, IMAGE_IDS, "image,id,class\na,4,sky\na,300,car\n")
    (root / "segments/a.png").unlink()
    np.save(root / "segments/a.npy", IMAGE_IDS.astype(np.int32) - 1)
    with pytest.raises(DataError, match=r"a.npy: segment -1; numbers of segments go from 1 on"):
        Folder(root=root).read(0)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("image,id\na,4\n", "segments.csv:2: needs the columns image, id and class"),
        (
            "image,id,class\na,4,sky\na,4,car\n",
            "segments.csv:3: an id is a whole number from 1 on, once for each image",
        ),
        ("image,id,class,crowd\na,4,sky,yes\n", "segments.csv:2: crowd is 0 or 1, or false or true; got 'yes'"),
        ("image,id,class\na,4,skye\n", "segments.csv:2: no class 'skye'. Did you mean 'sky'"),
        ("image,id,class\nb,4,sky\n", "no image 'b'"),
        ("image,id,class\na,4,sky\n", "segment 300 has no row in the table of segments"),
        ("", "neither segments.csv nor a label map of its size says its classes"),
    ],
)
def test_faults_of_a_table_of_segments_are_named(tmp_path: Path, table: str, message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        Folder(root=folder(tmp_path, IMAGE_IDS, table)).read(0)
