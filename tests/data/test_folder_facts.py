"""`densevit init`: what a look at a folder finds, and a config that trains."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from shell import Shell
from small import small_folder

from densevit.builder.plan import load_plan
from densevit.config.starter import upper_end
from densevit.data import folder_facts
from densevit.data.folder_facts import look_at_folder, unit_of
from densevit.data.io import readers
from densevit.data.io.readers import read_values
from densevit.errors import DataError


def labels(root: Path) -> None:
    (root / "labels").mkdir()
    for path in sorted((root / "images").iterdir()):
        ids = np.arange(60 * 80).reshape(60, 80) % 4
        ids[0] = 255
        Image.fromarray(ids.astype(np.uint8)).save(root / f"labels/{path.stem}.png")


def test_depth_its_unit_sizes_and_split_are_found(tmp_path: Path) -> None:
    facts = look_at_folder(small_folder(tmp_path, count=20))
    assert facts.images + facts.val_images == 19 and facts.val_images >= 4 and facts.sizes == ((60, 80),)
    assert facts.depth_scale == 1000 and "3." in facts.depth_guess and facts.classes is None
    assert facts.depth_metres is not None
    near, median, far = facts.depth_metres
    assert 1.5 <= near < median < far <= 6


def test_float_depth_other_names_and_folders_of_splits(tmp_path: Path) -> None:
    for split in ("train", "val"):
        root = small_folder(tmp_path / split, count=3)
        (root / "images").rename(root / "rgb")
        for path in (root / "depths").iterdir():
            np.save(path.with_suffix(".npy"), np.asarray(Image.open(path)).astype(np.float32) / 1000)
            path.unlink()
    facts = look_at_folder(tmp_path)
    assert facts.splits == ("train", "val") and (facts.images, facts.val_images) == (3, 3)
    assert facts.options == {"images": "rgb"} and (facts.depth_scale, facts.depth_guess) == (None, "")


def test_maps_without_an_image_are_left_out_unless_all_are(tmp_path: Path, caplog) -> None:
    depths = small_folder(tmp_path) / "depths"
    shutil.copy(depths / "000.png", depths / "other.png")
    assert look_at_folder(tmp_path).options == {"subset": "available"}
    assert caplog.text.count("no image for 1 of the files of `depths`:") == 1
    for path in list(depths.iterdir()):
        path.rename(path.with_name(f"x{path.name}"))
    with pytest.raises(DataError, match="no image for 7 of the files of `depths`:"):
        look_at_folder(tmp_path)


@pytest.mark.parametrize(
    ("scale", "metres", "share", "found"),
    [(1000, 3, 1, 1000), (1000, 0.5, 0.35, 1000), (5000, 2, 1, 5000), (256, 25, 0.05, 256), (1, 3, 1, 1)],
    ids=["Kinect in millimetres", "a shelf, a third measured", "TUM", "KITTI", "whole metres"],
)
def test_whole_numbers_are_a_guess_that_says_so(
    tmp_path: Path, scale: float, metres: float, share: float, found: float
) -> None:
    rng = np.random.default_rng(0)
    stored = (scale * metres * rng.uniform(0.5, 2, (60, 80))).round()
    path = tmp_path / "depth.npy"
    np.save(path, (stored * (rng.random(stored.shape) < share)).astype(np.uint16))
    unit, guess = unit_of(path, read_values(path), np.quantile(stored, (0.01, 0.5, 0.99)), share)
    assert unit == found and guess


def test_each_depth_map_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded, decode = Counter[Path](), readers.read_wide

    def counted(path: Path, *args: int) -> Any:
        decoded[path] += 1
        return decode(path, *args)

    monkeypatch.setattr(readers, "read_wide", counted)
    monkeypatch.setattr(folder_facts, "read_wide", counted)
    assert look_at_folder(small_folder(tmp_path)).depth_metres and decoded
    assert set(decoded.values()) == {1}


@pytest.mark.parametrize("with_labels", [False, True], ids=["depth", "depth and classes"])
def test_the_config_is_ready_to_train(here: Path, shell: Shell, with_labels: bool) -> None:
    root = small_folder(here / "my data")
    if with_labels:
        labels(root)
    out = shell("init", "my #1", "--root", root).out
    assert "1000 stored units per metre" in out and "densevit train 'my #1.yaml'" in out
    assert ("ids 0 to 3" in out) == with_labels
    plan = load_plan("my #1.yaml").open()  # with the weights of the model in the box: nothing is downloaded
    assert len(plan.train) + len(plan.val or ()) == 6 and len(plan.val or ()) > 0
    assert plan.run.model.init_from == "densevit:rooms" and plan.run.model.heads["depth"]["max_depth"] == 40
    assert [step["type"] for step in plan.run.data.transforms] == ["random_resized_crop", "hflip", "color"]
    assert str(plan.run.output) == "runs/my #1"
    assert "is there already" in shell.refused("init", "my #1", "--root", root)


def test_check_data_prints_the_guess_of_init_once(here: Path, shell: Shell) -> None:
    for split in ("train", "val"):
        small_folder(here / "mine" / split)
    guess = look_at_folder(here / "mine").depth_guess
    assert f"data.depth_scale: {guess}" in shell("init", "mine").out
    out = shell("check-data", "./mine", "--no-cache", code=2).out
    assert out.count(guess) == 1 and f"[train] --data-options depth_scale=1000 is a guess: {guess}" in out
    assert guess not in shell("check-data", "mine.yaml", "--no-cache", code=2).out  # which names the unit


@pytest.mark.parametrize("void", [0, 255, None])
def test_an_id_without_a_name_on_the_border_is_hinted_at_ignore(tmp_path: Path, shell: Shell, void: int | None) -> None:
    no_maps(root := tmp_path / "mine")
    labels(root)
    for path in sorted((root / "labels").iterdir()):
        ids = np.arange(60 * 80).reshape(60, 80) % (5 + int(path.stem))
        if void is not None:
            ids[[0, -1]] = ids[:, [0, -1]] = void
        Image.fromarray(ids.astype(np.uint8)).save(path)
    hint = (
        "id 0 has no name and fills 100% of the border pixels; if it means no class, list all in classes.json, it as "
        '{"id": 0, "name": "void", "ignore": true}'
    )
    found = "\n".join(look_at_folder(root).lines())
    assert 'with "ignore": true where one means no class' in found and (hint in found) == (void == 0)
    assert shell("check-data", root, "--no-cache").out.count(hint) == (void == 0)
    (root / "classes.json").write_text(json.dumps([{"id": i, "name": f"{i}", "ignore": i == 0} for i in range(10)]))
    assert look_at_folder(root).class_hint == "" and hint not in shell("check-data", root, "--no-cache").out


def no_maps(root: Path) -> None:
    shutil.rmtree(small_folder(root) / "depths")


def colours(root: Path) -> None:
    no_maps(root)
    labels(root)
    for path in (root / "labels").iterdir():
        Image.open(path).convert("RGB").save(path)


def binary(root: Path) -> None:
    no_maps(root)
    labels(root)
    for path in (root / "labels").iterdir():
        Image.fromarray(np.where(np.asarray(Image.open(path)) > 1, 255, 0).astype(np.uint8)).save(path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: (root / "pictures").mkdir(), "its folders: pictures"),
        (no_maps, "no maps; depth lies in 'depths'"),
        (colours, "holds colours; say in"),
        (binary, "hold nothing but 0 and 255, which means no class; a model needs two classes. If 255 is one"),
        (lambda root: root.rmdir(), "no such folder"),
    ],
)
def test_what_cannot_be_trained_on_is_said(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    root = tmp_path / "data"
    root.mkdir()
    make(root)
    with pytest.raises(DataError) as caught:
        look_at_folder(root)
    assert message in str(caught.value)


def test_ends_of_the_range_are_round() -> None:
    assert [upper_end(metres) for metres in (0.9, 1.0, 7.2, 8.1, 31, 79)] == [1, 1, 8, 10, 50, 80]


def test_recipes_are_listed_and_printed(shell: Shell) -> None:
    out = shell("list", "recipes").out
    assert "\ndepth:\n" in f"\n{out}" and "  nyu_dinov2_vits_dpt  " in out and "  depth/folder  " in out
    assert "  A MiDaS-style mixture (Ranftl et al. 2020, 2021): disparity" in out
    assert shell("list", "recipes", "depth/folder").out.startswith("# Your own images and depth maps")
    assert "Did you mean" in shell.refused("list", "recipes", "depth/foldr")


def test_coco_and_yolo_files_give_a_config_for_segments(here: Path, shell: Shell) -> None:
    root = here / "tins"
    (root / "images").mkdir(parents=True)
    for i in range(2):
        Image.fromarray(np.full((70, 90, 3), 90 * i, np.uint8)).save(root / f"images/{i}.png")
    square = {"category_id": 1, "segmentation": [[10, 5, 30, 5, 30, 25, 10, 25]]}
    tree = {
        "images": [{"id": i, "file_name": f"{i}.png", "height": 70, "width": 90} for i in range(2)],
        "annotations": [square | {"image_id": i} for i in range(2)],
        "categories": [{"id": 1, "name": "tin"}, {"id": 5, "name": "lid"}],
    }
    (root / "annotations.json").write_text(json.dumps(tree))
    found = shell("init", "tins").out
    assert (
        "1 to train, 1 to validate" in found and "1.0 segments in an image" in found and "2 classes: tin, lid" in found
    )
    config = (here / "tins.yaml").read_text()
    assert "heads: {instances: {type: instances}}" in config and "size: [70, 70]" in config
    tree["categories"][1] |= {"isthing": 0}
    (root / "annotations.json").write_text(json.dumps(tree))
    shell("init", "tins", "--overwrite")
    assert "tasks:\n  panoptic: {type: panoptic}" in (here / "tins.yaml").read_text()
    (root / "annotations.json").unlink()
    for split in ("train", "val"):
        (root / f"labels/{split}").mkdir(parents=True)
        (root / f"images/{split}").mkdir()
        (root / f"images/{'01'[split == 'val']}.png").rename(root / f"images/{split}/a.png")
        (root / f"labels/{split}/a.txt").write_text("0 0.1 0.1 0.9 0.1 0.9 0.9\n")
    (root / "data.yaml").write_text("names: [tin, lid]\ntrain: images/train\nval: images/val\n")
    shell("init", "tins", "--overwrite")
    config = (here / "tins.yaml").read_text()
    assert "train: {type: yolo, background: false, split: train}" in config


def test_segments_give_a_config_for_them_and_a_pointer_beside_depth(here: Path, shell: Shell) -> None:
    root = small_folder(here / "mine")
    (root / "segments").mkdir()
    for path in (root / "images").iterdir():
        ids = np.repeat(np.arange(3, dtype=np.uint16), 20)[:, None].repeat(80, 1)
        Image.fromarray(ids).save(root / f"segments/{path.stem}.png")
    rows = [f"{path.stem},{i},{name}" for path in (root / "images").iterdir() for i, name in ((1, "wall"), (2, "tin"))]
    (root / "segments.csv").write_text("\n".join(["image,id,class", *rows]))
    (root / "classes.json").write_text('[{"id": 0, "name": "wall", "isthing": 0}, {"id": 1, "name": "tin"}]')
    assert (
        "recipe panoptic/folder learns it" in shell("init", "mine").out
        and "depth: {type: metric" in Path("mine.yaml").read_text()
    )
    shutil.rmtree(root / "depths")
    found = shell("init", "mine", "--overwrite").out
    assert "2 classes: wall, tin" in found and "recipe" not in found
    encoder = "model.encoder={type: vit, dim: 32, depth: 4, heads: 2, image_size: 56, out_indices: 1}"
    plan = load_plan("mine.yaml", [encoder]).open()
    found_classes = plan.train.read(0).segment_classes
    assert list(plan.run.tasks) == ["panoptic"] and found_classes is not None and list(found_classes) == [0, 1]
    (root / "classes.json").unlink()
    (root / "segments.csv").unlink()
    assert "'segments' with their names in classes.json" in shell.refused("init", "mine", "--overwrite")
