"""Files of segments: read back by the data sets and by pycocotools."""

import csv
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import trimesh
from PIL import Image
from pycocotools import mask as coco_mask

from densevit.data.datasets.segmentation.yolo import paint, read_outlines
from densevit.data.io.coco import read_panoptic_ids
from densevit.depth_corrections import Interval
from densevit.errors import ConfigError
from densevit.inference.camera import Intrinsics
from densevit.inference.writers import PredictedMap
from densevit.inference.writers.segments import (
    CocoResults,
    Crops,
    ObjectTable,
    PanopticPng,
    SegmentOverlay,
    YoloOutlines,
)
from densevit.inference.writers.surface import SegmentCloud
from densevit.model_card import HeadSpec
from densevit.ops.segments import PanopticPrediction, write_names

SIZE = (40, 60)
LOGIT = 6.0


def frame(kind: str) -> PredictedMap:
    """Sky, a car of two parts and a smaller one; and a query without a class."""
    masks = np.full((4, *SIZE), -LOGIT, np.float32)
    masks[0], masks[0, 20:] = LOGIT, -LOGIT
    masks[1, 22:30, 5:25] = masks[1, 33:38, 5:9] = LOGIT
    masks[2, 25:35, 35:55] = LOGIT
    classes = np.array([[9, 0, 0], [0, 9, 0], [0, 7, 0], [0, 0, 9]], np.float32)
    spec = HeadSpec(kind=kind, unit="", classes=("sky", "car"), things=(1,))
    image = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    return PredictedMap(values=masks, image=image, spec=spec, classes=classes.reshape(-1, 1, 1))


def test_panoptic_files_are_those_of_coco(tmp_path: Path) -> None:
    known = tmp_path / "known.json"
    images, categories = [{"id": 5, "file_name": "b/12.jpg"}], [{"id": 90, "name": "sky"}, {"id": 3, "name": "car"}]
    known.write_text(json.dumps({"images": images, "annotations": [{}], "categories": categories}))
    (tmp_path / "b").mkdir()
    path, shown = tmp_path / "b/12.panoptic.png", frame("panoptic")
    for writer, image, first in ((PanopticPng(), 12, 1), (PanopticPng(annotations=known), 5, 90)):
        writer.check(shown.spec)
        writer.write(path, shown)
        writer.write_list(tmp_path, shown.spec, [path])
        tree = json.loads((tmp_path / "panoptic.json").read_text())
        assert tree["images"] == [{"id": image, "file_name": "b/12", "height": 40, "width": 60}]
        assert tree["categories"][0] == {"id": first, "name": "sky", "isthing": 0}
        (annotation,) = tree["annotations"]
        assert annotation["image_id"] == image and annotation["file_name"] == "b/12.panoptic.png"
        ids = read_panoptic_ids(path)
        for one in annotation["segments_info"]:
            assert one["area"] == (ids == one["id"]).sum() and one["iscrowd"] == 0
        assert [one["isthing"] for one in annotation["segments_info"]] == [0, 1, 1]
        assert annotation["segments_info"][2]["bbox"] == [35, 25, 20, 10]
    with pytest.raises(ConfigError, match="no category 'tree', which the model predicts"):
        PanopticPng(annotations=known).check(HeadSpec(kind="panoptic", unit="", classes=("sky", "tree")))


def test_results_are_run_lengths_that_pycocotools_reads(tmp_path: Path) -> None:
    path, shown = tmp_path / "a.instances.json", frame("instances")
    CocoResults().write(path, shown)
    CocoResults().write_list(tmp_path, shown.spec, [path])
    rows = json.loads((tmp_path / "instances.json").read_text())
    best = max((row for row in rows if row["category_id"] == 2), key=lambda row: row["score"])
    assert best["image_id"] == "a" and coco_mask.area(best["segmentation"]) == 8 * 20 + 5 * 4
    # COCO.loadRes takes the size of a box for that of its mask: small objects would be medium ones.
    assert best["category_name"] == "car" and "bbox" not in best


