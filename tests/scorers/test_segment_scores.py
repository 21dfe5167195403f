"""Segments of a model, and those that were saved of it, have the same scores; wrong files are one sentence."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import densevit
from densevit.data.datasets.base import Part, open_dataset
from densevit.data.io.coco import encode_mask, encode_panoptic_ids
from densevit.data.segment_predictions import SavedSegments, image_names
from densevit.errors import DataError
from densevit.evaluation.segments.scores import InstanceScores, PanopticScores
from densevit.inference.predictor import Predictor
from densevit.model_card import HeadSpec, ModelCard
from densevit.preprocess_config import PreprocessConfig
from densevit.scorers.segments import evaluate_segments

SIZE = (40, 60)
CATEGORIES = [{"id": 3, "name": "sky", "isthing": 0}, {"id": 7, "name": "car", "isthing": 1}]


def truth(i: int) -> np.ndarray:
    ids = np.full(SIZE, 1, np.int32)
    ids[20:, 5 + i : 25 + i] = 2
    ids[25:35, 35:55] = 3
    ids[:3, :3] = 0
    return ids


def data(root: Path, images: int = 7) -> dict[str, Any]:
    """COCO's panoptic files of a sky and two cars."""
    (root / "images").mkdir(parents=True)
    (root / "panoptic").mkdir()
    listed, annotations = [], []
    for i in range(images):
        Image.fromarray((80 * truth(i)[..., None].repeat(3, 2)).astype(np.uint8)).save(root / f"images/{i:03d}.png")
        (root / f"panoptic/{i:03d}.png").write_bytes(encode_panoptic_ids(truth(i)))
        listed.append({"id": 50 + i, "file_name": f"{i:03d}.png", "height": SIZE[0], "width": SIZE[1]})
        info = [{"id": 1, "category_id": 3}, {"id": 2, "category_id": 7}, {"id": 3, "category_id": 7}]
        annotations.append({"image_id": 50 + i, "file_name": f"{i:03d}.png", "segments_info": info})
    tree = {"images": listed, "annotations": annotations, "categories": CATEGORIES}
    (root / "panoptic.json").write_text(json.dumps(tree))
    return {"type": "coco", "root": str(root)}


def saved_panoptic(folder: Path, images: int = 7) -> Path:
    """One car less than there is, and the other a quarter too small."""
    (folder / "found").mkdir(parents=True)
    rows = []
    for i in range(images):
        ids = np.where(truth(i) == 3, 0, truth(i)) * 1000
        ids[20:25][ids[20:25] == 2000] = 0
        (folder / f"found/{i:03d}.png").write_bytes(encode_panoptic_ids(ids))
        info = [{"id": 1000, "category_id": 3}, {"id": 2000, "category_id": 7}]
        rows.append({"image_id": 50 + i, "file_name": f"{i:03d}.png", "segments_info": info})
    (folder / "found.json").write_text(json.dumps({"annotations": rows}))
    return folder / "found.json"


def test_saved_panoptic_maps_have_the_scores_of_a_hand_calculation_and_a_report(tmp_path: Path) -> None:
    found = densevit.evaluate(predictions=saved_panoptic(tmp_path), data=data(tmp_path / "data"))
    assert isinstance(found.results[0], PanopticScores) and found.source["task"] == "panoptic"
    # A car: one IoU of 0.75 in 7 images, and one missed in each: 0.75 / (1 + 1/2).
    assert found.scores["pq_things"] == pytest.approx(0.5) and found.scores["sq_things"] == pytest.approx(0.75)
    assert found.scores["pq_stuff"] == pytest.approx(1) and found.scores["pq"] == pytest.approx(0.75)
    assert found.intervals["pq"] == pytest.approx((0.75, 0.75))
    assert found.per_class["car"]["missed"] == 7 and "7 of 7 images scored" in str(found)
    written = {path.name for path in found.report(tmp_path / "report")}
    assert written == {"metrics.json", "per_image.csv", "per_class.csv", "report.html"}
    with open(tmp_path / "report/per_image.csv", newline="") as file:
        assert [float(row["pq"]) for row in csv.DictReader(file)] == pytest.approx([0.75] * 7)
    page = (tmp_path / "report/report.html").read_text()
    assert "PQ of things" in page and "pq, 95% over images" in page and "Confusion" not in page


