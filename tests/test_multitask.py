"""Depth and classes from one model: trained, resumed, evaluated, exported; classes alone leave depth files alone."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import ForkServer
from PIL import Image
from shell import Shell
from small import small_config
from small_scenes import small_joint_config

import densevit
from densevit import api
from densevit.builder.checkpoint import restore
from densevit.builder.plan import load_plan
from densevit.cli.main import main
from densevit.data.datasets.base import Part
from densevit.data.datasets.folder import Folder
from densevit.data.io.readers import read_depth
from densevit.engine.checkpointer import CheckpointFolder
from densevit.engine.logger import read_csv
from densevit.errors import DataError
from densevit.inference.predictor import Predictor
from densevit.scorers.training_report import write_training_report
from densevit.utils.process_group import CPU
from densevit.weights import checkpoint

pytestmark = pytest.mark.usefixtures("report_images")

MIXED = {"count": 8, "without": [(0, "depths"), (3, "depths"), (1, "labels"), (4, "labels")]}


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    config = small_joint_config(folder, **MIXED)
    words = ["steps=80", "validate_every=40", "optim.lr=3e-3", "objective.loss_weighting=uncertainty"]
    assert main(["train", str(config), *words]) == 0
    return folder


def evaluation(run: Path, task: str, *words: object) -> list[object]:
    options = ["depth_scale=1000", "require_depth=false", "require_labels=false"]
    data = ["--data", "folder", "--root", run / "data", *(w for o in options for w in ("--data-options", o))]
    return ["eval", "--task", task, *words, *data]


def metrics(folder: Path) -> dict[str, float]:
    return json.loads((folder / "metrics.json").read_text())["metrics"]


def test_both_tasks_learn_where_images_have_one_truth_or_the_other(run: Path) -> None:
    rows = read_csv(run / "run/val.csv")
    assert rows[-1]["labels/miou"] > 0.7 and rows[-1]["depth/abs_rel"] < 0.15


def test_the_card_knows_names_and_colours_that_only_the_data_told(run: Path) -> None:
    spec = restore(run / "run")[1].outputs["labels"]
    assert spec.classes == ("wall", "floor", "box")
    assert spec.palette == ((120, 120, 180), (80, 50, 50), (255, 200, 0))


def test_evaluation_repeats_the_scores_of_training(run: Path, shell: Shell) -> None:
    best = min(read_csv(run / "run/val.csv"), key=lambda row: row["depth/abs_rel"])
    for task in ("segmentation", "depth"):
        shell(*evaluation(run, task, run / "run", "--output", run / task))
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


def test_scores_of_training_images_say_so_and_name_the_split_to_score(tmp_path: Path, shell: Shell) -> None:
    config = small_joint_config(tmp_path, count=8)
    drawn = [f"data.{split}.{key}" for split in ("train", "val") for key in (f"split={split}", "val_fraction=0.5")]
    shell("train", config, "steps=1", *drawn)
    trained = len(Folder(root=tmp_path / "data", split="train", val_fraction=0.5))
    told = f"{trained} of these 8 images trained the model"
    held_out = ["--split", "val", "--data-options", "val_fraction=0.5"]
    for name, words, warned in (("all", [], True), ("val", held_out, False)):
        command = evaluation(tmp_path, "segmentation", tmp_path / "run", "--output", tmp_path / name, *words)
        printed = shell(*command).out
        source = json.loads((tmp_path / name / "metrics.json").read_text())["source"]
        assert (told in source.get("warning", "")) == (told in printed) == warned
        assert not warned or " ".join(held_out) in source["warning"]
    assert f"warning: A: {told}" in shell("compare", tmp_path / "all", tmp_path / "val").out
    assert "trained the model" not in shell("eval", tmp_path / "run", "--task", "segmentation").out


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


def test_exported_classes_score_as_the_model_does(run: Path, tmp_path: Path, shell: Shell) -> None:
    words = ["--output", tmp_path / "maps", "--precision", "fp32", "--formats", "labels"]
    shell("predict", run / "run", run / "data/images", *words)
    saved = ["--predictions", tmp_path / "maps", "--suffix", ".labels.png"]
    for name, scored in (("saved", saved), ("model", [run / "run"])):
        shell(*evaluation(run, "segmentation", *scored, "--output", tmp_path / name))
    assert metrics(tmp_path / "saved") == metrics(tmp_path / "model")
    classes = tmp_path / "classes.json"
    classes.write_text('{"1": "floor", "2": "wall", "3": "box"}')
    told = "maps/classes.json has the classes of the data in another order: 0 is 'wall', in the data 'floor'"
    assert told in shell.refused(*evaluation(run, "segmentation", *saved, "--data-options", f"classes={classes}"))


def test_other_classes_orders_and_heads_are_not_scored(run: Path, tmp_path: Path, shell: Shell) -> None:
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
        assert told in shell.refused(*evaluation(run, "segmentation", run / "run", *words))


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
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, classes = small_joint_config(tmp_path), tmp_path / "data/classes.json"
    shell("train", config, "steps=1")
    wall, floor, *others = json.loads(classes.read_text())
    classes.write_text(json.dumps([floor, wall, *others]))
    monkeypatch.delattr("densevit.builder.training.build_model")  # it is told before
    told = "step-00000001: head 'labels' has the classes of the data in another order: 0 is 'wall', in the data 'floor'"
    assert told in shell.refused("train", config, "steps=2", "--resume")


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


LABELS = ["model.heads={labels: {type: segmentation}}", "tasks={labels: {type: segmentation}}", "steps=2"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "score"), [("panoptic", "pq"), ("instances", "ap")])
def test_training_and_evaluation_of_segments_need_no_scale_of_depth(tmp_path: Path, kind: str, score: str) -> None:
    config, root = small_config(tmp_path), tmp_path / "data"
    (root / "segments").mkdir()
    for i in range(6):
        Image.fromarray(1 + np.indices((60, 80))[1].astype(np.uint8) // 40).save(root / f"segments/{i:03d}.png")
    rows = [f"{i:03d},{segment},{segment - 1}" for i in range(6) for segment in (1, 2)]
    (root / "segments.csv").write_text("\n".join(["image,id,class", *rows]))
    (root / "classes.json").write_text('[{"id": 0, "name": "left"}, {"id": 1, "name": "right", "thing": true}]')
    data = f"{{type: folder, root: {root}}}"
    model = ["model.encoder.out_indices=1", "model.decoder={type: eomt, queries: 4, blocks: 1, segments: true}"]
    task = [f"model.heads={{{kind}: {{type: {kind}}}}}", f"tasks={{{kind}: {{type: {kind}}}}}", "validate_every=2"]
    assert main(["train", str(config), *model, *task, f"data.train={data}", f"data.val={data}", "steps=2"]) == 0
    assert score in densevit.evaluate(tmp_path / "run", root).scores


@pytest.mark.slow
def test_training_and_evaluation_of_classes_need_no_scale_of_depth(tmp_path: Path) -> None:
    config, root = small_config(tmp_path), tmp_path / "data"
    (root / "labels").mkdir()
    for i in range(6):
        Image.fromarray(np.indices((60, 80))[1].astype(np.uint8) // 40).save(root / f"labels/{i:03d}.png")
    (root / "classes.txt").write_text("left\nright\n")
    data = f"{{type: folder, root: {root}}}"
    with pytest.raises(DataError, match="depth_scale"):
        Folder(root=root).read(0)
    mix = f"{{type: mix, sources: [{{name: a, truth: labels, weight: 1, data: {data}}}]}}"
    for name, train in (("plain", data), ("mix", mix)):
        words = [f"data.train={train}", f"data.val={data}", "validate_every=2", f"output={tmp_path / name}"]
        assert main(["train", str(config), *LABELS, *words]) == 0
        assert "miou" in densevit.Run(tmp_path / name).scores
    assert set(densevit.evaluate(tmp_path / "mix", root).per_class) == {"left", "right"}
    opened = Folder(root=root)
    assert opened.without_depth().read(0).depth is None and opened.reads_depth
    assert Part(opened, [1]).without_depth().read(0).depth is None
