"""Learning from images without ground truth: the moving average teaches on the weak view, the model learns the strong
one."""

from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from opened import opened, with_first_batch
from shell import Shell
from small_scenes import MODEL, RUN, small_scenes

from densevit.cli.main import main
from densevit.engine.logger import read_csv
from densevit.engine.skipped_steps import PendingStep
from densevit.engine.trainer import Trainer
from densevit.model_inputs import INPUT_KINDS
from densevit.objectives.sources import SourcePolicy, source_losses
from densevit.ops.align import as_ground_truth, disparity_as_depth
from densevit.structures import IGNORE, Batch
from densevit.utils.device import DeviceNumbers
from densevit.weights import checkpoint

CONFIG = (
    MODEL
    + """
  heads:
    depth: {{type: metric, max_depth: 10, hidden: 0}}
    labels: {{type: segmentation}}
tasks:
  depth: {{losses: [{{type: silog}}]}}
  labels: {{type: segmentation, losses: [{{type: cross_entropy}}]}}
data:
  train:
    type: mix
    sources:
      - {{name: mine, data: {{type: folder, root: {root}/a, depth_scale: 1000}}, weight: 1, truth: [metric, labels]}}
      - name: web
        data: {{type: folder, root: {root}/b, depth_scale: 1000}}
        weight: 1
        truth: none
        cutmix: 0.5
        consistency: {{strong: [{{type: grayscale, p: 1}}, {{type: color, p: 1.0}}], confidence: 0.3}}
  val: {{type: folder, root: {root}/a, depth_scale: 1000}}
"""
    + RUN.replace("validate_every: 4", "validate_every: 1000")
    + "ema: 0.9\nsteps: 4\n"
)
WEB = "data.train.sources.1"


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    for name in "ab":
        small_scenes(folder / name, count=5)
    (folder / "run.yaml").write_text(CONFIG.format(root=folder, output=folder / "run"))
    assert main(["train", str(folder / "run.yaml"), "steps=6"]) == 0
    return folder


@pytest.mark.slow
def test_a_recorded_step_is_replayed_with_the_average_that_taught_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer, batches = opened(folder / "run.yaml", f"output={tmp_path / 'run'}")
    for _ in range(2):
        trainer.train_step(batches, Event())
    tensors = trainer.forward_backward_step(batches)
    numbers, state = tensors.numbers(), trainer.state
    pending = PendingStep(3, state.samples, tensors, DeviceNumbers(numbers), 0.0, state.random_before)
    trainer.record_skipped(pending, tensors.record(numbers.tolist()), fp16=False)
    assert main(["replay", str(tmp_path / "run/skipped_steps/step-00000003")]) == 0
    assert "The same, bit for bit." in capsys.readouterr().out


def trainer_and_batch(folder: Path, *words: str) -> tuple[Trainer, Batch]:
    trainer, batch = with_first_batch(folder / "run.yaml", "data.train.sources.1.cutmix=0.999", *words)
    for value in trainer.ema.average.values():  # the teacher is another model than the student
        value += 0.02 * torch.randn(value.shape, generator=torch.Generator().manual_seed(0)).to(value.dtype)
    return trainer, batch


def test_both_views_have_the_same_pixels_but_for_the_strong_transforms(folder: Path) -> None:
    _, batch = trainer_and_batch(folder)
    rows = [row for row, source in enumerate(batch.sources) if source == "web"]
    assert len(rows) == 2 and batch.weak is not None and batch.weak_pasted is not None and batch.pasted is not None
    for row in rows:
        image, weak = batch.image[row], torch.where(batch.pasted[row], batch.weak_pasted[row], batch.weak[row])
        assert 0 < batch.pasted[row].float().mean() < 1
        assert not torch.equal(image, weak)
        assert np.corrcoef(image.mean(0).flatten(), weak.mean(0).flatten())[0, 1] > 0.7  # the same place of the image
    others = [row for row in range(4) if row not in rows]
    assert not batch.weak[others].any()


