"""`pseudo-label` and the data set that reads it: views of a teacher, folders and shards, resuming, licences."""

import ast
import errno
import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import numpy as np
import pytest
import torch
from shell import Shell
from small_scenes import small_joint_config
from toy_models import MeanColour

from densevit import api
from densevit.cli.main import main
from densevit.data.datasets.base import open_dataset
from densevit.data.datasets.pseudo_labels import PseudoLabels
from densevit.depth_corrections import Calibration
from densevit.errors import DataError
from densevit.inference.predict.pseudo_labels import Teacher, manifest, mean_and_agreement
from densevit.inference.predictor import Predictor
from densevit.model_card import HeadSpec, ModelCard
from densevit.preprocess_config import PreprocessConfig
from densevit.utils import atomic_io
from densevit.weights.checkpoint import read_card


@pytest.fixture(scope="module")
def teacher(folder: Path) -> Path:
    assert main(["train", str(small_joint_config(folder)), "steps=4", "optim.lr=1e-2", "data.val=null"]) == 0
    return folder


def labelling(teacher: Path, output: Path, *words: str) -> list[str]:
    given = [str(teacher / "run"), str(teacher / "data/images"), "--output", str(output), "--precision", "fp32"]
    return ["pseudo-label", *given, *words]


def label(teacher: Path, output: Path, *words: str) -> int:
    return main(labelling(teacher, output, *words))


@pytest.fixture(scope="module")
def labelled(teacher: Path) -> tuple[Path, Path]:
    """In folders, and in shards of four images."""
    assert label(teacher, teacher / "folders") == 0
    assert label(teacher, teacher / "shards", "--shard-size", "4") == 0
    return teacher / "folders", teacher / "shards"


def test_views_of_metric_depth_agree_by_their_log_ratio() -> None:
    views = np.array([2.0, 2.0, 2.0, 2.42], np.float32).reshape(2, 1, 1, 1, 2)  # the second view: 2 and 2.42 m
    mean, confidence = mean_and_agreement(views, "metric")[0, :, 0]
    assert mean.tolist() == pytest.approx([2, 2.21])
    deviation = (abs(np.log(2 / 2.21)) + abs(np.log(2.42 / 2.21))) / 2
    assert confidence.tolist() == pytest.approx([1, np.exp(-deviation / 0.1)], rel=1e-4)


def test_views_of_disparity_agree_whatever_their_scale_and_shift() -> None:
    one = np.random.default_rng(0).uniform(1, 5, (1, 1, 8, 9)).astype(np.float32)
    assert mean_and_agreement(np.stack([one, 3 * one + 2]), "disparity")[0, 1].min() > 0.999
    other = np.random.default_rng(1).uniform(1, 5, (1, 1, 8, 9)).astype(np.float32)
    assert mean_and_agreement(np.stack([one, other]), "disparity")[0, 1].mean() < 0.1
    assert (mean_and_agreement(one[None], "disparity")[0, 1] == 1).all()


def test_views_without_unit_agree_inside_a_window() -> None:
    one = np.random.default_rng(0).uniform(1, 5, (1, 1, 8, 9)).astype(np.float32)
    views = np.stack([one, 3 * one + 2])
    expected = mean_and_agreement(views[..., 2:], "affine")
    views[..., :2] = np.nan
    found = mean_and_agreement(views, "affine")
    np.testing.assert_allclose(found[..., 2:], expected, rtol=1e-5)
    assert (found[:, 1, :, :2] == 0).all()


class PrincipalPoint(torch.nn.Module):
    """Metres: the horizontal place of the principal point, plus 1."""

    input_names = ("camera",)

    def forward(self, image: torch.Tensor, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"depth": torch.ones_like(image[:, :1]) * (1 + inputs["camera"][:, 2, None, None, None])}


