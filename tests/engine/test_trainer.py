"""The loop on a toy: a 1x1 convolution with dropout, on batches that are a function of their position."""

import math
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from densevit.config.schema import Data, Model, Optim, Schedule, TrainConfig
from densevit.engine import run_folder, train_state
from densevit.engine.logger import read_csv
from densevit.engine.objective import TrainingSetup
from densevit.engine.train_state import reseed, seed_everything
from densevit.engine.trainer import Trainer
from densevit.errors import CheckpointError, DataError, Diverged, Preempted, StorageError
from densevit.model_card import HeadSpec, ModelCard
from densevit.objectives import Supervised
from densevit.structures import Batch
from densevit.tasks.base import Task
from densevit.utils.process_group import ProcessGroup
from densevit.utils.state_dict import load_strict
from densevit.weights import checkpoint

CPU = ProcessGroup(torch.device("cpu"))
CARD = ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1)


class ToyEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [list(self.conv.parameters()), list(self.norm.parameters())]

    def no_weight_decay(self) -> set[str]:
        return set()


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = ToyEncoder()
        self.drop = nn.Dropout(0.3)
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        return {"depth": self.head(self.drop(self.encoder(image)))}


class ToyTask(Task):
    """Mean square; `poison` maps calls to what multiplies the loss."""

    best = ("mse", "min")

    def __init__(self, poison: dict[int, float] | None = None) -> None:
        nn.Module.__init__(self)
        self.name = "depth"
        self.poison = poison or {}
        self.calls = 0

    def losses(self, prediction: Tensor, batch: Batch, step: int, extras: object = None) -> dict[str, Tensor]:
        self.calls += 1
        loss = (prediction.float() - batch.depth).square().mean()
        return {"mse": loss * self.poison.get(self.calls, 1.0)}

    def image_scores(self, prediction: Tensor, batch: Batch) -> list[dict[str, float]]:
        return [{"mse": float((p - d).square().mean())} for p, d in zip(prediction, batch.depth, strict=True)]

    def dataset_scores(self, rows):
        return {"mse": float(np.mean([row["mse"] for row in rows]))}

    def panel(self, prediction: Tensor, batch: Batch):
        return np.zeros((4, 4, 3), np.uint8)


def batch_at(position: int, size: int = 2) -> Batch:
    generator = torch.Generator().manual_seed(position)
    image = torch.rand(size, 3, 4, 4, generator=generator)
    names = tuple(f"image{position + i}" for i in range(size))
    return Batch(
        names=names,
        indices=tuple(range(position, position + size)),
        image=image,
        depth=image.sum(1, keepdim=True),
        valid=torch.ones(size, 1, 4, 4, dtype=torch.bool),
    )


def train(start: int) -> Iterator[Batch]:
    while True:
        yield batch_at(start)
        start += 2


def some_run(output: Path, **changes) -> TrainConfig:
    base = TrainConfig(
        model=Model(encoder={}, decoder={}, heads={}),
        data=Data(train={}),
        optim=Optim(lr=1e-2),
        schedule=Schedule(warmup=2.0),
        steps=12,
        batch_size=4,
        grad_accum_steps=2,
        precision="fp32",
        ema=0.9,
        validate_every=4,
        save_every=4,
        log_every=1,
        output=output,
    )
    return replace(base, **changes)


def some_trainer(run: TrainConfig, task: ToyTask | None = None) -> Trainer:
    seed_everything(run.seed)
    trainer = toy_trainer(run, Toy(), task or ToyTask())
    reseed(run.seed, 0)
    return trainer


def toy_trainer(run: TrainConfig, model: nn.Module, task: ToyTask) -> Trainer:
    setup = TrainingSetup(
        run, model, {"depth": task}, {}, CARD, data={}, build_encoder=lambda config, where: nn.Identity()
    )
    return Trainer(
        Supervised(setup), CPU, predict=lambda model, batch, precision: (batch, model(batch.image)), best=task.best
    )