def test_the_average_teaches_on_the_weak_views_put_together_as_the_images_are(folder: Path) -> None:
    trainer, batch = trainer_and_batch(folder)
    teacher = trainer.objective.teacher
    trainer.model.train()
    found, rows = teacher(batch, trainer.objective.context), teacher.rows(batch)
    assert trainer.model.training and all(module.training for module in trainer.model.modules())
    with trainer.ema.applied(), torch.no_grad():
        trainer.model.eval()
        first, second = trainer.model(batch.weak[rows]), trainer.model(batch.weak_pasted[rows])
    for head in ("depth", "labels"):
        expected = torch.where(batch.pasted[rows][:, None], second[head], first[head])
        assert torch.allclose(found[head], expected, atol=1e-6)


def test_the_average_sees_each_image_of_a_cutmix_with_its_own_camera(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, batch = trainer_and_batch(folder)
    teacher, seen = trainer.objective.teacher, []
    rows, cameras = teacher.rows(batch), torch.eye(3).expand(4, 3, 3)
    known = replace(batch, intrinsics=cameras, pasted_intrinsics=2 * cameras)
    predict = teacher._predict
    monkeypatch.setattr(teacher, "_predict", lambda image, *rest: (seen.append(rest[0]), predict(image, *rest))[1])
    teacher(known, trainer.objective.context)
    assert [INPUT_KINDS["camera"].of_batch(one)[:, 0].tolist() for one in seen] == [[1] * len(rows), [2] * len(rows)]


def test_unsure_pixels_teach_no_class_and_count_in_the_mean(folder: Path) -> None:
    """UniMatch: the sum over the sure pixels, divided by all pixels."""
    trainer, batch = trainer_and_batch(folder, f"{WEB}.consistency.confidence=0.5")
    task, size = trainer.tasks["labels"], batch.image.shape[-2:]
    scores = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    rows = [row for row, source in enumerate(batch.sources) if source == "web"]
    own = task.with_pseudo_labels(batch, rows, scores, [0.5] * 2)
    others = [row for row in range(4) if row not in rows]
    assert torch.equal(own.labels[others], batch.labels[others])
    shares, ids = scores.softmax(1).max(1)
    kept = shares >= 0.5
    assert 0.1 < kept.float().mean() < 0.9 and torch.equal(own.labels[rows] == IGNORE, ~kept)
    prediction = torch.randn(4, 3, *size, generator=torch.Generator().manual_seed(2))
    policy = SourcePolicy("web", share=0.5, confidence=0.5)
    found = source_losses(task, policy, prediction[rows], own.take(rows), 0, {})["cross_entropy"]
    errors = torch.nn.functional.cross_entropy(prediction[rows], ids, reduction="none")
    assert float(found) == pytest.approx(float((errors * kept).sum() / kept.numel()), rel=1e-5)


def test_depth_learns_the_teachers_depth(folder: Path) -> None:
    trainer, batch = trainer_and_batch(folder)
    task = trainer.tasks["depth"]
    rows = [row for row, source in enumerate(batch.sources) if source == "web"]
    teacher = torch.rand(2, 1, *batch.image.shape[-2:]) * 4 + 1
    own = task.with_pseudo_labels(batch, rows, teacher, [0.0] * 2)
    prediction = torch.ones(4, 1, *batch.image.shape[-2:])
    prediction[rows] = teacher
    losses = source_losses(task, SourcePolicy("web", share=0.5), prediction[rows], own.take(rows), 0, {})
    assert float(losses["silog"]) == pytest.approx(0, abs=1e-4)
    assert own.valid is not None and batch.valid is not None and own.valid[rows].all()
    others = [row for row in range(4) if row not in rows]
    assert torch.equal(own.valid[others], batch.valid[others])


def test_disparity_and_affine_depth_become_ground_truth_as_those_of_files() -> None:
    values = torch.randn(2, 1, 5, 6, generator=torch.Generator().manual_seed(0))
    values[0, 0, 0, 0] = torch.nan
    depth, valid = as_ground_truth(values, "disparity")
    for i in range(2):
        expected = disparity_as_depth(values[i, 0].numpy(), valid[i, 0].numpy())
        assert np.allclose(torch.where(valid, depth, 0)[i, 0], expected, rtol=1e-5)
    assert not valid[0, 0, 0, 0] and valid.sum() == 59
    affine, _ = as_ground_truth(values[1:], "affine")
    assert affine.min() == 1 and affine.max() == 2


def test_images_without_ground_truth_move_every_head(folder: Path) -> None:
    trainer, batch = trainer_and_batch(folder, f"{WEB}.consistency.confidence=0.0")
    objective = trainer.objective
    unlabelled = batch.take(objective.teacher.rows(batch))
    assert unlabelled.depth is None or not unlabelled.valid.any()
    sum(objective.losses(unlabelled, 0).values()).backward()
    assert all(any(p.grad.any() for p in head.parameters()) for head in trainer.model.heads.values())
    assert all(value.grad is None for value in trainer.ema.average.values())
    trainer.model.zero_grad()
    objective.teacher = None  # without it they teach nothing
    sum(objective.losses(replace(unlabelled, depth=None, valid=None, labels=None), 0).values()).backward()
    assert not any(p.grad is not None and p.grad.any() for p in trainer.model.parameters())


@pytest.mark.slow
def test_stopped_and_resumed_the_run_is_bit_equal(folder: Path, tmp_path: Path) -> None:
    whole = checkpoint.read(folder / "run/checkpoints/step-00000006")[0]
    words = [str(folder / "run.yaml"), f"output={tmp_path}"]
    assert main(["train", *words, "steps=3"]) == 0
    assert main(["train", *words, "steps=6", "--resume"]) == 0
    weights = checkpoint.read(tmp_path / "checkpoints/step-00000006")[0]
    assert all(torch.equal(value, whole[name]) for name, value in weights.items())
    last = read_csv(folder / "run/train.csv")[-1]
    assert last["web/samples"] == 12 and last["web/depth/silog"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([f"{WEB}.consistency=null"], "the ground truth of 'web' fits no task: it has none"),
        ([f"{WEB}.truth=labels"], f"{WEB}.consistency: for images without ground truth; set `truth: none`"),
        (["ema=null"], f"{WEB}.consistency: its teacher is the moving average of the weights; set `ema`"),
        (["compile=true"], f"{WEB}.consistency: its teacher cannot be combined with compile"),
        ([f"{WEB}.consistency.strong=[{{type: hflip}}]"], "consistency.strong.0: 'hflip' does more than change pixel"),
        (
            [f"{WEB}.consistency.strong=[{{type: colour}}]"],
            "strong.0.type: no transform 'colour'. Did you mean 'color'",
        ),
        ([f"{WEB}.consistency.confidence=95"], f"{WEB}.consistency.confidence"),
    ],
)
def test_what_does_not_fit_is_told_before_training(
    folder: Path, tmp_path: Path, shell: Shell, words: list[str], message: str
) -> None:
    assert message in shell.refused("train", folder / "run.yaml", f"output={tmp_path / 'x'}", *words)
    assert not (tmp_path / "x").exists()


def test_one_batch_is_learned_with_the_average_that_the_teacher_needs(folder: Path, shell: Shell) -> None:
    words = ["steps=2", "optim.lr=1e-9"]
    assert "one batch is not learned" in shell("train", folder / "run.yaml", "--overfit-one-batch", *words, code=4).err


def test_check_data_takes_images_without_ground_truth(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"{WEB}.data.require_depth=false", f"data.val.root={folder / 'b'}"]
    main(["check-data", str(folder / "run.yaml"), "--no-cache", *words])
    told = capsys.readouterr()
    assert "train/web: 5 of 5 samples" in told.out, told.err