def test_the_mirror_image_of_a_teacher_has_the_mirrored_camera() -> None:
    spec = {"depth": HeadSpec(kind="metric")}
    card = ModelCard(outputs=spec, multiple=1, model={"conditioning": {"rays": {}}})
    teacher = Teacher(Predictor(PrincipalPoint(), card, device="cpu", precision="fp32", flip=True))
    maps = teacher.start(np.zeros((1, 6, 11, 3), np.uint8), camera=(9.0, 9.0, 2.0, 3.0)).read()
    assert maps["depth"][0, 0] == pytest.approx((3 + 9) / 2)  # 2 pixels from the left of 11 are 8 in the mirror image


def test_the_mirror_image_of_a_teacher_has_the_mirrored_window() -> None:
    card = ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1)
    image = np.random.default_rng(0).integers(0, 256, (1, 6, 11, 3), dtype=np.uint8)
    plain = Predictor(MeanColour(), card, device="cpu", precision="fp32", flip=True, window=lambda h, w: (0, h, 0, 3))
    expected, found = plain.start(image).read()["depth"], Teacher(plain).start(image).read()["depth"][:, :1]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.isfinite(found).sum() == 6 * 3


def test_views_are_single_where_the_model_itself_averages_with_the_mirror_image() -> None:
    """As ZoeDepth does. Columns 1 2 3 4 and, mirrored back, 4 3 2 1."""

    class Column(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"depth": 1 + torch.arange(image.shape[-1]).expand_as(image[:, :1]).float()}

    card = ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1, resize=PreprocessConfig(flip=True))
    teacher = Teacher(Predictor(Column(), card, device="cpu", precision="fp32", flip=True))
    depth, confidence = teacher.start(np.zeros((1, 1, 4, 3), np.uint8)).read()["depth"][0, :, 0]
    np.testing.assert_allclose(depth, 2.5)
    deviations = [np.abs(np.log([a, 5 - a]) - np.log(2.5)).mean() for a in (1, 2, 3, 4)]
    np.testing.assert_allclose(confidence, np.exp(-np.array(deviations) / 0.1), rtol=1e-5)


def test_folders_and_shards_hold_the_mean_of_image_and_mirror_image(teacher: Path, labelled: tuple[Path, Path]) -> None:
    flipped = api.load(teacher / "run", precision="fp32", flip=True)
    folders, shards = (open_dataset({"type": "pseudo_labels", "root": str(root)}) for root in labelled)
    assert folders.names == shards.names == [f"{i:03d}" for i in range(6)]
    assert folders.classes == ("wall", "floor", "box")
    for i in (0, 5):
        one, other = folders.read(i), shards.read(i)
        for part in ("image", "depth", "valid", "labels"):
            np.testing.assert_array_equal(getattr(one, part), getattr(other, part))
        image = teacher / f"data/images/{i:03d}.jpg"
        np.testing.assert_allclose(one.depth, flipped(image, head="depth"), rtol=1e-3)
        assert (one.labels == flipped.classes(image)).mean() > 0.999
        assert one.depth_kind == "metric"
    with tarfile.open(labelled[1] / "shard-000001.tar") as tar:
        assert tar.getnames() == [f"00{i}{end}" for i in (4, 5) for end in (".jpg", ".depth.npz", ".labels.npz")]


def test_depth_ends_where_the_teacher_does_unless_its_metres_were_scaled(
    teacher: Path, labelled: tuple[Path, Path], tmp_path: Path
) -> None:
    shutil.copytree(labelled[1], tmp_path, dirs_exist_ok=True)
    recorded = json.loads((tmp_path / "manifest.json").read_text())
    for bounds, expected in (((0.0, 20.0), (1e-3, 20.0)), ((2.0, 20.0), (2.0, 20.0)), (None, (1e-3, 1e3))):
        recorded["maps"]["depth"]["range"] = bounds
        (tmp_path / "manifest.json").write_text(json.dumps(recorded))
        assert open_dataset({"type": "pseudo_labels", "root": str(tmp_path)}).depth_range == expected
    plain = api.load(teacher / "run")
    depth = replace(plain.card.outputs["depth"], calibration=Calibration(form="scale", a=3.0))
    scaled = plain.with_options(card=replace(plain.card, outputs={"depth": depth}))
    ranges = [manifest("", Teacher(p), {"depth": "depth"})["maps"]["depth"]["range"] for p in (plain, scaled)]
    assert ranges[0] is not None and ranges[1] is None