def results(change: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    rows = []
    for i in range(7):
        for number, score in ((2, 0.9), (3, 0.4)):
            rows.append({"image_id": 50 + i, "category_id": 7, "score": score,
                         "segmentation": encode_mask(truth(i) == number)})  # fmt: skip
    return [rows[0] | (change or {}), *rows[1:]]


def test_saved_results_have_the_average_precision_of_their_masks(tmp_path: Path) -> None:
    (tmp_path / "found.json").write_text(json.dumps(results()))
    found = densevit.evaluate(predictions=str(tmp_path / "found.json"), data=data(tmp_path / "data"))
    assert isinstance(found.results[0], InstanceScores) and found.scores["ap"] == pytest.approx(1)
    assert dict(found.per_image)["000"] == {"f1": pytest.approx(2 / 3), "objects": 2, "detections": 1}
    half = results()
    for row in half[:7]:
        row["segmentation"] = encode_mask(np.zeros(SIZE, bool))
    (tmp_path / "found.json").write_text(json.dumps(half))
    spec = {"type": "coco", "root": str(tmp_path / "data")}
    found = densevit.evaluate(predictions=tmp_path / "found.json", data=spec)
    assert 0.2 < found.scores["ap"] < 0.3
    low, high = found.intervals["ap"]
    assert low < found.scores["ap"] < high
    assert f"{'-':>12}" in str(found)  # sizes have no interval
    found.report(tmp_path / "report")
    (tmp_path / "found.json").write_text("[]")  # as `predict` writes where nothing is found
    assert densevit.evaluate(predictions=tmp_path / "found.json", data=spec).scores["ap"] == 0
    path = tmp_path / "data/panoptic.json"
    tree = json.loads(path.read_text())
    path.write_text(json.dumps(tree | {"images": tree["images"][::-1]}))
    assert list(open_dataset(spec).names) == [f"{i:03d}" for i in range(7)]  # as pycocotools breaks ties of scores


def test_objects_that_overlap_are_whole_in_mixtures_and_in_parts_of_a_data_set(tmp_path: Path) -> None:
    """Painted into one map, the larger of the two cars would lose a quarter of it."""
    spec, masks = data(tmp_path / "data", 1), np.zeros((2, *SIZE), np.bool_)
    masks[0, 20:, 10:50], masks[1, 20:30, 10:30] = True, True
    path = tmp_path / "data/panoptic.json"
    cars = [{"image_id": 50, "category_id": 7, "segmentation": encode_mask(mask)} for mask in masks]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"annotations": cars}))
    saved, coco = tmp_path / "found.json", open_dataset(spec)
    mixture = open_dataset({"type": "mix", "sources": [{"data": spec}]})
    for name, opened in (("000", coco), ("000", Part(coco, [0])), ("coco/000", mixture)):
        saved.write_text(json.dumps([one | {"image_id": name, "category_id": 2, "score": 0.9} for one in cars]))
        predictions = SavedSegments(saved, Part(opened, [0]), "instances")
        assert evaluate_segments(predictions, opened, "instances").scores["ap"] == pytest.approx(1)


class Queries(nn.Module):
    """Query k finds all pixels of the value 80 (k + 1), as an object of the class of number k."""

    def __init__(self, head: str, classes: list[int]) -> None:
        super().__init__()
        self.head, self.classes = head, torch.eye(3)[classes] * 20 - 10

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        values = torch.arange(1, 4)[None, :, None, None] * 80 / 255
        masks = ((image[:, :1] - values).abs() < 0.1) * 20.0 - 10
        return {self.head: masks, f"{self.head}/classes": self.classes.reshape(1, -1, 1, 1)}


