"""Pre-training by config: the probe scores and picks, the encoder comes out as a file, a resumed run is the same."""

import math
import shutil
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from forked import ForkServer
from opened import opened
from PIL import Image
from safetensors.torch import load_file
from shell import Shell
from small import small_config

import densevit
from densevit.api.training import Run
from densevit.cli.main import main
from densevit.config import schema
from densevit.errors import Diverged
from densevit.model_card import HeadSpec, ModelCard
from densevit.models.dense import DenseModel
from densevit.objectives.pretraining import probe
from densevit.objectives.pretraining.probe import feature_spread
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import Batch, EncoderOutput
from densevit.weights import checkpoint

MAE = "objective={type: mae, dim: 32, depth: 1, heads: 2}"
DINO = "objective={type: dino, prototypes: 32, hidden: 16, bottleneck: 8, local_crops: 1}"
SHORT = ["probe.images=6", "probe.steps=8", "steps=4", "validate_every=2", "model.decoder={type: linear}", "ema=0.9"]


def training(folder: Path, name: str, *words: str) -> list[str]:
    return ["train", str(folder / "small.yaml"), f"output={folder / name}", *words]


def train(folder: Path, name: str, *words: str) -> int:
    return main(training(folder, name, *words))


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    small_config(folder)
    assert train(folder, "mae", MAE, *SHORT) == 0
    assert train(folder, "dino", DINO, *SHORT) == 0
    return folder


@pytest.mark.parametrize("name", ["mae", "dino"])
def test_the_probe_scores_the_start_and_every_validation(folder: Path, name: str) -> None:
    run = Run(folder / name)
    assert [row["step"] for row in run.val_log] == [0, 2, 4]
    assert all({"abs_rel", "feature_std", "feature_rank"} <= row.keys() for row in run.val_log)
    assert len({row["abs_rel"] for row in run.val_log}) == 3
    assert run.scores["abs_rel"] == pytest.approx(min(row["abs_rel"] for row in run.val_log[1:]), rel=1e-6)
    assert run.train_log[-1].keys() >= ({"mae"} if name == "mae" else {"dino", "ibot", "koleo"})


@pytest.mark.parametrize("name", ["mae", "dino"])
def test_a_checkpoint_is_an_ordinary_model_with_the_probe(folder: Path, name: str, shell: Shell) -> None:
    weights = load_file(folder / name / "checkpoints/last/model.safetensors")
    assert {key.partition(".")[0] for key in weights} == {"encoder", "heads"}  # `linear` has none
    words = ["--data", "folder", "--root", str(folder / "data"), "--data-options", "depth_scale=1000"]
    last = folder / name / "checkpoints/step-00000004"
    assert f"{Run(folder / name).val_log[-1]['abs_rel']:.4f}" in shell("eval", "--task", "depth", last, *words).out


def test_the_probe_teaches_a_head_for_one_focal_length_by_cameras_of_the_network_s_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = {"depth": HeadSpec(kind="metric", unit="metre", focal=50), "plain": HeadSpec(kind="metric")}
    card = ModelCard(outputs=outputs, multiple=8, resize=PreprocessConfig(mode="fixed", size=(24, 32)))
    taught = probe.Probe([], {}, [], card, schema.Probe())
    cameras = torch.stack([torch.diag(torch.tensor([90.0, 90, 1])), torch.full((3, 3), torch.nan)])
    batch = Batch(names=("a", "b"), indices=(0, 1), image=torch.zeros(2, 3, 48, 64), intrinsics=cameras)
    ones = dict.fromkeys(outputs, torch.ones(2, 1, 24, 32))
    monkeypatch.setattr(DenseModel, "forward", lambda *_, **__: ones)
    model = DenseModel.__new__(DenseModel)
    features = EncoderOutput((torch.ones(2, 8, 3, 4),), (torch.zeros(2, 0, 8),), (24, 32))
    y = taught._predict(model, torch.zeros(2, 3, 24, 32), features, batch)
    assert [x.mean() for x in y["depth"]] == [0.5, 1] and (y["plain"] == 1).all()


@pytest.mark.slow
def test_the_encoder_file_goes_into_other_trainings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoder = load_file(folder / "mae/encoder.safetensors")
    assert "blocks.0.attn.qkv.weight" in encoder
    assert not [name for name in encoder if name.startswith(("encoder.", "objective."))]
    frozen = ["steps=1", "model.freeze_encoder=true", "validate_every=1"]
    assert train(folder, "by_file", f"model.encoder.weights={folder / 'mae/encoder.safetensors'}", *frozen) == 0
    assert train(folder, "by_run", f"model.init_from={folder / 'mae'}", *frozen) == 0
    for name in ("by_file", "by_run"):
        taken = load_file(folder / name / "checkpoints/last/model.safetensors")
        assert torch.equal(taken["encoder.vit.blocks.0.attn.qkv.weight"], encoder["blocks.0.attn.qkv.weight"])
    target = folder / "again.safetensors"
    assert main(["convert", str(folder / "mae"), str(target), "--to", "encoder"]) == 0
    assert {name: tensor.sum() for name, tensor in load_file(target).items()} == {
        name: tensor.sum() for name, tensor in encoder.items()
    }