VAL = [batch_at(1000), batch_at(1002)]


def everything(trainer: Trainer) -> dict[str, Tensor]:
    state = {f"model.{k}": v for k, v in trainer.model.state_dict().items()}
    if trainer.ema:
        state |= {f"ema.{k}": v for k, v in trainer.ema.state_dict().items()}
    for i, values in trainer.optimizer.state_dict()["state"].items():
        state |= {f"optim.{i}.{k}": v for k, v in values.items()}
    state["counts"] = torch.tensor([trainer.state.step, trainer.state.updates])
    state["rng"] = torch.get_rng_state()
    return {name: value.detach().clone() for name, value in state.items()}


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def interrupted_at(step: int, output: Path, **changes) -> None:
    """Stops as a signal would: after the given step, saved."""
    trainer = some_trainer(some_run(output, **changes))

    def until(start: int) -> Iterator[Batch]:
        for count, batch in enumerate(train(start)):
            if count == 2 * step - 1:
                os.kill(os.getpid(), signal.SIGTERM)
            yield batch

    with pytest.raises(Preempted, match=f"saved at step {step} of 12"):
        trainer.fit(until, VAL)


def resumed(run: TrainConfig) -> Trainer:
    found = run_folder.find_checkpoint(run, "auto", CPU)
    assert found is not None
    trainer = some_trainer(run)
    trainer.checkpointer.load(*found)
    return trainer


def test_a_validation_that_fails_costs_no_step(tmp_path: Path) -> None:
    """A picture that is damaged by then, say: the steps are saved, and what was mended is validated first."""

    class Damaged(list[Batch]):
        def __iter__(self) -> Iterator[Batch]:
            yield VAL[0]
            raise DataError("b.png: truncated")

    whole = some_trainer(some_run(tmp_path / "whole"))
    whole.fit(train, VAL)
    run = some_run(tmp_path / "stopped", save_every=100)
    with pytest.raises(DataError, match="b.png"):
        some_trainer(run).fit(train, Damaged(VAL))
    again = resumed(run)
    assert again.state.step == 4
    again.fit(train, VAL)
    assert_equal(everything(whole), everything(again))
    assert [row["step"] for row in read_csv(tmp_path / "stopped/val.csv")] == [4, 8, 12]


def damaged_at(micro: int) -> Callable[[int], Iterator[Batch]]:
    """The stream of data up to a micro-batch that cannot be read."""

    def batches(start: int) -> Iterator[Batch]:
        for count, batch in enumerate(train(start)):
            if count == micro:
                raise DataError("a.png: truncated")
            yield batch

    return batches


@pytest.mark.parametrize("micro", [6, 7])
def test_a_training_image_that_turns_bad_costs_no_step(tmp_path: Path, micro: int, capsys) -> None:
    """Steps have two micro-batches: the first or the second of the fourth step fails, behind dropout and BatchNorm."""

    whole = some_trainer(some_run(tmp_path / "whole"))
    whole.fit(train, VAL)
    run = some_run(tmp_path / "stopped", save_every=100, validate_every=100)
    with pytest.raises(DataError, match="a.png"):
        some_trainer(run).fit(damaged_at(micro), VAL)
    assert "step 3 is saved; once the error below is fixed, --resume continues" in capsys.readouterr().out
    again = resumed(some_run(tmp_path / "stopped"))
    assert again.state.step == 3
    again.fit(train, VAL)
    assert_equal(everything(whole), everything(again))