@pytest.mark.parametrize(("head", "overlapping"), [("panoptic", False), ("instances", False), ("instances", True)])
def test_segments_outside_of_a_window_are_not_scored(head: str, overlapping: bool, tmp_path: Path) -> None:
    """The model is right in the window, which shows 10 of the columns of one car, and nothing of the other."""
    spec = data(tmp_path, 1)
    if overlapping:
        (tmp_path / "panoptic").rename(tmp_path / "masks")
        path = tmp_path / "panoptic.json"
        cars = [{"image_id": 50, "category_id": 7, "segmentation": encode_mask(truth(0) == k)} for k in (2, 3)]
        path.write_text(json.dumps(json.loads(path.read_text()) | {"annotations": cars}))
    heads = {
        head: HeadSpec(kind=head, unit="", classes=("sky", "car"), things=(1,)),
        f"{head}/classes": HeadSpec(kind="query_classes", unit=""),
    }
    card = ModelCard(outputs=heads, multiple=1, resize=PreprocessConfig(mode="native", size=None))
    model = Predictor(Queries(head, [0, 1, 1]), card, device="cpu", window=lambda h, w: (0, h, 0, 15))
    found = evaluate_segments(model, open_dataset(spec), head, head=head)
    assert found.scores[{"panoptic": "pq", "instances": "ap"}[head]] == pytest.approx(1)
    assert found.per_class["car"].get("missed", 0) == 0 and found.per_class["car"].get("objects", 1) == 1
    assert len(found.figures()) > 0


def test_what_a_file_says_of_its_numbers_comes_before_what_the_data_says(tmp_path: Path) -> None:
    file, spec = saved_panoptic(tmp_path), data(tmp_path / "data")
    as_data = densevit.evaluate(predictions=file, data=spec).scores
    tree = json.loads(file.read_text())  # as `predict` writes it without `annotations`: other images and categories
    numbers = {one["image_id"]: (51 + i) if i < 6 else 50 for i, one in enumerate(tree["annotations"])}
    for one in tree["annotations"]:
        one["image_id"] = numbers[one["image_id"]]
        for segment in one["segments_info"]:
            segment["category_id"] = {3: 7, 7: 3}[segment["category_id"]]
    tree["images"] = [{"id": numbers[50 + i], "file_name": f"{i:03d}"} for i in range(7)]
    tree["categories"] = [{"id": 7, "name": "sky"}, {"id": 3, "name": "car"}]
    file.write_text(json.dumps(tree))
    assert densevit.evaluate(predictions=file, data=spec).scores == as_data
    tree["categories"] = [{"id": 7, "name": "sky"}, {"id": 3, "name": "vehicle"}]  # 3 is the sky of the data
    file.write_text(json.dumps(tree))
    with pytest.raises(DataError, match="'000' has category 3, which the data does not have"):
        densevit.evaluate(predictions=file, data=spec)


def test_results_that_name_their_category_are_of_that_class(tmp_path: Path) -> None:
    file, spec = tmp_path / "found.json", data(tmp_path / "data")
    file.write_text(json.dumps([row | {"category_id": 3, "category_name": "car"} for row in results()]))
    assert densevit.evaluate(predictions=file, data=spec).scores["ap"] == pytest.approx(1)
    file.write_text(json.dumps([row | {"category_name": "vehicle"} for row in results()]))
    with pytest.raises(DataError, match="'000' has category vehicle, which the data does not have"):
        densevit.evaluate(predictions=file, data=spec)


def test_results_by_number_are_of_the_image_of_that_number(tmp_path: Path) -> None:
    names = ["a/0012", "b/0007", "c/0007", "d", "frankfurt/frankfurt_000000_000294"]
    for name in names:
        for kind, shape in (("images", (*SIZE, 3)), ("labels", SIZE)):
            (tmp_path / f"{kind}/{name}.png").parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.zeros(shape, np.uint8)).save(tmp_path / f"{kind}/{name}.png")
    folder = open_dataset({"type": "folder", "root": str(tmp_path)})
    short = {"12": names[0], "0012": names[0], "frankfurt_000000_000294": names[-1]}  # as Cityscapes' JSON has it
    assert image_names(folder, {}, tmp_path) == {name: name for name in names} | short


