"""Depth and classes from one model: trained, resumed, evaluated and exported on real files."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import ForkServer
from PIL import Image
from shell import Shell
from small_scenes import small_joint_config

from densevit import api
from densevit.builder.checkpoint import restore
from densevit.builder.plan import load_plan
from densevit.cli.main import main
from densevit.data.datasets.folder import Folder
from densevit.data.io.readers import read_depth
from densevit.engine.checkpointer import CheckpointFolder
from densevit.engine.logger import read_csv
from densevit.inference.predictor import Predictor
from densevit.scorers.training_report import write_training_report
from densevit.utils.process_group import CPU
from densevit.weights import checkpoint

pytestmark = pytest.mark.usefixtures("report_images")

MIXED = {"count": 8, "without": [(0, "depths"), (3, "depths"), (1, "labels"), (4, "labels")]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joint")
    config = small_joint_config(folder, **MIXED)
    words = ["steps=80", "validate_every=40", "optim.lr=3e-3", "objective.loss_weighting=uncertainty"]
    assert main(["train", str(config), *words]) == 0
    return folder


def evaluate(run: Path, task: str, *words: object) -> int:
    options = ["depth_scale=1000", "require_depth=false", "require_labels=false"]
    data = ["--data", "folder", "--root", run / "data", *(w for o in options for w in ("--data-options", o))]
    return main(["eval", "--task", task, *map(str, [*words, *data])])


def metrics(folder: Path) -> dict[str, float]:
    return json.loads((folder / "metrics.json").read_text())["metrics"]


def test_both_tasks_learn_where_images_have_one_truth_or_the_other(run: Path) -> None:
    rows = read_csv(run / "run/val.csv")
    assert rows[-1]["labels/miou"] > 0.7 and rows[-1]["depth/abs_rel"] < 0.15


def test_the_card_knows_names_and_colours_that_only_the_data_told(run: Path) -> None:
    spec = restore(run / "run")[1].outputs["labels"]
    assert spec.classes == ("wall", "floor", "box")
    assert spec.palette == ((120, 120, 180), (80, 50, 50), (255, 200, 0))


def test_evaluation_repeats_the_scores_of_training(run: Path) -> None:
    best = min(read_csv(run / "run/val.csv"), key=lambda row: row["depth/abs_rel"])
    for task in ("segmentation", "depth"):
        assert evaluate(run, task, run / "run", "--output", run / task) == 0
    assert metrics(run / "segmentation")["miou"] == pytest.approx(best["labels/miou"], abs=2e-3)
    assert metrics(run / "depth")["abs_rel"] == pytest.approx(best["depth/abs_rel"], rel=1e-3)
    counts = json.loads((run / "segmentation/metrics.json").read_text())["counts"]
    assert (counts["scored"], counts["skipped"]) == (6, 2)


def test_a_head_that_no_validation_image_scores_leaves_the_report_those_of_the_others(
    run: Path, tmp_path, caplog
) -> None:
    shutil.copytree(run / "data", tmp_path / "val", ignore=shutil.ignore_patterns("labels"))
    plan = load_plan(run / "run/config.yaml", [f"data.val.root={tmp_path / 'val'}"]).open()
    write_training_report(plan, CheckpointFolder(run / "run/checkpoints", ("abs_rel", "min"), 1), "", CPU)
    assert "no images of head labels: nothing to score" in caplog.text
    assert "<figcaption>ground truth</figcaption>" in (run / "run/report.html").read_text()


def test_scores_of_training_images_say_so_and_name_the_split_to_score(tmp_path: Path, capsys) -> None:
    config = small_joint_config(tmp_path, count=8)
    drawn = [f"data.{split}.{key}" for split in ("train", "val") for key in (f"split={split}", "val_fraction=0.5")]
    assert main(["train", str(config), "steps=1", *drawn]) == 0
    trained = len(Folder(root=tmp_path / "data", split="train", val_fraction=0.5))
    told = f"{trained} of these 8 images trained the model"
    held_out = ["--split", "val", "--data-options", "val_fraction=0.5"]
    for name, words, warned in (("all", [], True), ("val", held_out, False)):
        assert evaluate(tmp_path, "segmentation", tmp_path / "run", "--output", tmp_path / name, *words) == 0
        source = json.loads((tmp_path / name / "metrics.json").read_text())["source"]
        assert (told in source.get("warning", "")) == (told in capsys.readouterr().out) == warned
        assert not warned or " ".join(held_out) in source["warning"]
    assert main(["compare", str(tmp_path / "all"), str(tmp_path / "val")]) == 0
    assert f"warning: A: {told}" in capsys.readouterr().out
    assert main(["eval", str(tmp_path / "run"), "--task", "segmentation"]) == 0
    assert "trained the model" not in capsys.readouterr().out


def test_one_export_writes_depth_and_classes_in_one_pass(run: Path, tmp_path: Path, monkeypatch) -> None:
    passes = []
    answers = Predictor.predict_batch

    def counted(self: Predictor, images, **options):
        passes.append(len(images))
        return answers(self, images, **options)

    monkeypatch.setattr(Predictor, "predict_batch", counted)
    out = tmp_path / "maps"
    words = ["--output", str(out), "--precision", "fp32", "--formats", "png16,labels,overlay,probabilities"]
    assert main(["predict", str(run / "run"), str(run / "data/images"), *words]) == 0
    assert passes == [1] * 8
    made = {path.name for path in out.iterdir()}
    suffixes = (".png", ".labels.png", ".overlay.png", ".probabilities.npz")
    shared = {"classes.json", "legend.png", "export.json", "outputs.jsonl"}
    assert made == {f"00{i}{suffix}" for i in range(8) for suffix in suffixes} | shared
    predictor = api.load(run / "run", precision="fp32")
    image = str(run / "data/images/002.jpg")
    assert np.abs(read_depth(out / "002.png") - predictor(image)).max() < 1e-3
    ids = np.asarray(Image.open(out / "002.labels.png"))
    assert np.array_equal(ids, predictor.classes(image))
    with np.load(out / "002.probabilities.npz") as file:
        assert file["classes"].tolist() == ["wall", "floor", "box"]
        assert np.array_equal(file["probabilities"].argmax(0), ids)
        np.testing.assert_allclose(file["probabilities"].astype(float).sum(0), 1, atol=2e-3)


def test_exported_classes_score_as_the_model_does(run: Path, tmp_path: Path, capsys) -> None:
    words = ["--output", str(tmp_path / "maps"), "--precision", "fp32", "--formats", "labels"]
    assert main(["predict", str(run / "run"), str(run / "data/images"), *words]) == 0
    saved = ["--predictions", tmp_path / "maps", "--suffix", ".labels.png"]
    assert evaluate(run, "segmentation", *saved, "--output", tmp_path / "saved") == 0
    assert evaluate(run, "segmentation", run / "run", "--output", tmp_path / "model") == 0
    assert metrics(tmp_path / "saved") == metrics(tmp_path / "model")
    classes = tmp_path / "classes.json"
    classes.write_text('{"1": "floor", "2": "wall", "3": "box"}')
    assert evaluate(run, "segmentation", *saved, "--data-options", f"classes={classes}") == 2
    told = "maps/classes.json has the classes of the data in another order: 0 is 'wall', in the data 'floor'"
    assert told in capsys.readouterr().err


def test_other_classes_orders_and_heads_are_not_scored(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    four, three, renamed = (tmp_path / f"{name}.json" for name in ("four", "three", "renamed"))
    four.write_text('{"1": "floor", "2": "wall", "3": "box", "0": "ceiling"}')
    three.write_text('{"1": "floor", "2": "wall", "3": "box"}')
    renamed.write_text('{"1": "floor", "2": "wall", "3": "boxes"}')
    order = "head 'labels' has the classes of the data in another order: 0 is 'wall', in the data 'floor'"
    for words, told in (
        (["--data-options", f"classes={four}"], "predicts 3 classes; the data has 4"),
        (["--data-options", f"classes={three}"], order),
        (["--data-options", f"classes={renamed}"], order),
        (["--head", "sky"], "no head 'sky'. It has: depth, labels"),
        (["--head", "depth"], "head 'depth' gives metric depth"),
        (["--window-size", "7"], "--window-size: 7 pixels are less than one patch, 8"),
    ):
        assert evaluate(run, "segmentation", run / "run", *words) == 2
        assert told in capsys.readouterr().err


def test_a_head_may_have_a_decoder_of_its_own_which_card_and_weights_remember(tmp_path: Path) -> None:
    config = small_joint_config(tmp_path)
    assert main(["train", str(config), "model.decoders.labels={type: linear, norm: batch}", "steps=2"]) == 0
    model, card = restore(tmp_path / "run")
    assert list(model.decoders) == ["labels"] and card.model["decoders"]["labels"]["norm"] == "batch"
    answers = model.eval()(torch.rand(1, 3, 32, 40))
    assert {name: tuple(y.shape) for name, y in answers.items()} == {"depth": (1, 1, 32, 40), "labels": (1, 3, 32, 40)}


WRONG = [
    (["model.decoders.sky={type: dpt}"], "there is no model.heads.sky"),
    (["model.decoders={depth: {type: dpt}, labels: {type: dpt}}"], "every head has its own"),
    (["model.heads.labels.classes=7"], "7 classes, but the data has 3"),
    (["model.heads.labels.classes=[floor, wall, box]"], "another order: 0 is 'floor', in the data 'wall'"),
    (["tasks.labels.losses=[{type: dise}]"], "no segmentation loss 'dise'. Did you mean 'dice'?"),
    (["tasks.labels.losses=[{type: cross_entropy, weights: [1, 2]}]"], "2 numbers for the 3 classes"),
    (["tasks.labels.type=depth"], "trains heads that give metric, affine, disparity"),
    (["steps=null", "epochs=1", "schedule.warmup=50"], "schedule.warmup: 50 steps leave nothing of 2."),
]


def test_what_does_not_fit_together_is_told_before_training(tmp_path: Path, shell: Shell) -> None:
    config = small_joint_config(tmp_path)
    for words, message in WRONG:
        assert message in shell.refused("train", config, *words)
    assert not (tmp_path / "run/train.csv").exists()
    text = config.read_text()
    for labels in ("    labels: {type: segmentation}\n", "  labels: {type: segmentation}\n"):
        text = text.replace(labels, "")
    config.write_text(text)
    told = shell.refused("train", config, "objective.loss_weighting=uncertainty")
    assert "objective.loss_weighting: there is only one task" in told


@pytest.mark.slow
def test_a_run_is_not_resumed_on_classes_in_another_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, classes = small_joint_config(tmp_path), tmp_path / "data/classes.json"
    assert main(["train", str(config), "steps=1"]) == 0
    wall, floor, *others = json.loads(classes.read_text())
    classes.write_text(json.dumps([floor, wall, *others]))
    monkeypatch.delattr("densevit.builder.training.build_model")  # it is told before
    assert main(["train", str(config), "steps=2", "--resume"]) == 2
    told = "step-00000001: head 'labels' has the classes of the data in another order: 0 is 'wall', in the data 'floor'"
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_learned_loss_weighting_is_resumed_with_the_weights(tmp_path: Path) -> None:
    config = small_joint_config(tmp_path)
    for name, last, more in (("whole", 8, []), ("parts", 4, []), ("parts", 8, ["--resume"])):
        words = [f"output={tmp_path / name}", "objective.loss_weighting=uncertainty", f"steps={last}", *more]
        assert main(["train", str(config), *words]) == 0
    rows = [read_csv(tmp_path / name / "train.csv")[-1] for name in ("whole", "parts")]
    assert rows[0]["depth/uncertainty"] == rows[1]["depth/uncertainty"] != 0
    states = [checkpoint.read_state(tmp_path / name / "checkpoints/step-00000008") for name in ("whole", "parts")]
    assert torch.equal(*(state["objective"]["loss_weighting.log_variances"] for state in states))
    weights = [checkpoint.read(tmp_path / name / "checkpoints/last")[0] for name in ("whole", "parts")]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())


@pytest.mark.slow
def test_two_processes_learn_the_loss_weighting_of_one(tmp_path: Path, fork_server: ForkServer) -> None:
    config = small_joint_config(tmp_path)
    # Every pixel but four is labelled, so that a mean of two halves is nearly the mean of the whole.
    words = ["objective.loss_weighting=uncertainty", "model.decoder={type: linear}", "model.heads.labels.dropout=0"]
    for processes in (1, 2):
        fork_server.finish(processes, "train", config, f"output={tmp_path / str(processes)}", *words)
    one, two = (read_csv(tmp_path / n / "train.csv")[-1] for n in "12")
    assert one["depth/uncertainty"] == pytest.approx(two["depth/uncertainty"], rel=1e-3)
    assert one["loss"] == pytest.approx(two["loss"], rel=1e-3)