@pytest.mark.parametrize("lost", ["disk", "GPU"])
def test_what_went_wrong_first_is_told_though_nothing_can_be_saved(
    tmp_path: Path, capsys, monkeypatch, lost: str
) -> None:
    """The disk is full, or a GPU is lost, and with it its random state and statistics."""
    fault = StorageError("full") if lost == "disk" else RuntimeError("CUDA error: unspecified launch failure")

    def fail(*_: object) -> None:
        raise fault

    trainer = some_trainer(some_run(tmp_path, save_every=100, validate_every=100))
    monkeypatch.setattr(
        *((trainer.checkpointer, "save") if lost == "disk" else (train_state, "set_random_state")), fail
    )
    with pytest.raises(DataError, match="a.png"):
        trainer.fit(damaged_at(6), None)
    assert f"step 3 could not be saved: {fault}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("step", "changes"),
    [
        (1, {}),
        pytest.param(5, {}, marks=pytest.mark.slow),
        (11, {}),
        (5, {"optim": Optim(type="sgd", lr=1e-3)}),
        (3, {"schedule": Schedule(warmup=3.0, encoder_warmup=2.0)}),
    ],
    ids=["1", "5", "11", "sgd", "two warm-ups"],
)
def test_a_resumed_run_ends_bit_for_bit_where_an_uninterrupted_one_does(
    tmp_path: Path, step: int, changes: dict[str, Any]
) -> None:
    whole = some_trainer(some_run(tmp_path / "a", **changes))
    begun = {name: whole.model.state_dict()[name].clone() for name in ("encoder.conv.weight", "head.weight")}
    whole.fit(train, VAL)
    expected = everything(whole)
    interrupted_at(step, tmp_path / "b", **changes)
    again = resumed(some_run(tmp_path / "b", **changes))
    assert again.state.step == step
    rests = [name for name, value in begun.items() if torch.equal(again.model.state_dict()[name], value)]
    assert rests == (["encoder.conv.weight"] if "schedule" in changes else [])  # which warms up by itself later
    again.fit(train, VAL)
    assert_equal(everything(again), expected)
    logs = [read_csv(tmp_path / run / "train.csv") for run in "ab"]
    assert [r["step"] for r in logs[1]] == list(range(1, 13))
    assert [r["loss"] for r in logs[0]] == [r["loss"] for r in logs[1]]