@pytest.mark.parametrize("kind", ["panoptic", "instances"])
def test_outlines_come_back_and_crops_show_the_object_alone(tmp_path: Path, kind: str) -> None:
    shown = frame(kind)
    YoloOutlines().write(tmp_path / "a.txt", shown)
    found = paint(read_outlines(tmp_path / "a.txt", 2), SIZE)
    cars = shown.values[1:3] > 0
    assert sorted(found.classes.tolist()) == ([1, 1] if kind == "panoptic" else [0, 1, 1])
    rows = np.flatnonzero(found.classes == 1)
    for row, car in zip(rows, cars, strict=True):
        inside = found.ids == row + 1
        # The line that joins both parts of the first car has a width when it is drawn.
        assert (inside & car).sum() == car.sum() and (inside & ~car).sum() <= 4
    Crops().write(tmp_path / "a.zip", shown)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        name = "003_car"  # behind the sky and the other car
        name = next(listed for listed in archive.namelist() if listed.startswith(name))
        crop = np.asarray(Image.open(io.BytesIO(archive.read(name))))
    assert crop.shape == (10, 20, 4) and (crop[..., 3] == 255).all()
    np.testing.assert_array_equal(crop[..., :3], shown.image[25:35, 35:55])


def test_yolo_counts_its_classes_without_the_empty_position_255(tmp_path: Path) -> None:
    names = (*(f"c{i}" for i in range(255)), "(no class)", "c255")
    spec = HeadSpec(kind="instances", unit="", classes=names, things=(254, 256))
    masks, classes = np.full((2, *SIZE), -LOGIT, np.float32), np.zeros((2, 258), np.float32)
    masks[0, :20], masks[1, 20:], classes[0, 254], classes[1, 256] = LOGIT, LOGIT, 20, 20
    shown = PredictedMap(values=masks, image=frame("instances").image, spec=spec, classes=classes.reshape(-1, 1, 1))
    YoloOutlines().write(tmp_path / "a.txt", shown)
    assert sorted(number for number, _ in read_outlines(tmp_path / "a.txt", 256)) == [254, 255]


def test_an_overlay_colours_segments_and_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[list[str]] = []

    def record(image: np.ndarray, found: PanopticPrediction, names: list[str]) -> np.ndarray:
        written.append(names)
        return write_names(image, found, names)

    monkeypatch.setattr("densevit.inference.writers.segments.write_names", record)
    shown = frame("panoptic")
    for names in (False, True):
        SegmentOverlay(names=names).write(tmp_path / f"{names}.png", shown)
    plain, named = (cv2.imread(str(tmp_path / f"{names}.png")) for names in (False, True))
    assert plain.shape == (*SIZE, 3) and (plain != named).any()
    np.testing.assert_array_equal(plain[38:, :4, ::-1], shown.image[38:, :4])  # void
    depth = np.full(SIZE, 4.0, np.float32)
    depth[:, 35:], depth[:24] = 2.44, 0.0
    metric = PredictedMap(values=depth, image=shown.image, spec=HeadSpec(kind="metric"))
    SegmentOverlay().write(tmp_path / "metres.png", replace(shown, depth=metric))
    assert written == [["sky 1.00", "car 1.00", "car 1.00"], ["sky 1.00", "car 1.00, 4.0 m", "car 1.00, 2.4 m"]]


def test_names_do_not_cover_each_other() -> None:
    """Three narrow neighbours whose names are wider than themselves."""
    ids = np.zeros((120, 200), np.int32)
    for row in range(3):
        ids[40:80, 80 + 10 * row : 90 + 10 * row] = row + 1
    found = PanopticPrediction(ids, np.zeros(3, np.int64), np.ones(3, np.float32), np.ones(3, np.bool_))
    one = [write_names(np.zeros((120, 200, 3), np.uint8), found, names) for names in (["chair"], ["chair"] * 3)]
    areas = [(image == 255).all(2).sum() for image in one]
    assert areas[1] == 3 * areas[0]