@pytest.mark.parametrize(("name", "objective"), [("mae", MAE), pytest.param("dino", DINO, marks=pytest.mark.slow)])
def test_a_resumed_pretraining_is_the_same(folder: Path, name: str, objective: str) -> None:
    whole = torch.load(folder / name / "checkpoints/step-00000004/state.pt", weights_only=False)
    before = load_file(folder / name / "checkpoints/step-00000004/model.safetensors")
    other, middle = folder / f"{name}_resumed", folder / name / "checkpoints/step-00000002"
    assert train(folder, other.name, objective, *SHORT, "--resume", str(middle)) == 0
    after = load_file(other / "checkpoints/step-00000004/model.safetensors")
    assert [key for key in before if not torch.equal(before[key], after[key])] == []
    state = torch.load(other / "checkpoints/step-00000004/state.pt", weights_only=False)
    kept = whole["training_only"]
    assert {key.partition(".")[0] for key in kept} == {"objective"}
    assert [key for key in kept if not torch.equal(kept[key], state["training_only"][key])] == []


@pytest.mark.slow
def test_the_teacher_follows_the_student_in_a_run_that_is_resumed_with_more_steps(folder: Path) -> None:
    state = "checkpoints/step-{:08d}/state.pt"
    middle = folder / "dino/checkpoints/step-00000004"
    assert train(folder, "longer", DINO, *SHORT, "steps=8", "validate_every=8", "--resume", str(middle)) == 0
    before, after = (
        torch.load(folder / name / state.format(step), weights_only=False)["raw_weights"]
        for name, step in (("dino", 4), ("longer", 8))
    )
    teacher = "objective.teacher.vit.blocks.0.attn.qkv.weight"
    assert not torch.equal(before[teacher], after[teacher])