def test_unsure_pixels_count_as_unknown(labelled: tuple[Path, Path]) -> None:
    def known(least: float) -> float:
        sample = open_dataset({"type": "pseudo_labels", "root": str(labelled[0]), "min_confidence": least}).read(0)
        assert sample.labels is not None
        return float((sample.labels != 255).mean())

    assert known(0) == 1 > known(0.5) >= known(0.9)


def test_a_header_that_python_fails_to_parse_beside_another_thread_is_parsed_again(
    labelled: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = Mock(wraps=ast.literal_eval, side_effect=[SystemError, *[DEFAULT] * 4])  # see read_depth's test
    monkeypatch.setattr(ast, "literal_eval", parse)
    assert open_dataset({"type": "pseudo_labels", "root": str(labelled[0])}).read(0).depth is not None


def test_resuming_makes_what_is_missing_by_the_same_teacher_only(
    teacher: Path, labelled: tuple[Path, Path], shell: Shell
) -> None:
    shard = labelled[1] / "shard-000001.tar"
    before, words = shard.read_bytes(), labelling(teacher, labelled[1], "--shard-size", "4")
    assert "holds pseudo-labels. Continue with --resume" in shell.refused(*words)
    shard.unlink()
    told = shell(*words, "--resume").out
    assert "2 images in" in told and "4 were already there" in told and shard.read_bytes() == before
    told = shell.refused(*words, "--resume", "--scales", "1,1.5")
    assert "cannot resume with other settings (scales was" in told


def test_an_image_that_cannot_be_read_costs_itself_only(teacher: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for i in range(2):
        (images / f"{i}.jpg").write_bytes((teacher / f"data/images/00{i}.jpg").read_bytes())
    (images / "bad.jpg").write_bytes(b"\xff\xd8 no image")
    for words in ([], ["--shard-size", "2"]):
        output = tmp_path / f"out{len(words)}"
        assert main(["pseudo-label", str(teacher / "run"), str(images), "--output", str(output), *words]) == 3
        if words:
            assert open_dataset({"type": "pseudo_labels", "root": str(output)}).names == ["0", "1"]


@pytest.mark.parametrize("words", [[], ["--shard-size", "2"]])
def test_a_full_disk_is_one_error_and_nothing_half_written_stays(
    teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell, words: list[str]
) -> None:
    fsync, calls = atomic_io._fsync, 0

    def full(file: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > 2:  # the manifest and the first map
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    monkeypatch.setattr(atomic_io, "_fsync", full)
    told = shell.refused(*labelling(teacher, tmp_path / "out", *words))
    assert told.count("error: ") == 1 and "no room" in told
    assert not [path for path in (tmp_path / "out").rglob("*") if path.name.startswith(".") or path.suffix == ".tar"]
    assert not (tmp_path / "out/failed.json").exists()
    monkeypatch.undo()
    assert label(teacher, tmp_path / "out", *words, "--resume") == 0
    assert len(open_dataset({"type": "pseudo_labels", "root": str(tmp_path / "out")})) == 6


def student(teacher: Path, root: Path, output: Path, *words: str) -> list[str]:
    data = f"data.train={{type: mix, sources: [{{data: {{type: pseudo_labels, root: {root}}}}}]}}"
    return ["train", str(teacher / "joint.yaml"), data, "data.val=null", "steps=2", f"output={output}", *words]


def test_a_student_learns_and_its_card_names_the_teacher_and_its_licence(
    teacher: Path, labelled: tuple[Path, Path], tmp_path: Path, shell: Shell
) -> None:
    manifest = labelled[0] / "manifest.json"
    tree = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(tree | {"teacher": {**tree["teacher"], "licence": "CC-BY-NC-4.0"}}))
    try:
        told = shell(*student(teacher, labelled[0], tmp_path / "run")).err
    finally:
        manifest.write_text(json.dumps(tree))
    assert "teacher 'run' has the licence CC-BY-NC-4.0, which is not for commercial use" in told
    assert read_card(tmp_path / "run").teachers == {"run": "CC-BY-NC-4.0"}
    assert "run, licence CC-BY-NC-4.0" in shell("inspect", tmp_path / "run").out
    assert "not for commercial use" not in shell(*student(teacher, labelled[1], tmp_path / "free")).err


def test_a_teacher_of_another_task_is_refused(teacher: Path, tmp_path: Path, shell: Shell) -> None:
    assert label(teacher, tmp_path / "labels", "--heads", "labels") == 0
    only_depth = ["model.heads={depth: {type: metric}}", "tasks={depth: {}}"]
    told = shell.refused(*student(teacher, tmp_path / "labels", tmp_path / "run", *only_depth))
    assert "the ground truth of 'pseudo_labels' fits no task: it has labels; depth from metric" in told


def test_shards_of_more_images_than_there_are_now_are_removed(
    teacher: Path, labelled: tuple[Path, Path], tmp_path: Path
) -> None:
    shutil.copytree(labelled[1], tmp_path, dirs_exist_ok=True)
    (tmp_path / "shard-of-another-program.tar").touch()
    images = [str(teacher / f"data/images/00{i}.jpg") for i in range(4)]
    words = ["--output", str(tmp_path), "--precision", "fp32", "--shard-size", "4", "--resume"]
    assert main(["pseudo-label", str(teacher / "run"), *images, *words]) == 0
    names = sorted(path.name for path in tmp_path.glob("*.tar"))
    assert names == ["shard-000000.tar", "shard-of-another-program.tar"]


def test_depth_that_the_losses_cannot_learn_from_is_refused(
    teacher: Path, labelled: tuple[Path, Path], tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PseudoLabels, "depth_kind", lambda *_: "disparity")
    words = [f"data.train={{type: pseudo_labels, root: {labelled[0]}}}", "data.val=null", f"output={tmp_path}"]
    told = shell.refused("train", teacher / "joint.yaml", *words)
    assert "tasks.depth.losses: learn from metric, and data.train has disparity." in told


def test_depth_without_unit_scores_no_predictions_and_says_so_before_them(
    teacher: Path, labelled: tuple[Path, Path], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PseudoLabels, "depth_kind", lambda *_: "disparity")
    told = shell.refused("eval", teacher / "run", "--data", "pseudo_labels", "--root", labelled[0], "--head", "depth")
    assert "data: its depth is disparity; metric depth is scored by depth that is metric." in told


def test_affine_depth_may_be_negative(labelled: tuple[Path, Path], tmp_path: Path, shell: Shell) -> None:
    shutil.copytree(labelled[0], tmp_path, dirs_exist_ok=True)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    images = [json.loads(line) for line in (tmp_path / "images.jsonl").read_text().splitlines()]
    rows = [{**row, "image": str((labelled[0] / row["image"]).resolve())} for row in images]
    (tmp_path / "images.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for row in rows:
        with np.load(path := tmp_path / f"{row['name']}.depth.npz") as file:
            np.savez(path, depth=file["depth"] - 4, confidence=file["confidence"])
    as_labelled = open_dataset({"type": "pseudo_labels", "root": str(tmp_path)}).version
    manifest["maps"]["depth"]["kind"] = "affine"
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert open_dataset({"type": "pseudo_labels", "root": str(tmp_path)}).version != as_labelled  # for caches
    assert "0 errors" in shell("check-data", "pseudo_labels", "--root", tmp_path).out


def test_what_is_no_pseudo_labels_is_refused(labelled: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="`densevit pseudo-label` writes it"):
        open_dataset({"type": "pseudo_labels", "root": str(tmp_path)})
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match="manifest.json: teacher: Field required"):
        open_dataset({"type": "pseudo_labels", "root": str(tmp_path)})