def change(key: str, value: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tree = json.loads((folder / "found.json").read_text())
        (tree["annotations"][0] if key in ("image_id", "segments_info") else tree)[key] = value
        (folder / "found.json").write_text(json.dumps(tree))

    return apply


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "found/003.png").unlink(), "found/003.png: no such file"),
        (
            lambda folder: Image.new("RGB", (50, 40)).save(folder / "found/003.png"),
            "003: a map of 40x50 cannot be scored against segments of 40x60",
        ),
        (change("image_id", 3), "image_id 3 is no image of the data, whose first is '000'"),
        (change("segments_info", [{"id": 1000, "category_id": 3}]), "000.png: segment 2000 is not in found.json"),
        (change("segments_info", [{"id": 1000, "category_id": 4}]), "'000' has category 4, which the data does not"),
        (change("annotations", []), "is not a panoptic JSON with `annotations`"),
        (change("categories", None), "found.json: `categories` is None, not a list"),
        (change("categories", [{"id": "sky", "name": "sky"}]), "category sky: `id` is 'sky', not a whole number"),
        (change("categories", [3]), "found.json: category 3: `id` is missing"),
        (change("categories", [{"id": 3}]), "found.json: category 3: `name` is missing"),
        (change("images", {"id": 50}), "found.json: `images` is {'id': 50}, not a list"),
        (change("images", [{"file_name": "000"}]), "found.json: image without an id: `id` is missing"),
        (change("segments_info", 5), "'000': `segments_info` is no list of segments"),
        (change("segments_info", [{"id": "x", "category_id": 3}]), "'000', segment x: `id` is 'x', not a whole number"),
    ],
)
def test_wrong_panoptic_files_are_one_sentence(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    file = saved_panoptic(tmp_path)
    spoil(tmp_path)
    with pytest.raises(DataError, match=message):
        densevit.evaluate(predictions=file, data=data(tmp_path / "data"))


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        (results({"segmentation": {"size": [30, 60], "counts": [1800]}}), r"size \[30, 60\], but the image has \[40"),
        (results({"segmentation": None}), "neither polygons nor run lengths"),
        (results({"category_id": 90}), "'000' has category 90"),
        (results({"score": "high"}), "'000', result without an id: `score` is 'high', not a number"),
        ([7], "is not a list of results with image_id"),
    ],
)
def test_wrong_results_are_one_sentence(tmp_path: Path, spoiled: Any, message: str) -> None:
    (tmp_path / "found.json").write_text(json.dumps(spoiled))
    with pytest.raises(DataError, match=message):
        densevit.evaluate(predictions=tmp_path / "found.json", data=data(tmp_path / "data"))


def test_images_without_segments_are_left_out_and_data_without_any_is_refused(tmp_path: Path) -> None:
    file, root = saved_panoptic(tmp_path / "saved", 2), tmp_path / "data"
    for kind in ("images", "labels", "segments"):
        (root / kind).mkdir(parents=True)
    for name in "ab":
        Image.fromarray(np.zeros((*SIZE, 3), np.uint8)).save(root / f"images/{name}.png")
        Image.fromarray((truth(0) > 1).astype(np.uint8)).save(root / f"labels/{name}.png")
    (root / "classes.txt").write_text("sky\ncar\n")
    tree = json.loads(file.read_text())
    for row, name in zip(tree["annotations"], "ab", strict=True):
        row["image_id"] = name
    file.write_text(json.dumps(tree | {"categories": CATEGORIES}))
    spec = {"type": "folder", "root": str(root)}
    with pytest.raises(DataError, match="none of 2 images has a segment. Rooms have them"):
        densevit.evaluate(predictions=file, data=spec)
    Image.fromarray(truth(0).astype(np.uint8)).save(root / "segments/b.png")
    found = densevit.evaluate(predictions=file, data=spec)
    assert found.results[0].counts == {"images": 2, "scored": 1, "skipped": 1} and found.results[0].skipped == ["a"]