class Fading(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[float] = []

    def on_train_step(self, progress: float) -> None:
        self.told.append(progress)


def test_a_part_is_told_before_each_step_and_a_skipped_step_is_no_progress(tmp_path: Path) -> None:
    model, part = Toy(), Fading()
    model.inner = nn.Sequential(part)
    poisoned = ToyTask({3: math.nan})  # the second step's first half
    toy_trainer(some_run(tmp_path, steps=5, ema=None), model, poisoned).fit(train, None)
    assert part.told == pytest.approx([0, 1 / 5, 1 / 5, 2 / 5, 3 / 5])


def without(tree: Any, key: str) -> Any:
    """A copy without the first thing of that name, however deep it stands."""
    if isinstance(tree, dict):
        if key in tree:
            return {k: v for k, v in tree.items() if k != key}
        for name, value in tree.items():
            if (changed := without(value, key)) is not value:
                return {**tree, name: changed}
    if isinstance(tree, list):
        for place, value in enumerate(tree):
            if (changed := without(value, key)) is not value:
                return [*tree[:place], changed, *tree[place + 1 :]]
    return tree


STORED = [name for name in train_state.COUNTERS if name not in ("step", "samples")]  # those are in the manifest
STATE = ["optimizer", "objective", "scaler", "random", *STORED]
INSIDE = ["exp_avg", "exp_avg_sq", "param_groups", "python", "numpy", "torch", "encoder.norm.running_mean"]


@pytest.mark.parametrize("key", [*STATE, *INSIDE])
def test_a_state_that_lacks_anything_is_refused_by_name(tmp_path: Path, key: str, monkeypatch) -> None:
    interrupted_at(5, tmp_path)
    read = checkpoint.read_state
    assert sorted([*STATE, "weights", "raw_weights"]) == sorted(read(checkpoint.steps(tmp_path / "checkpoints")[-1]))
    monkeypatch.setattr(checkpoint, "read_state", lambda *place: without(read(*place), key))
    with pytest.raises(CheckpointError, match=key):
        resumed(some_run(tmp_path))


def test_validation_and_weights_to_use_are_those_of_the_average(tmp_path: Path) -> None:
    trainer = some_trainer(some_run(tmp_path))
    scores = trainer.fit(train, VAL)
    weights, card = checkpoint.read(tmp_path / "checkpoints" / "last")
    model = Toy().eval()
    load_strict(model, weights, tmp_path)
    with torch.inference_mode():
        rows = [row for batch in VAL for row in ToyTask().image_scores(model(batch.image)["depth"], batch)]
    assert ToyTask().dataset_scores(rows)["mse"] == pytest.approx(scores["mse"], abs=1e-7)
    assert card.scores["mse"] == pytest.approx(scores["mse"])
    assert not torch.equal(weights["head.weight"], trainer.model.state_dict()["head.weight"])


def test_processes_validate_the_average_with_the_same_running_statistics(tmp_path: Path, monkeypatch) -> None:
    def of_rank_0(world: ProcessGroup, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            tensor.fill_(7)

    monkeypatch.setattr(ProcessGroup, "broadcast", of_rank_0)
    trainer = some_trainer(some_run(tmp_path))
    trainer.fit(train, VAL)
    for state in (trainer.model.state_dict(), trainer.ema.state_dict()):
        assert (state["encoder.norm.running_mean"] == 7).all() and (state["encoder.norm.running_var"] == 7).all()


@pytest.mark.parametrize("where", ["image", "loss", "gradient"])
def test_a_step_that_is_not_finite_leaves_no_trace_and_is_counted(tmp_path: Path, where: str, capsys) -> None:
    """Not in the weights, nor in their average, the optimiser, the schedule, or BatchNorm's running statistics."""
    run = some_run(tmp_path, steps=4, grad_accum_steps=1, batch_size=2)
    trainer = some_trainer(run, ToyTask({3: math.nan} if where == "loss" else {}))
    states: list[dict[str, Tensor]] = []
    rates: list[float] = []
    step = trainer.train_step

    def spoilt(start: int) -> Iterator[Batch]:
        for place, batch in enumerate(train(start)):
            bad = where == "image" and place == 2
            yield replace(batch, image=batch.image * math.nan) if bad else batch

    def spy(batches, stop, wait):
        states.append(everything(trainer))
        ruin = trainer.model.head.weight.register_hook(lambda gradient: gradient * math.nan)
        if where != "gradient" or trainer.state.step != 2:
            ruin.remove()
        values = step(batches, stop)
        ruin.remove()
        rates.append(values[0]["lr"])
        return values

    trainer.train_step = spy  # type: ignore[method-assign]
    trainer.fit(spoilt, None)
    changed = [name for name in states[2] if not torch.equal(states[2][name], states[3][name])]
    assert changed == ["counts", "rng"]
    assert (trainer.state.step, trainer.state.updates) == (4, 3) and rates[3] == trainer.rates[0](2)
    assert "step 3: loss or gradient is not finite" in capsys.readouterr().out
    assert read_csv(tmp_path / "train.csv")[-1]["skipped"] == 1


def test_a_loss_that_leaves_its_course_is_told_with_its_images_and_counted(tmp_path: Path, capsys) -> None:
    run = some_run(tmp_path, steps=30, grad_accum_steps=1, batch_size=2)
    trainer = some_trainer(run, ToyTask(dict.fromkeys(range(21, 26), 100.0)))
    trainer.fit(train, None)
    said = [line for line in capsys.readouterr().out.splitlines() if "was usual" in line]
    assert len(said) == 5
    assert "step 21: the loss is" in said[0] and "Rank 0 had: image40, image41" in said[0]
    assert read_csv(tmp_path / "train.csv")[-1]["spikes"] == 5


def test_weights_that_are_not_finite_are_not_saved_and_the_last_good_ones_stay(tmp_path: Path) -> None:
    trainer = some_trainer(some_run(tmp_path))
    trainer.fit(train, VAL)
    trainer.state.step += 1
    trainer.ema.average["head.weight"][0] = math.nan
    with pytest.raises(CheckpointError, match=r"step-00000013: not saved: 1 weights are NaN or infinite: head.weight"):
        trainer.checkpointer.save()
    found = run_folder.find_checkpoint(some_run(tmp_path), "auto", CPU)
    assert found is not None and found[1].step == 12


def test_too_many_bad_steps_in_a_row_end_the_run_and_keep_the_last_good_checkpoint(tmp_path: Path) -> None:
    poison = dict.fromkeys(range(13, 25), math.nan)
    trainer = some_trainer(some_run(tmp_path), ToyTask(poison))
    with pytest.raises(Diverged, match="4 steps in a row were not finite, the last at step 10; try a lower optim.lr"):
        trainer.fit(train, VAL)
    found = run_folder.find_checkpoint(some_run(tmp_path), "auto", CPU)
    assert found is not None and found[1].step == 8


def test_a_run_resumes_in_another_precision(tmp_path: Path) -> None:
    """As `auto` is another one on another GPU."""
    interrupted_at(5, tmp_path)
    trainer = resumed(some_run(tmp_path, precision="fp16"))
    scale = trainer.scaler.get_scale()
    trainer.fit(train, VAL)
    assert trainer.state.step == 12 and scale == torch.GradScaler("cpu").get_scale()
    assert resumed(some_run(tmp_path)).state.step == 12


def test_fp16_overflow_is_skipped_and_counted_and_moves_no_schedule(tmp_path: Path) -> None:
    run = some_run(tmp_path, precision="fp16", steps=8, grad_accum_steps=1, batch_size=2)
    trainer = some_trainer(run, ToyTask(dict.fromkeys(range(1, 7), math.inf)))
    trainer.fit(train, None)
    assert (trainer.state.step, trainer.state.updates) == (8, 2)
    assert trainer.scaler.get_scale() < 2**16
    trainer = some_trainer(
        replace(run, output=tmp_path / "b", steps=40), ToyTask(dict.fromkeys(range(1, 40), math.inf))
    )
    with pytest.raises(Diverged, match="13 steps in a row .* try precision=bf16"):
        trainer.fit(train, None)


def test_a_frozen_encoder_learns_nothing_not_even_its_statistics(tmp_path: Path) -> None:
    run = some_run(tmp_path, ema=None)
    trainer = some_trainer(replace(run, model=replace(run.model, freeze_encoder=True)))
    trainer.model.encoder.requires_grad_(False)
    before = {name: value.clone() for name, value in trainer.model.encoder.state_dict().items()}
    head = trainer.model.head.weight.detach().clone()
    modes = []
    trainer.model.register_forward_hook(lambda model, *_: modes.append((model.training, model.encoder.training)))
    trainer.fit(train, VAL)
    training, validating = (True, False), (False, False)
    assert set(modes) == {training, validating}
    assert modes.index(training) < modes.index(validating) < len(modes) - modes[::-1].index(training)  # and again
    assert all(torch.equal(before[name], value) for name, value in trainer.model.encoder.state_dict().items())
    assert not torch.equal(head, trainer.model.head.weight)


def test_a_resumed_run_has_the_decay_and_betas_of_its_config_and_says_what_has_changed(tmp_path: Path, capsys) -> None:
    interrupted_at(5, tmp_path)
    trainer = resumed(some_run(tmp_path, optim=Optim(lr=1e-2, weight_decay=0.3, betas=(0.8, 0.99))))
    decays = [group["weight_decay"] for group in trainer.optimizer.param_groups]
    assert set(decays) == {0.0, 0.3} and {group["betas"] for group in trainer.optimizer.param_groups} == {(0.8, 0.99)}
    said = capsys.readouterr().out
    assert "was trained otherwise: optim.weight_decay was 0.05, is 0.3; optim.betas was [0.9, 0.999], is" in said
    resumed(some_run(tmp_path))
    assert "otherwise" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("optim", "message"),
    [({"type": "sgd"}, "another optim.type"), ({"layer_decay": 0.5}, "keep model.freeze_encoder, optim.layer_decay")],
)
def test_an_optimiser_that_is_another_is_refused(tmp_path: Path, optim: dict[str, Any], message: str) -> None:
    interrupted_at(5, tmp_path)
    with pytest.raises(CheckpointError, match=message):
        resumed(some_run(tmp_path, optim=Optim(lr=1e-2, **optim)))


def test_a_run_that_gives_up_its_average_goes_on_from_what_it_learned(tmp_path: Path) -> None:
    interrupted_at(5, tmp_path)
    with_average, without = resumed(some_run(tmp_path)), resumed(some_run(tmp_path, ema=None))
    assert_equal(with_average.model.state_dict(), without.model.state_dict())


def test_the_average_of_a_run_that_adds_one_begins_with_its_weights(tmp_path: Path) -> None:
    interrupted_at(5, tmp_path, ema=None)
    trainer = resumed(some_run(tmp_path, ema=0.9))
    assert trainer.ema is not None
    assert_equal(trainer.ema.average, trainer.model.state_dict())
    assert_equal(trainer.model.state_dict(), resumed(some_run(tmp_path, ema=None)).model.state_dict())


def test_an_output_that_no_disk_takes_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be used"):
        run_folder.find_checkpoint(some_run(tmp_path / ("long" * 100)), "auto", CPU)


def test_a_run_named_to_go_on_from_means_its_newest_checkpoint_not_its_best(tmp_path: Path) -> None:
    some_trainer(some_run(tmp_path, keep_last=3)).fit(train, VAL)
    (tmp_path / "checkpoints/best").unlink()
    (tmp_path / "checkpoints/best").symlink_to("step-00000004")
    for folder in (tmp_path, tmp_path / "checkpoints"):
        found = run_folder.find_checkpoint(some_run(tmp_path), str(folder), CPU)
        assert found is not None and found[1].step == 12


def test_tensorboard_gets_scalars_and_panels(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    some_trainer(some_run(tmp_path)).fit(train, VAL)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    speed = {f"train/{name}" for name in ("images_per_s", "data_wait", "peak_memory_gb")}
    assert {"train/loss", "train/lr", "val/mse"} | speed <= set(events.Tags()["scalars"])
    assert events.Tags()["images"] == ["panel/depth"]
    assert [event.step for event in events.Scalars("val/mse")] == [4, 8, 12]


def test_validations_between_checkpoints_save_the_best(tmp_path: Path) -> None:
    class Fixed(ToyTask):
        def dataset_scores(self, rows: Any) -> dict[str, float]:
            return {"mse": next(scores)}

    scores = iter([3.0, 1.0, 2.0, 2.0, 5.0, 4.0])
    run = some_run(tmp_path, validate_every=2, save_every=5, keep_last=1)
    some_trainer(run, Fixed()).fit(train, VAL)
    checkpoints = tmp_path / "checkpoints"
    assert (checkpoints / "best").resolve().name == "step-00000004"
    assert sorted(path.name for path in checkpoints.glob("step-*")) == ["step-00000004", "step-00000012"]


@pytest.mark.parametrize(("precision", "tf32"), [("fp32", False), ("bf16", True)])
def test_training_multiplies_in_tf32_under_mixed_precision_and_validation_exactly(
    tmp_path: Path, precision: str, tf32: bool
) -> None:
    seen: list[tuple[bool, bool, bool]] = []

    class Spy(Toy):
        def forward(self, image: Tensor) -> dict[str, Tensor]:
            backends = torch.backends
            seen.append((self.training, backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32))
            return super().forward(image)

    run = some_run(tmp_path, steps=1, precision=precision)
    toy_trainer(run, Spy(), ToyTask()).fit(train, VAL)
    assert set(seen) == {(True, tf32, tf32), (False, False, False)}