def test_objects_are_listed_with_metres_where_there_is_depth(tmp_path: Path) -> None:
    shown, path = frame("instances"), tmp_path / "a.objects.json"
    depth = np.full(SIZE, 4.0, np.float32)
    depth[:, 35:] = 2.0
    interval = Interval(level=0.9, depths=(1.0,), factors=(2.0,), images=3, data="")
    metric = PredictedMap(
        values=depth, image=shown.image, spec=HeadSpec(kind="metric", interval=interval),
        uncertainty=np.full(SIZE, 0.1, np.float32),
    )  # fmt: skip
    both = replace(shown, depth=metric, camera=Intrinsics(50.0, 25.0, 30.0, 20.0))
    writer = ObjectTable()
    writer.write(path, both)
    first, second = (row for row in json.loads(path.read_text()) if row["class"] == "car")
    assert (first["depth_m"], second["depth_m"]) == (4.0, 2.0)
    assert (second["low_m"], second["high_m"]) == pytest.approx((2 * np.exp(-0.2), 2 * np.exp(0.2)), abs=1e-4)
    assert (second["width_m"], second["height_m"]) == (20 * 2 / 50, 10 * 2 / 25)
    writer.write_list(tmp_path, shown.spec, [path])
    rows = list(csv.DictReader((tmp_path / "objects.csv").read_text().splitlines()))
    assert rows[-1]["image"] == "a" and float(rows[-1]["width_m"]) == 0.8 and rows[-1]["w"] == "20"
    writer.write(path, shown)
    assert {row["depth_m"] for row in json.loads(path.read_text())} == {None}


def test_a_cloud_tells_its_segments_apart(tmp_path: Path) -> None:
    shown, path = frame("panoptic"), tmp_path / "a.segments.ply"
    depth = np.full(SIZE, 2.0, np.float32)
    depth[:2] = np.nan
    metric = PredictedMap(
        values=depth, image=shown.image, spec=HeadSpec(kind="metric"), camera=Intrinsics(50.0, 25.0, 30.0, 20.0)
    )
    SegmentCloud().write(path, replace(shown, depth=metric))
    points = trimesh.load(path)
    assert len(points.vertices) == 38 * 60
    text, _, data = path.read_bytes().partition(b"end_header\n")
    assert b"property int segment" in text
    rows = np.frombuffer(data, [(axis, "<f4") for axis in "xyz"] + [("rgb", "u1", 3), ("segment", "<i4")])
    numbers = np.zeros(SIZE, int)
    numbers[:20], numbers[25:35, 35:55], numbers[22:30, 5:25], numbers[33:38, 5:9] = 1, 3, 2, 2  # as `frame` draws them
    np.testing.assert_array_equal(rows["segment"].reshape(38, 60), numbers[2:])
    ObjectTable().write(tmp_path / "a.objects.json", shown)
    listed = {row["object"]: row["area"] for row in json.loads((tmp_path / "a.objects.json").read_text())}
    assert listed == {2: (numbers == 2).sum(), 3: (numbers == 3).sum()}  # one number in all files; the sky is none
    # By hand: column 40, row 30 is 10 right and 10 below of the principal point, at 2 m.
    np.testing.assert_allclose(
        np.stack([rows[axis].reshape(38, 60)[28, 40] for axis in "xyz"]), [0.4, 0.8, 2.0], rtol=1e-6
    )


def test_images_that_folders_alone_tell_apart_have_ids_of_their_own(tmp_path: Path) -> None:
    names = ["a/1", "b/1", "c/2"]
    for name in names:
        (tmp_path / name).parent.mkdir()
    panoptic, coco = ([tmp_path / f"{name}{kind.suffix}" for name in names] for kind in (PanopticPng, CocoResults))
    for one, other in zip(panoptic, coco, strict=True):
        PanopticPng().write(one, frame("panoptic"))
        CocoResults().write(other, frame("instances"))
    PanopticPng().write_list(tmp_path, frame("panoptic").spec, panoptic)
    CocoResults().write_list(tmp_path, frame("instances").spec, coco)
    tree = json.loads((tmp_path / "panoptic.json").read_text())
    ids = ["a/1", "b/1", 2]
    assert [one["id"] for one in tree["images"]] == [one["image_id"] for one in tree["annotations"]] == ids
    rows = json.loads((tmp_path / "instances.json").read_text())
    assert list(dict.fromkeys(row["image_id"] for row in rows)) == ids
