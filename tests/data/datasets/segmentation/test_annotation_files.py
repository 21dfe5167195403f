"""CamVid, YOLO's outlines, COCO's annotation files and Hugging Face data sets, as they lie on disk."""

import importlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from layouts import opened
from PIL import Image
from shell import Shell

from densevit.data.datasets.base import Dataset, open_dataset
from densevit.data.datasets.huggingface import HuggingFace
from densevit.data.io.coco import encode_mask, mask_of
from densevit.errors import ConfigError, DataError
from densevit.structures import IGNORE
from densevit.utils.packages import is_installed

SIZE = (40, 60)
RNG = np.random.default_rng(0)


def png(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def photo(path: Path, seed: int = 0) -> Path:
    return png(path, cv2.blur(np.random.default_rng(seed).integers(0, 256, (*SIZE, 3), np.uint8), (7, 7)))


def blob(top: int, left: int, bottom: int, right: int) -> np.ndarray:
    mask = np.zeros(SIZE, bool)
    mask[top:bottom, left:right] = True
    mask[(top + bottom) // 2, (left + right) // 2] = False
    return mask


def test_run_lengths_come_back() -> None:
    for mask in (blob(3, 4, 20, 31), blob(0, 0, 40, 60), RNG.random(SIZE) < 0.3, np.zeros(SIZE, bool)):
        assert np.array_equal(mask_of(encode_mask(mask), SIZE, "test"), mask)
    # Written from COCO's description: LEB128 of five bits, differences from the fourth run on.
    assert encode_mask(blob(1, 40, 36, 43)) == {"size": [40, 60], "counts": "Qb1S15^OL04b0We0"}


@pytest.mark.parametrize("layout", [("train", "trainannot"), ("train/rgb", "train/labels")])
def test_camvid_has_eleven_classes_and_ignores_the_twelfth(tmp_path: Path, layout: tuple[str, str]) -> None:
    stored = (np.arange(SIZE[0] * SIZE[1]).reshape(SIZE) % 12).astype(np.uint8)
    for i in range(2):
        photo(tmp_path / layout[0] / f"0001TP_{i:06d}.png", i)
        png(tmp_path / layout[1] / f"0001TP_{i:06d}.png", stored)
    data = opened("camvid", tmp_path)
    assert len(data) == 2 and len(data.classes) == len(data.palette) == 11 and data.classes[8] == "car"
    labels = data.read(0).labels
    assert labels is not None and np.array_equal(labels, np.where(stored == 11, IGNORE, stored))
    assert data.scene(0) == "0001TP"
    with pytest.raises(DataError, match="neither val/ beside valannot/"):
        opened("camvid", tmp_path, split="val")


TRAIN = "names: [cat, dog]\ntrain: images/train\n"


def yolo(root: Path, lines: Mapping[str, str], yaml: str = TRAIN) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    (root / "data.yaml").write_text(yaml)
    for i, (name, text) in enumerate(lines.items()):
        photo(root / f"images/train/{name}.png", i)
        if text:
            (label := root / f"labels/train/{name}.txt").parent.mkdir(parents=True, exist_ok=True)
            label.write_text(text)
    return root


LARGE, SMALL = "0 0.1 0.1 0.9 0.1 0.9 0.9 0.1 0.9", "1 0.4 0.4 0.6 0.4 0.6 0.6 0.4 0.6"


def test_yolo_outlines_are_filled_and_small_ones_lie_on_top(tmp_path: Path) -> None:
    root = yolo(tmp_path, {"a": f"{SMALL}\n{LARGE}\n", "b": ""})
    data = opened("yolo", root)
    assert data.classes == ("background", "cat", "dog") and list(data.names) == ["images/train/a", "images/train/b"]
    labels = data.label_map(0)
    assert labels is not None and (labels[20, 30], labels[8, 10], labels[1, 1]) == (2, 1, 0)
    # An outline from 0.1 to 0.9 covers 0.8 x 0.8 of the image, and half a pixel more at its ends.
    assert (labels > 0).mean() == pytest.approx(0.64, abs=0.04)
    assert (labels == 2).mean() == pytest.approx(0.04, abs=0.01)
    assert np.array_equal(data.read(0).labels, labels) and not data.read(1).labels.any()
    ignoring = opened("yolo", root, background=False)
    assert ignoring.classes == ("cat", "dog")
    assert np.array_equal(ignoring.label_map(0), np.where(labels == 0, IGNORE, labels - 1))


@pytest.mark.parametrize(("background", "number"), [(True, 254), (False, 255)])
def test_yolo_pixels_of_the_256th_class_are_not_ignored(tmp_path: Path, background: bool, number: int) -> None:
    yaml = f"names: [{', '.join(f'c{i}' for i in range(300))}]\ntrain: images/train\n"
    data = opened("yolo", yolo(tmp_path, {"a": f"{number}{LARGE[1:]}\n299{SMALL[1:]}"}, yaml), background=background)
    labels, classes = data.label_map(0), data.read(0).segment_classes.tolist()
    assert [data.classes[i] for i in (labels[8, 10], labels[20, 30])] == [f"c{number}", "c299"]
    assert labels[8, 10] != IGNORE and [data.classes[i] for i in classes] == [f"c{number}", "c299"]
    assert set(classes) <= set(data.things) and len(data.things) == 300


def test_yolo_images_of_one_name_in_two_folders_have_their_own_outlines(tmp_path: Path) -> None:
    for place, line in (("one", LARGE), ("two", SMALL)):
        yolo(tmp_path / place, {"a": line})
    (tmp_path / "root").mkdir()
    (tmp_path / "root/data.yaml").write_text("names: [cat, dog]\ntrain: [../one/images/train, ../two/images/train]\n")
    data = opened("yolo", tmp_path / "root", allow_outside_root=True)
    for index, label in enumerate((1, 2)):
        assert data.read(index).labels.max() == label == data.label_map(index).max()


@pytest.mark.parametrize(
    ("text", "yaml", "message"),
    [
        ("0 0.5 0.5 0.2 0.2", TRAIN, "a.txt:1: a box"),
        (f"{LARGE}\n2 0 0 1 0 1 1", TRAIN, "a.txt:2: class 2; there are 0 to 1"),
        ("0 0 0 30 0 30 20", TRAIN, "shares of width and height"),
        ("0 -0.2 0 1 0 1 1", TRAIN, "0 to 1, got -0.2"),
        ("0 nan 0 1 0 1 1", TRAIN, "0 to 1, got nan"),
        ("0 0 0 1 0 1", TRAIN, "an outline is class x y"),
        ("cat 0 0 1 0 1 1", TRAIN, "not all of it is numbers"),
        (LARGE, "train: images/train\n", "names: a list of class names"),
        (LARGE, "names: {0: cat, 2: dog}\ntrain: images/train\n", "ids go from 0 on"),
        (LARGE, "names: [cat, cat]\ntrain: images/train\n", "class cat occurs more than once"),
        (LARGE, "names: [cat]\n", "names no images of 'train'"),
        (LARGE, "names: [cat]\ntrain: 0.5\n", "names no images of 'train'"),
        (LARGE, "names: [cat]\ntrain: ../elsewhere\n", "leads out of"),
        (LARGE, "names: [cat]\ntrain: images/val\n", "no images, nor a list"),
    ],
)
def test_yolo_files_that_are_no_outlines_or_say_too_little_are_refused(
    tmp_path: Path, text: str, yaml: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        opened("yolo", yolo(tmp_path, {"a": text}, yaml)).read(0)


CATEGORIES = [{"id": 18, "name": "dog", "color": [0, 80, 100]}, {"id": 1, "name": "person", "color": [220, 20, 60]}]
SQUARE = {"image_id": 139, "category_id": 18, "segmentation": [[10, 5, 30, 5, 30, 25, 10, 25]]}
PERSON, DOG, CROWD = blob(2, 3, 30, 20), blob(10, 25, 38, 55), blob(0, 40, 8, 58)


def test_yolo_files_of_other_machines_are_read_by_their_root(tmp_path: Path) -> None:
    yaml = "path: ../datasets/pets\ntrain: ../images/train\nnames: [cat, dog]\n"
    data = opened("yolo", yolo(tmp_path / "pets", {"a": LARGE}, yaml))
    assert list(data.names) == ["images/train/a"]
    (tmp_path / "elsewhere/train").mkdir(parents=True)  # what is there and outside of the root needs leave
    with pytest.raises(DataError, match="leads out of"):
        opened("yolo", yolo(tmp_path / "b", {}, yaml.replace("images", "elsewhere")))


def coco(root: Path, annotations: list[dict[str, Any]], name: str) -> Path:
    photo(root / "val2017/000000000139.jpg")
    (root / "annotations").mkdir()
    image = {"id": 139, "file_name": "000000000139.jpg", "height": SIZE[0], "width": SIZE[1]}
    tree = {"images": [image], "annotations": annotations, "categories": CATEGORIES}
    (root / f"annotations/{name}.json").write_text(json.dumps(tree))
    return root


def panoptic(root: Path) -> Path:
    masks = {300: PERSON, 70_000: DOG, 9: CROWD}
    pixels = np.zeros((*SIZE, 3), np.uint8)
    for number, mask in masks.items():
        pixels[mask] = [number % 256, number // 256 % 256, number // 65536]
    segments = [{"id": 300, "category_id": 1}, {"id": 70_000, "category_id": 18}]
    segments += [{"id": 9, "category_id": 1, "iscrowd": 1}]
    annotation = {"image_id": 139, "file_name": "000000000139.png", "segments_info": segments}
    coco(root, [annotation], "panoptic_val2017")
    png(root / "annotations/panoptic_val2017/000000000139.png", pixels)
    return root


def instances(root: Path) -> Path:
    def segment(mask: np.ndarray, category: int, **more: Any) -> dict[str, Any]:
        return {"image_id": 139, "category_id": category, "segmentation": encode_mask(mask), **more}

    return coco(root, [segment(PERSON, 1), segment(DOG, 18), segment(CROWD, 1, iscrowd=1)], "instances_val2017")


@pytest.mark.parametrize("make", [panoptic, instances])
def test_coco_segments_are_classes_in_the_order_of_their_ids(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    root = make(tmp_path)
    file = f"annotations/{make.__name__}_val2017.json"
    data = opened("coco", root, annotations=file)
    assert data.classes == ("person", "dog") and data.palette == ((220, 20, 60), (0, 80, 100))
    expected = np.full(SIZE, IGNORE)
    expected[PERSON], expected[DOG] = 0, 1
    expected[CROWD] = IGNORE
    assert np.array_equal(data.read(0).labels, expected)
    data = opened("coco", root, annotations=file, background=True)
    assert data.classes == ("background", "person", "dog")
    expected = np.zeros(SIZE, int)
    expected[PERSON], expected[DOG], expected[CROWD] = 1, 2, IGNORE
    assert np.array_equal(data.read(0).labels, expected)


def test_panoptic_masks_that_have_the_names_of_the_images_are_not_read_as_the_images(tmp_path: Path) -> None:
    root = panoptic(tmp_path)
    (root / "annotations/panoptic_val2017").rename(root / "panoptic")
    text = (root / "annotations/panoptic_val2017.json").read_text()
    (root / "panoptic.json").write_text(text.replace("139.jpg", "139.png"))
    image = photo(root / "images/000000000139.png")
    sample = opened("coco", root, annotations="panoptic.json").read(0)
    assert np.array_equal(sample.image, np.asarray(Image.open(image))) and (sample.labels[DOG] == 1).all()


def test_coco_polygons_are_filled(tmp_path: Path) -> None:
    root = coco(tmp_path, [SQUARE], "a_val2017")
    labels = opened("coco", root, annotations="annotations/a_val2017.json").read(0).labels
    assert (labels[6:24, 11:29] == 1).all() and (labels[:4] == IGNORE).all()


def test_coco_objects_overlap_have_the_area_of_the_file_and_are_no_stuff(tmp_path: Path) -> None:
    segments = [{**SQUARE, "category_id": k, "area": 7 + k} for k in (1, 18, 18)]
    root = coco(tmp_path, segments, "a_val2017")
    found = opened("coco", root, annotations="annotations/a_val2017.json").objects(0)
    assert found is not None and found.masks.sum((1, 2)).tolist() == [400] * 3 and found.areas.tolist() == [8, 25, 25]
    path = root / "annotations/a_val2017.json"
    path.write_text(path.read_text().replace('"name": "dog"', '"name": "dog", "isthing": 0'))
    found = opened("coco", root, annotations="annotations/a_val2017.json").objects(0)
    assert found is not None and found.classes.tolist() == [0]


def test_outlines_of_one_class_of_stuff_are_one_segment(tmp_path: Path) -> None:
    root = coco(tmp_path, [SQUARE, {**SQUARE, "segmentation": [[40, 5, 50, 5, 50, 25, 40, 25]]}], "a_val2017")
    path = root / "annotations/a_val2017.json"
    listed = path.read_text()
    for is_thing, rows in ((1, [1, 1]), (0, [1]), ('"0"', [1])):
        path.write_text(listed.replace('"name": "dog"', f'"name": "dog", "isthing": {is_thing}'))
        sample = opened("coco", root, annotations="annotations/a_val2017.json").read(0)
        assert sample.segments is not None and sample.segment_classes is not None
        assert sample.segment_classes.tolist() == rows
        assert sample.segments[10, 20] == 1 and sample.segments[10, 45] == len(rows)


def test_coco_faults_are_named(tmp_path: Path) -> None:
    root = panoptic(tmp_path)
    spec = {"type": "coco", "root": str(root), "annotations": "annotations/panoptic_val2017.json"}
    png(root / "annotations/panoptic_val2017/000000000139.png", np.full((*SIZE, 3), 7, np.uint8))
    with pytest.raises(DataError, match=f"segment {7 * (1 + 256 + 65536)} is not in the JSON"):
        open_dataset(spec).read(0)
    (root / "annotations/panoptic_val2017/000000000139.png").unlink()
    with pytest.raises(DataError, match="lack a file"):
        open_dataset(spec)
    (root / "annotations/none.json").write_text("[]")
    with pytest.raises(DataError, match="no COCO annotations"):
        open_dataset({**spec, "annotations": "annotations/none.json"})


def hugging_face_library() -> Any:
    if not is_installed("datasets"):  # a mere folder of that name can be imported, too
        pytest.skip("needs the package datasets")
    return importlib.import_module("datasets")


def hugging_face(folder: Path, encoded: bool) -> Dataset:
    """Two photographs with depth of 2 m and 3 m, and their classes; saved to disk and opened."""
    hf = hugging_face_library()
    maps = {
        "depth": [np.full(SIZE, 2000 + 1000 * i, np.uint16) for i in range(2)],
        "labels": [np.full(SIZE, i, np.uint8) for i in range(2)],
    }
    columns: dict[str, Any] = {"photo": [str(photo(folder / f"{i}.png", i)) for i in range(2)]}
    kinds: dict[str, Any] = {"photo": hf.Image()}
    if encoded:
        columns |= {k: [str(png(folder / f"{k}{i}.png", maps[k][i])) for i in range(2)] for k in maps}
        kinds |= {"depth": hf.Image(), "labels": hf.Image()}
    else:
        columns |= {"depth": [d / 1000 for d in maps["depth"]], "labels": maps["labels"]}
        kinds |= {"depth": hf.Array2D(SIZE, "float32"), "labels": hf.Array2D(SIZE, "uint8")}
    hf.Dataset.from_dict(columns, features=hf.Features(kinds)).save_to_disk(folder / "saved")
    spec = {"type": "huggingface", "path": str(folder / "saved"), "image": "photo"}
    spec |= {"depth": "depth", "labels": "labels", "classes": ["near", "far"]}
    return open_dataset({**spec, **({"depth_scale": 1000} if encoded else {})})


@pytest.mark.parametrize("encoded", [True, False], ids=["files", "numbers"])
def test_hugging_face_columns_are_files_or_numbers(tmp_path: Path, encoded: bool) -> None:
    data = hugging_face(tmp_path, encoded)
    assert list(data.names) == ["000000", "000001"] and data.classes == ("near", "far")
    sample = data.read(1)
    assert np.array_equal(sample.image, np.asarray(Image.open(tmp_path / "1.png")))
    assert sample.depth is not None and sample.labels is not None
    assert (sample.depth == 3).all() and (sample.labels == 1).all()


def test_hugging_face_numbers_that_mean_not_measured(tmp_path: Path) -> None:
    hf = hugging_face_library()
    kinds = {"image": hf.Array3D((2, 2, 3), "uint8"), "depth": hf.Array2D((2, 2), "uint16")}
    columns = {"image": [np.zeros((2, 2, 3), np.uint8)], "depth": [np.array([[0, 5], [60000, 65535]], np.uint16)]}
    hf.Dataset.from_dict(columns, features=hf.Features(kinds)).save_to_disk(tmp_path)
    spec = {"type": "huggingface", "path": str(tmp_path), "depth": "depth", "depth_scale": 1000}
    for named, valid in (({}, [0, 1, 1, 0]), ({"invalid": [60000]}, [0, 1, 0, 1])):
        sample = open_dataset({**spec, **named}).read(0)
        assert sample.valid is not None and sample.valid.flatten().tolist() == valid


def test_null_in_a_hugging_face_column_of_depth_means_not_measured() -> None:
    data = HuggingFace.__new__(HuggingFace)
    data.scale, data.invalid = None, ()
    assert data._decode("depth", [[1.5, None]], Path("saved[0].depth")).tolist() == [[1.5, 0.0]]


def test_hugging_face_labels_that_are_no_whole_numbers_h_w_are_refused() -> None:
    data = HuggingFace.__new__(HuggingFace)  # the library is not needed to decode a cell
    assert data._of_array("labels", np.array([[0.0, 2.0]]), Path("saved[0].labels")).tolist() == [[0, 2]]
    for value in (0.7, np.nan):
        with pytest.raises(DataError, match=r"saved\[0\]\.labels: float64 with fractions"):
            data._of_array("labels", np.array([[0.0, value]]), Path("saved[0].labels"))
    for cell in ([[0], [0, 1]], [["wall"]]):
        with pytest.raises(DataError, match=r"saved\[0\]\.labels: neither an encoded image nor numbers h w: \[\["):
            data._decode("labels", cell, Path("saved[0].labels"))
    with pytest.raises(ConfigError, match="the column 'rgb' is named twice"):
        HuggingFace(path="nowhere", image="rgb", depth="rgb")


def test_a_saved_hugging_face_data_set_gives_the_split_that_is_asked_for(tmp_path: Path) -> None:
    hugging_face(tmp_path, True)
    hf = hugging_face_library()
    plain = hf.load_from_disk(str(tmp_path / "saved"))
    hf.DatasetDict({"train": plain, "test": plain.select([1])}).save_to_disk(tmp_path / "both")
    spec = {"type": "huggingface", "image": "photo"}
    for path, split, colours in (
        ("saved", "train", [0, 1]), ("saved", "train[50%:]", [1]), ("both", "test", [1]), ("both", "train[:1]", [0])
    ):  # fmt: skip
        data = open_dataset({**spec, "path": str(tmp_path / path), "split": split})
        photos = [np.asarray(Image.open(tmp_path / f"{i}.png")) for i in colours]
        assert len(data) == len(photos) and all(np.array_equal(data.read(i).image, x) for i, x in enumerate(photos))
    for path in ("saved", "both"):
        with pytest.raises(DataError, match="split 'validation' .*Should be one of"):
            open_dataset({**spec, "path": str(tmp_path / path), "split": "validation"})


def test_hugging_face_faults_are_named(tmp_path: Path) -> None:
    hugging_face(tmp_path, True)
    hf = hugging_face_library()
    saved = {"type": "huggingface", "path": str(tmp_path / "saved")}
    with pytest.raises(DataError, match="no column 'image'"):
        open_dataset(saved)
    with pytest.raises(DataError, match=r"saved\[0\]\.depth: integer depth .* without a unit"):
        open_dataset({**saved, "image": "photo", "depth": "depth"}).read(0)
    with pytest.raises(ConfigError, match=r"data\.samples"):
        open_dataset({**saved, "streaming": True})
    with pytest.raises(DataError, match="cannot be opened as a Hugging Face data set"):
        open_dataset({"type": "huggingface", "path": str(tmp_path / "nowhere")})
    deep = hf.Features({"image": hf.Array3D((*SIZE, 3), "uint16")})
    hf.Dataset.from_dict({"image": [np.full((*SIZE, 3), 4096, np.uint16)]}, deep).save_to_disk(tmp_path / "deep")
    with pytest.raises(DataError, match=r"deep\[0\]\.image: 4096 to 4096"):
        open_dataset({"type": "huggingface", "path": str(tmp_path / "deep")}).read(0)
    hf.load_from_disk(str(tmp_path / "saved")).to_parquet(tmp_path / "files/train.parquet")
    streamed = {**saved, "path": str(tmp_path / "files"), "image": "photo", "streaming": True, "samples": 1}
    assert len(open_dataset(streamed)) == 1 and open_dataset(streamed).read(0).image.shape == (*SIZE, 3)


def test_check_data_reads_outlines_and_tells_boxes(tmp_path: Path, shell: Shell) -> None:
    for text, code in ((LARGE, 0), ("0 0.5 0.5 0.2 0.2", 2)):
        root = yolo(tmp_path / str(code), {"a": text, "b": SMALL})
        told = shell("check-data", "--data", "yolo", "--root", root, "--splits", "train", "--no-cache", code=code).out
        assert ("a box" in told) == (code == 2)


def test_coco_and_yolo_have_segments_with_crowds_and_things(tmp_path: Path) -> None:
    for make in (panoptic, instances):
        data = opened("coco", make(tmp_path / make.__name__), annotations=f"annotations/{make.__name__}_val2017.json")
        sample = data.read(0)
        assert sample.segments is not None and sample.segment_classes is not None and list(data.things) == [0, 1]
        assert sample.segment_classes.tolist() == [0, 1, 0] and sample.segment_crowd.tolist() == [False, False, True]
        np.testing.assert_array_equal(sample.segments, np.select([CROWD, DOG, PERSON], [3, 2, 1]))
    outlines = opened("yolo", yolo(tmp_path / "yolo", {"a": f"{SMALL}\n{LARGE}\n"}), background=False).read(0)
    assert (
        outlines.segment_classes.tolist() == [1, 0] and outlines.segments[20, 30] == 1 and outlines.segments[8, 10] == 2
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"category_id": 17}, "image 139 has category 17, but `categories` lists only 1, 18"),
        (
            {"segmentation": [[10, 5, 70, 5, 30, 25]]},
            r"segment 1: a polygon has a corner at \(70, 5\), outside of 60 x 40",
        ),
        ({"segmentation": [[10, 5, 20, 5]]}, "a polygon is a list .* of three corners or more"),
        (
            {"segmentation": {"size": [60, 40], "counts": [2400]}},
            r"run lengths of size \[60, 40\], but the image has \[40",
        ),
        ({"segmentation": {"size": [40, 60], "counts": [9]}}, "run lengths of 9 pixels, but the image has 2,400"),
        ({"segmentation": {"size": None, "counts": [9]}}, "run lengths of size None"),
        (
            {"segmentation": {"size": [40, 60], "counts": [-5, 2405]}, "id": 4},
            r"image 139 \(.*\), annotation 4: `counts`",
        ),
        ({"segmentation": {"size": [40, 60], "counts": [1.5, 2398.5]}}, "are whole numbers from 0 on"),
        ({"segmentation": [["a", 5, 30, 5, 30, 25]]}, "a polygon is a list"),
        ({"segmentation": [[float("nan"), 5, 30, 5, 30, 25]]}, "a polygon is a list"),
        ({"segmentation": []}, "`segmentation` is empty, as of a box"),
        ({"segmentation": "x"}, "neither polygons nor run lengths"),
        ({"category_id": "cat", "id": 4}, "image 139, annotation 4: `category_id` is 'cat', not a whole number"),
        ({"category_id": None}, "annotation without an id: `category_id` is missing"),
        ({"image_id": None, "id": 4}, "annotation 4: `image_id` is missing"),
        ({"category_id": 3.5, "id": 4}, "image 139, annotation 4: `category_id` is 3.5, not a whole number"),
        ({"iscrowd": "yes"}, "`iscrowd` is 'yes', not a whole number"),
        ({"area": "x"}, "`area` is 'x', not a number"),
        ({"image_id": 5}, "no annotation has the `image_id` of one of its images"),
    ],
)
def test_a_wrong_coco_annotation_is_one_sentence(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    root = coco(tmp_path, [SQUARE | change], "a_val2017")
    with pytest.raises(DataError, match=message):
        data = opened("coco", root, annotations="annotations/a_val2017.json")
        data.read(0)
        data.objects(0)


def twice(tree: Any) -> None:
    """The same file, annotated under a second id."""
    for part, key in (("images", "id"), ("annotations", "image_id")):
        tree[part].append(tree[part][0] | {key: 5})


def changed_coco(folder: Path, change: Callable[[Any], object]) -> Path:
    """A file of one square, changed, with a byte order mark."""
    root = coco(folder, [SQUARE], "a_val2017")
    path = root / "annotations/a_val2017.json"
    change(tree := json.loads(path.read_text()))
    path.write_text("\ufeff" + json.dumps(tree), encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: tree["images"].append(dict(tree["images"][0])), "image 139: this id occurs more than once"),
        (twice, "images 5 and 139 have one name, 000000000139"),
        (lambda tree: tree["images"][0].pop("file_name"), "image 139: `file_name` is missing"),
        (lambda tree: tree["images"][0].update(file_name="/"), "image 139: `file_name` is '/', not a file"),
        (lambda tree: tree["images"][0].pop("height"), "image 139: `height` is missing"),
        (lambda tree: tree["images"][0].update(width=0), r"image 139: is 40 x 0 \(h x w\)"),
        (lambda tree: tree.update(images=[7]), "image 7: `id` is missing"),
        (lambda tree: tree.update(annotations=["x"]), "annotation 'x': `image_id` is missing"),
        (lambda tree: tree.update(annotations=[]), "`annotations` is empty"),
        (lambda tree: tree["categories"][0].pop("name"), "category 18: `name` is missing"),
        (lambda tree: tree["categories"][0].update(id=1), "category 1: this id occurs more than once"),
        (lambda tree: tree["categories"][0].update(color="red"), "category 18: `color` is not"),
        (lambda tree: tree["annotations"][0].update(segments_info=7), "image 139 has no `segments_info`"),
    ],
)
def test_a_wrong_coco_file_is_one_sentence(tmp_path: Path, change: Callable[[Any], object], message: str) -> None:
    root = changed_coco(tmp_path, change)
    with pytest.raises(DataError, match=message):
        opened("coco", root, annotations="annotations/a_val2017.json").read(0)


@pytest.mark.parametrize("name", ["train/{}", "https://x.org/up/{}", "/data/up/{}", "C:\\data\\{}", "../up/{}"])
def test_coco_images_are_found_without_the_address_before_their_names(tmp_path: Path, name: str) -> None:
    image = name.format("000000000139.jpg")
    data = opened("coco", changed_coco(tmp_path, lambda tree: tree["images"][0].update(file_name=image)))
    assert list(data.names) == ["000000000139"] and (data.read(0).labels == 1).sum() == 400


def test_coco_files_of_tools_are_found_by_folder_and_drawn_by_fraction(tmp_path: Path) -> None:
    square = SQUARE | {"category_id": 1}
    images = [{"id": i, "file_name": f"{i:02d}.jpg", "height": SIZE[0], "width": SIZE[1]} for i in range(4)]
    tree = {"images": images, "annotations": [square | {"image_id": i} for i in range(3)], "categories": CATEGORIES}
    for split in ("train", "valid"):
        for i in range(4):
            photo(tmp_path / f"roboflow/{split}/{i:02d}.jpg", i)
        (tmp_path / f"roboflow/{split}/_annotations.coco.json").write_text(json.dumps(tree))
    assert len(opened("coco", tmp_path / "roboflow", split="val")) == 3
    every = opened("coco", tmp_path / "roboflow", split="train", unannotated=True)
    assert list(every.names) == ["00", "01", "02", "03"] and every.read(3).segment_classes.size == 0
    with pytest.raises(DataError, match="no annotations of 'test'"):
        opened("coco", tmp_path / "roboflow", split="test")
    (tmp_path / "cvat/annotations").mkdir(parents=True)
    (tmp_path / "roboflow/train").rename(tmp_path / "cvat/images")
    (tmp_path / "cvat/images/_annotations.coco.json").rename(tmp_path / "cvat/annotations/instances_default.json")
    parts = [opened("coco", tmp_path / "cvat", split=split, val_fraction=0.7) for split in ("train", "val")]
    assert sorted([*parts[0].names, *parts[1].names]) == ["00", "01", "02"] and len(parts[1]) > 0
    (tmp_path / "cvat/more.json").write_text(json.dumps(tree))
    with pytest.raises(
        DataError, match="say which JSON holds the annotations by `annotations`; COCO files there: more"
    ):
        opened("coco", tmp_path / "cvat")


def test_check_data_finds_coco_files_counts_small_objects_and_sees_corrected_annotations(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DENSEVIT_CACHE", str(tmp_path / "cache"))
    square = {"image_id": 139, "category_id": 18, "segmentation": [[10, 5, 14, 5, 14, 9, 10, 9]]}
    root = coco(
        tmp_path / "data", [square, square, square | {"segmentation": [[20, 5, 54, 5, 54, 39, 20, 39]]}], "a_val2017"
    )
    found = shell("check-data", root).out
    assert "2 objects, median side 24 pixels; 50% are small (under 32 x 32), 50% under 8 x 8" in found
    assert "1 of 2 objects have under 64 pixels" in found and "segments without a pixel" in found
    tree = json.loads((root / "annotations/a_val2017.json").read_text())
    tree["annotations"][0]["segmentation"] = [[10, 5, 80, 5, 30, 25]]
    (root / "annotations/a_val2017.json").write_text(json.dumps(tree))
    assert "segment 1: a polygon has a corner at (80, 5)" in shell("check-data", root, code=2).out