def test_a_skipped_step_leaves_the_centres_of_the_teacher_as_they_were(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, batches = opened(folder / "small.yaml", DINO, *SHORT, f"output={tmp_path}")
    trainer.train_step(batches, Event())
    before = trainer.model.objective.centre.clone()
    losses = trainer.objective.losses
    monkeypatch.setattr(
        trainer.objective, "losses", lambda *args: {name: math.nan * loss for name, loss in losses(*args).items()}
    )
    trainer.train_step(batches, Event())
    assert trainer.state.skipped_in_row == 1
    assert before.any() and torch.equal(trainer.model.objective.centre, before)


@pytest.mark.slow
@pytest.mark.parametrize("micro", [1, 2])
def test_prototypes_that_rest_at_first_learn_on_two_processes(
    folder: Path, fork_server: ForkServer, micro: int
) -> None:
    dino, name = f"{DINO[:-1]}, freeze_prototypes: 0.4}}", f"two{micro}"
    words = ["train", folder / "small.yaml", dino, *BARE[:3], "ema=null", "steps=4", "save_every=1", "keep_last=0"]
    fork_server.finish(2, *words, "batch_size=8", f"grad_accum_steps={micro}", f"output={folder / name}")
    first, second, _, last = (
        torch.load(path / "state.pt", weights_only=False)["training_only"]["objective.heads.image.prototypes"]
        for path in checkpoint.steps(folder / name / "checkpoints")
    )
    assert torch.equal(first, second) and not torch.equal(second, last)


def test_a_collapse_stops_the_training_and_leaves_the_checkpoints(
    folder: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setattr(probe, "COLLAPSED", 10.0)
    told = shell(*training(folder, "collapsed", MAE, *SHORT), code=4).err
    assert "the encoder has collapsed at step 2" in told
    same = EncoderOutput((torch.ones(4, 8, 3, 3),), (torch.zeros(4, 0, 8),), (48, 48))
    monkeypatch.undo()
    with pytest.raises(Diverged):
        feature_spread([same], 1)
    torch.manual_seed(0)
    other = feature_spread([EncoderOutput((torch.randn(64, 8, 3, 3),), (torch.zeros(64, 0, 8),), (48, 48))], 1)
    assert other["feature_std"] == pytest.approx(1.0, abs=0.01)
    assert other["feature_rank"] == pytest.approx(8, abs=0.1)


def test_the_parts_of_an_encoder_that_are_named_learn_alone(folder: Path) -> None:
    trainer, batches = opened(folder / "small.yaml", MAE, *SHORT, "model.trainable=[encoder.vit.blocks.1]")
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.train_step(batches, Event())
    moved = {name for name, value in trainer.model.named_parameters() if not torch.equal(value, before[name])}
    assert {name for name in moved if not name.startswith("objective.")} == {
        name for name in before if name.startswith("encoder.vit.blocks.1.")
    }
    assert trainer.latest[0].keys() >= {"mae"}


def test_the_probe_learns_from_the_images_that_have_ground_truth(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "data", tmp_path / "few")
    for i in (0, 1, 3, 4):
        (tmp_path / f"few/depths/{i:03d}.png").unlink()
    few = f"data.train={{type: folder, root: {tmp_path / 'few'}, depth_scale: 1000, require_depth: false}}"
    trainer, _ = opened(folder / "small.yaml", MAE, *SHORT, few, "probe.images=2")
    taught = trainer.objective.probe.batches
    assert [name for batch in taught for name in batch.names] == ["002", "005"]
    (tmp_path / "few/images/002.jpg").write_bytes(b"damaged")
    trainer, _ = opened(folder / "small.yaml", MAE, *SHORT, few, "probe.images=2", "data.on_corrupt=skip")
    assert [name for batch in trainer.objective.probe.batches for name in batch.names] == ["005"]


def test_the_probe_of_a_task_learns_from_the_sources_that_it_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = f"{{type: folder, root: {folder / 'data'}, depth_scale: 1000}}"
    mix = f"data.train={{type: mix, sources: [{{name: a, data: {data}}}, {{name: b, data: {data}}}]}}"
    trainer, _ = opened(folder / "small.yaml", MAE, *SHORT, mix, "tasks.depth.sources=[b]")
    task, seen = trainer.tasks["depth"], set()
    losses = task.losses
    monkeypatch.setattr(task, "losses", lambda y, batch, *more: seen.update(batch.sources) or losses(y, batch, *more))
    trainer.objective.before_validation()
    assert seen == {"b"}


def test_what_a_pretraining_lacks_is_said_at_once(folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("densevit.builder.training.build_model")
    nothing = ["data.val=null", "model.freeze_encoder=true", "model.trainable=[heads]", "parallel=fsdp"]
    lacking = ["data.val: missing; the probe", "freeze_encoder: leaves", "trainable: leaves", "needs ddp"]
    few = "micro-batches of 1 (batch_size / grad_accum_steps / processes), and objective 'dino' needs 2"
    cold = "teacher_temperature.0: input should be greater than 0"
    for words, told in (
        ([DINO, *SHORT, "batch_size=2", "grad_accum_steps=2"], [few]),
        ([MAE, *nothing], lacking),
        (["objective={type: mea}"], ["Did you mean 'mae'?"]),
        (["objective={type: dino, teacher_temperature: [0, 0.07]}", *SHORT], [cold]),
    ):
        said = shell.refused(*training(folder, "x", *words))
        assert [text for text in told if text not in said] == []


BARE = ["data.val=null", "model.heads={}", "tasks={}", "steps=2", "validate_every=2", "ema=null"]


def test_bare_photos_teach_an_encoder_without_a_probe(folder: Path, shell: Shell) -> None:
    bare = f"data.train={{type: folder, root: {folder / 'data/images'}, require_depth: false}}"
    assert train(folder, "bare", MAE, *BARE, bare) == 0
    encoder = load_file(folder / "bare/encoder.safetensors")
    assert "blocks.0.attn.qkv.weight" in encoder and not Run(folder / "bare").val_log
    frozen = ["steps=1", "validate_every=1", f"model.encoder.weights={folder / 'bare/encoder.safetensors'}"]
    assert train(folder, "after", *frozen) == 0
    assert "model.heads: there is none" in shell.refused(*training(folder, "x", *BARE))
    told = shell.refused(*training(folder, "x", MAE, *BARE[1:], bare))
    assert "without model.heads there is no probe" in told
    told = shell.refused("predict", folder / "bare", folder / "data/images", "--output", folder / "maps")
    assert "no map to write from an encoder without heads" in told


@pytest.mark.slow
def test_a_probe_of_classes_takes_them_from_its_own_images(folder: Path) -> None:
    labelled = folder / "labelled"
    for kind in ("images", "labels"):
        (labelled / kind).mkdir(parents=True)
    for i in range(6):
        shutil.copy(folder / f"data/images/{i:03d}.jpg", labelled / "images")
        Image.fromarray(np.full((60, 80), i % 2, np.uint8)).save(labelled / f"labels/{i:03d}.png")
    (labelled / "classes.txt").write_text("near\nfar\n")
    bare = f"data.train={{type: folder, root: {folder / 'data/images'}, require_depth: false}}"
    probe = [f"data.{name}={{type: folder, root: {labelled}}}" for name in ("val", "probe")]
    heads = ["model.heads={labels: {type: segmentation}}", "tasks={labels: {type: segmentation}}"]
    assert train(folder, "classes", MAE, *SHORT, bare, *probe, *heads) == 0
    assert "miou" in Run(folder / "classes").val_log[-1]
    assert densevit.load(folder / "classes").card.outputs["labels"].classes == ("near", "far")


def test_a_mixture_that_drops_pixels_is_refused(folder: Path, shell: Shell) -> None:
    source = f"{{data: {{type: folder, root: {folder / 'data'}, depth_scale: 1000}}, drop_worst: 0.2, weight: 1}}"
    sources = f"data.train={{type: mix, sources: [{{name: a, truth: metric, {source[1:]}]}}"
    told = shell.refused(*training(folder, "x", MAE, *SHORT, sources))
    assert "sources.0.drop_worst: objective 'mae' does not apply it" in told
