"""Validation of label maps: planted errors are found in custom and in published datasets."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import layouts
import numpy as np
import pytest
from layouts.segmentation_cases import CASES, Case, samples
from orientations import oriented
from photo_samples import sample
from PIL import Image
from shell import Shell
from test_validation import found

from densevit.cli.main import main
from densevit.data.io.writers import encode
from densevit.data.validation import SplitToValidate, format_text, validate
from densevit.structures import IGNORE, Sample

NAMES = ("wall", "floor", "bed", "chair")
SIZE = (48, 64)


def frames(*names: str) -> list[Sample]:
    """Different photographs with different label maps of the four classes."""
    made = []
    for i, name in enumerate(names):
        labels = (np.arange(SIZE[0] * SIZE[1]).reshape(SIZE) // (7 + i)) % 4
        made.append(replace(sample(name, *SIZE, shift=97 * i), depth=None, valid=None, labels=labels))
    return made


def folder_split(root: Path, type_: str = "folder", cache: Path | None = None, **options: Any) -> SplitToValidate:
    return SplitToValidate("train", partial(layouts.opened, type_, root, **options), cache)


def test_every_planted_error_is_found_by_its_file(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames(*"abcdefgh"), image=".png", classes=NAMES)
    labels = tmp_path / "labels"
    (labels / "a.png").write_bytes(encode(".png", np.full(SIZE, 9, np.uint8)))  # beyond the classes
    (labels / "b.png").write_bytes(encode(".png", np.full(SIZE, IGNORE, np.uint8)))  # wholly ignored
    (labels / "c.png").unlink()  # missing
    (labels / "d.png").write_bytes((labels / "e.png").read_bytes())  # e's
    (labels / "f.png").write_bytes(encode(".png", np.full((*SIZE, 3), 9, np.uint8)))  # colours
    (labels / "g.png").write_bytes(encode(".png", np.zeros((9, 9), np.uint8)))  # another size
    (labels / "h.png").write_bytes((labels / "h.png").read_bytes()[:50])  # truncated
    report = validate([folder_split(tmp_path)])
    assert found(report) == {
        "label_beyond_classes": {"a.png"},
        "empty_labels": {"b.png"},
        "missing": {"c.png"},  # the image without a label map
        "duplicate_labels": {"e.png"},
        "bad_labels": {"f.png"},
        "size_mismatch": {"g.png"},
        "damaged": {"h.png"},
    }
    reasons = {Path(f.path).name: f.reason for f in report.issues}
    assert "id 9 in 3,072 pixels" in reasons["a.png"] and "no label map" in reasons["c.png"]
    assert not report.ok


def test_valid_labels_have_no_issues_and_are_summed_up(tmp_path: Path) -> None:
    made = frames(*"abc")
    for one in made:
        one.labels[:12] = IGNORE  # a quarter
    layouts.write_folder(
        tmp_path, made, labels="colours", classes=NAMES, palette=((1, 2, 3), (4, 5, 6), (7, 8, 9), (9, 9, 9))
    )
    report = validate([folder_split(tmp_path)])
    assert report.issues == []
    assert "classes in the labels: 4; 75.0% of the pixels have one" in format_text(report)
    assert report.summaries[0].classes == 4


def test_classes_that_never_occur_are_noted_and_a_dataset_without_any_is_an_error(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames(*"ab"), classes=(*NAMES, "piano"))
    report = validate([folder_split(tmp_path)])
    assert found(report) == {"absent_class": {""}} and report.ok
    assert "1 of 5 classes: piano" in format_text(report)
    void = [{"id": i, "name": f"v{i}", "ignore": True} for i in range(4)]
    (tmp_path / "classes.json").write_text(json.dumps([*void, {"id": 7, "name": "road"}]))
    report = validate([folder_split(tmp_path)])
    assert found(report)["no_labels"] == {""} and not report.ok


def test_masks_of_0_and_255_are_asked_about_until_255_is_said_to_be_a_class(tmp_path: Path) -> None:
    made = [replace(one, labels=np.where(one.labels == 1, 255, 0)) for one in frames(*"ab")]
    layouts.write_folder(tmp_path, made, classes=("background", "thing"))
    assert found(validate([folder_split(tmp_path)])).keys() == {"binary_labels", "absent_class"}
    ids = [{"id": 0, "name": "background"}, {"id": 255, "name": "thing"}]
    (tmp_path / "classes.json").write_text(json.dumps(ids))
    assert validate([folder_split(tmp_path)]).issues == []


def test_statistics_cached_under_another_list_of_classes_do_not_count(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames(*"ab"), classes=NAMES)
    cache = tmp_path / "cache.json"
    assert validate([folder_split(tmp_path, cache=cache)]).ok
    (tmp_path / "classes.json").write_text('["wall", "floor"]')
    assert found(validate([folder_split(tmp_path, cache=cache)])) == {"label_beyond_classes": {"a.png", "b.png"}}
    (tmp_path / "classes.json").write_text(json.dumps(NAMES))
    assert validate([folder_split(tmp_path, cache=cache)]).ok


def test_statistics_of_segments_are_of_one_image_and_of_the_things_of_now(tmp_path: Path) -> None:
    for name in "ab":  # equal files, of which only the table tells the segments apart
        for kind, pixels in {"images": np.zeros((2, 2, 3), np.uint8), "segments": np.uint8([[1, 2], [1, 2]])}.items():
            (tmp_path / kind).mkdir(exist_ok=True)
            cv2.imwrite(str(tmp_path / kind / f"{name}.png"), pixels)
    (tmp_path / "segments.csv").write_text("image,id,class\na,1,sky\na,2,sky\nb,1,car\nb,2,car\n")
    for stuff, objects in (("sky", 2), ("sky", 2), ("car", 2), ("none", 4)):
        classes = [{"id": i, "name": name, "isthing": int(name != stuff)} for i, name in enumerate(("sky", "car"))]
        (tmp_path / "classes.json").write_text(json.dumps(classes))
        report = validate([folder_split(tmp_path, cache=tmp_path / "cache.json")])
        assert report.summaries[0].objects == objects


def test_an_image_that_exif_turns_beside_labels_that_it_does_not_is_found(tmp_path: Path) -> None:
    layouts.write_folder(tmp_path, frames(*"ab"))
    Image.open(tmp_path / "images/a.jpg").save(tmp_path / "images/a.jpg", exif=oriented(3))  # upside down
    assert found(validate([folder_split(tmp_path)])) == {"exif": {"a.jpg"}}


@pytest.mark.parametrize("case", CASES, ids=Case.name)
def test_published_datasets_are_validated_alike(case: Case, tmp_path: Path) -> None:
    made = samples(case.classes, 4)
    made[0].labels[:] = IGNORE
    case.write(tmp_path, made, **case.written)
    data = layouts.opened(case.type, tmp_path, **case.options)
    bad, missing = (data.files(i)["labels"] for i in (1, 2))
    missing.unlink()
    if bad.suffix == ".png":
        cv2.imwrite(str(bad), np.full((96, 128), 253, np.uint8))
    kinds = found(validate([folder_split(tmp_path, case.type, **case.options)]))
    assert kinds["missing"] == {missing.name}
    assert bad.suffix == ".mat" or kinds["label_beyond_classes"] == {bad.name}
    # Where nobody marked anything PASCAL-Context has its background.
    assert case.type == "pascal_context" or kinds["empty_labels"] == {data.files(0)["labels"].name}


def test_the_command_examines_labels_and_takes_classes_by_number_too(tmp_path: Path, shell: Shell) -> None:
    layouts.write_folder(tmp_path, frames(*"ab"))
    assert main(["check-data", str(tmp_path), "--no-cache"]) == 0
    told = shell("check-data", tmp_path, "--no-cache", "--classes", "3", code=2).out
    assert "holds class 3; the 3 classes end at 2, and 768 pixels lie beyond" in told


def test_a_fault_in_a_line_of_a_text_file_names_the_line(tmp_path: Path) -> None:
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    (tmp_path / "data.yaml").write_text("train: images\nnames: [cat, dog]\n")
    (tmp_path / "images/a.png").write_bytes(encode(".png", sample("a", *SIZE).image))
    (tmp_path / "labels/a.txt").write_text("0 0 0 1 0 1 1\n5 0 0 1 0 1 1\n")
    (issue,) = validate([folder_split(tmp_path, "yolo", split="train")]).issues
    assert issue.path.endswith("a.txt") and issue.reason == "line 2: class 5; there are 0 to 1."
