"""The training loop, on one page. It is handed the model, the tasks and the data; it knows none of their kinds."""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from densevit.config import parser
from densevit.config.schema import Run
from densevit.engine import checkpointer, monitors, seed, skipped_steps, train_state
from densevit.engine.checkpointer import Checkpoints, save_on_exception
from densevit.engine.distributed import DistributedContext, no_sync
from densevit.engine.ema import EMA
from densevit.engine.fsdp import clip
from densevit.engine.interfaces import Batches, Objective, Scores, Validation, scheduled_parts
from densevit.engine.logger import MetricLogger
from densevit.engine.loss_weighting import BALANCES
from densevit.engine.monitors import BatchNormSnapshot, LossSpikeMonitor, OutputSaturationMonitor
from densevit.engine.optim import (
    LayeredEncoder,
    build_optimizer,
    encoder_rate,
    learning_rate,
    no_decay_group,
    parameter_groups,
    set_learning_rate,
)
from densevit.engine.skipped_steps import StepRecord
from densevit.engine.validation import score
from densevit.errors import ConfigError, Preempted
from densevit.model_card import ModelCard
from densevit.structures import Batch
from densevit.utils.precision import autocast, resolve
from densevit.utils.signals import interruptible
from densevit.weights.checkpoint import Manifest


class Trainer:
    """Trains one model on the sum of its tasks' losses.

    Args:
        run: the resolved config; `steps` is set.
        model: image b 3 h w -> {task: prediction}, in training also {task/name: extra}; with an `encoder` attribute.
        tasks: by the name of the prediction they learn from.
        predict: how validation calls the model, so that its numbers are those of `eval_depth.py`.
        card: goes into every checkpoint.
        data: what tells the training data from others; goes into every checkpoint.

    Attributes:
        step: steps tried; `updates`: of the weights, steps less the skipped ones.
        samples: images seen, which is the place in the stream of data.
        scores: of the last validation, at step `scored_at`.
        saved_at: the step of the newest checkpoint, 0 before the first.
    """

    def __init__(
        self,
        run: Run,
        model: nn.Module,
        tasks: Mapping[str, Objective],
        world: DistributedContext,
        *,
        predict: Callable[[nn.Module, Tensor], dict[str, Tensor]],
        card: ModelCard,
        data: str = "",
    ) -> None:
        assert run.steps is not None
        self.run, self.steps, self.tasks, self.world = run, run.steps, tasks, world
        self.predict, self.card, self.data = predict, card, data
        self.precision = resolve(run.precision, world.device)
        if run.parallel == "fsdp" and self.precision == "fp16":
            raise ConfigError(
                "parallel: fsdp does not go with precision fp16, whose loss scale would differ; take bf16."
            )
        self.model = model.to(world.device).to(memory_format=torch.channels_last)
        if run.compile:
            self.model.compile()
        self.wrapped = world.parallel(self.model, run.parallel)
        self.encoder: LayeredEncoder = model.encoder  # type: ignore[assignment]
        self.scheduled = scheduled_parts(model)
        self.balance = BALANCES[run.loss_weighting](list(tasks)).to(world.device)
        apart = run.schedule.encoder_warmup is not None
        groups = [*parameter_groups(model, self.encoder, run.optim, apart=apart), no_decay_group(self.balance)]
        self.optimizer = build_optimizer([group for group in groups if group["params"]], run.optim)
        self.rate = learning_rate(run.optim, run.schedule, self.steps)
        self.encoder_rate = encoder_rate(run.optim, run.schedule, self.steps)
        self.scaler = torch.GradScaler(world.device.type, enabled=self.precision == "fp16")
        self.ema = EMA(model, run.ema) if run.ema else None
        self.statistics = BatchNormSnapshot(model)
        self.spike = LossSpikeMonitor()
        ranges = {name: output.range for name, output in card.outputs.items() if name in tasks}
        self.saturation = {name: OutputSaturationMonitor(ends) for name, ends in ranges.items() if ends is not None}
        best, direction = next(iter(tasks.values())).best
        name = best if len(tasks) == 1 else f"{next(iter(tasks))}/{best}"
        self.checkpoints = Checkpoints(run.output / "checkpoints", (name, direction), run.keep_last)
        self.step = self.updates = self.samples = 0
        self.skipped_in_row = self.recorded = 0
        self.seconds = 0.0
        self.scores: Scores = {}
        self.scored_at = self.saved_at = 0

    def fit(self, train: Callable[[int], Batches], val: Validation | None) -> Scores:
        """Runs from wherever `resume` left it to the last step.

        Args:
            train: start (images already seen) -> endless micro-batches, `grad_accum_steps` to a step.

        Returns:
            the scores of the last validation.

        Raises:
            Preempted: a signal came; everything is saved.
            Diverged: too many steps in a row had a non-finite loss or gradient.
        """
        log = MetricLogger(self.run.output if self.world.is_main else None, self.step)
        bar = tqdm(total=self.steps, initial=self.step, desc="train", unit="step", disable=not self.world.is_main)
        begun, before = time.monotonic(), self.seconds
        with interruptible() as stop, closing(log), closing(train(self.samples)) as batches, bar:
            self._begin(val, log, stop)
            while self.step < self.steps:
                values, stopping = self.take_step(batches, stop)
                self.seconds = before + time.monotonic() - begun
                bar.update()
                if self._due(self.run.log_every):
                    self._report(log, bar, values)
                if not stopping and self._validation_due(val):
                    stopping = not self.validate(val, log, stop)
                if stopping or self._due(self.run.save_every):
                    self.save()
                if stopping and (self.step < self.steps or self._validation_due(val)):
                    raise Preempted(f"stopped and saved at step {self.step} of {self.steps}; go on with --resume.")
        return self.scores

    def _begin(self, val: Validation | None, log: MetricLogger, stop: Event) -> None:
        """A run that was stopped in a validation takes that up first."""
        _, stopping = self.world.agree(True, stop.is_set())
        if not stopping and self.step and self._validation_due(val):
            self._tell_progress(self.updates - (self.skipped_in_row == 0))  # as in the step before it
            stopping = not self.validate(val, log, stop)
            if not stopping:
                self.save()
        if stopping:
            kept = f"the checkpoint of step {self.step} stands" if self.step else "there is nothing to save"
            raise Preempted(f"stopped before the next step; {kept}.")

    def take_step(self, batches: Batches, stop: Event) -> tuple[Scores, bool]:
        """Backward, unscale, clip, agree that all is finite; then step, schedule and average, or skip and count.

        Returns:
            what the step's line of `train.csv` says, and whether any process was asked to stop.
        """
        rate = self.rate(self.updates)
        set_learning_rate(self.optimizer, rate, self.encoder_rate(self.updates))
        random = seed.random_state(self.world.device)
        self.statistics.keep()
        with save_on_exception(self, random):
            part = self.attempt(batches)
        numbers = {"loss": sum(part.losses.values()), **part.losses, "grad_norm": part.grad_norm}
        good, stopping = self.world.agree(all(map(math.isfinite, numbers.values())), stop.is_set())
        if good:
            self.scaler.step(self.optimizer)
            self.updates += 1
            if self.ema:
                self.ema.update(self.updates)
            self._warn(self.spike(numbers["loss"]), part)
        else:
            self.statistics.put_back()
            self._warn("loss or gradient is not finite; step skipped", part)
            self._record(part, random)
        self.scaler.update()
        self.step += 1
        self.samples += self.run.batch_size
        self.skipped_in_row = 0 if good else self.skipped_in_row + 1
        monitors.check_max_skipped(self.skipped_in_row, self.run.max_skipped, self.step, self.precision)
        return {**numbers, "lr": rate}, stopping

    def attempt(self, batches: Batches) -> StepRecord:
        """Losses and clipped gradients of the next step's images; weights and average stay as they are."""
        self.wrapped.train()
        if self.run.model.freeze_encoder:
            self.encoder.eval()
        self._tell_progress(self.updates)
        self.optimizer.zero_grad(set_to_none=True)
        values: dict[str, Tensor] = {}
        names: list[str] = []
        indices: list[int] = []
        for number in range(self.run.grad_accum_steps):
            batch = next(batches).to(self.world.device)
            names += batch.names
            indices += batch.indices
            with no_sync(self.wrapped, number == self.run.grad_accum_steps - 1):
                terms = self._losses(batch)
                total = torch.stack(list(terms.values())).sum() / self.run.grad_accum_steps
                torch.autograd.backward(self.scaler.scale(total))
            for name, term in terms.items():
                values[name] = values.get(name, 0) + term.detach().float() / self.run.grad_accum_steps
        self.world.mean_gradients(self.balance)
        self.scaler.unscale_(self.optimizer)
        norm = clip([p for group in self.optimizer.param_groups for p in group["params"]], self.run.optim.clip_grad)
        *losses, grad_norm = torch.stack([*values.values(), norm.float()]).tolist()
        return StepRecord(names, indices, dict(zip(values, losses, strict=True)), grad_norm)

    def _tell_progress(self, updates: int) -> None:
        for part in self.scheduled:
            part.on_train_step(updates / self.steps)

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        with autocast(self.precision, self.world.device):
            predictions = self.wrapped(batch.image.contiguous(memory_format=torch.channels_last))
        if self.world.is_main and (self.step + 1) % self.run.log_every == 0:
            for name, alarm in self.saturation.items():
                self._warn(alarm(predictions[name]))
        terms = {
            name: task.losses(predictions[name], batch, self.updates, extras_of(name, predictions))
            for name, task in self.tasks.items()
        }
        return dict(self.balance(terms))

    def _warn(self, fault: str | None, part: StepRecord | None = None) -> None:
        """A line of this process about the step under way."""
        if fault is not None:
            had = f". Rank {self.world.rank} had: {monitors.shown(part.names)}" if part else ""
            tqdm.write(f"step {self.step + 1}: {fault}{had}")

    def _record(self, part: StepRecord, random: Mapping[str, Any]) -> None:
        """Keeps the first bad steps for `densevit replay`; under fp16 only those whose loss itself is not finite."""
        finite, _ = self.world.agree(all(map(math.isfinite, part.losses.values())))
        if self.recorded < skipped_steps.MAX_RECORDS and not (finite and self.precision == "fp16"):
            self.recorded += 1
            folder = skipped_steps.record(self, part, random)
            if folder is not None and self.world.is_main:
                tqdm.write(f"to look into it: densevit replay {folder}")

    def _due(self, every: int | None) -> bool:
        return self.step == self.steps or (every is not None and self.step % every == 0)

    def _validation_due(self, val: Validation | None) -> bool:
        return val is not None and self._due(self.run.validate_every) and self.scored_at != self.step

    def _report(self, log: MetricLogger, bar: Any, values: Scores) -> None:
        values = self.world.mean({**values, "spikes": self.spike.count * self.world.size})
        values["skipped"] = self.step - self.updates
        values["seconds"] = self.seconds
        log.scalars("train", self.step, values)
        bar.set_postfix(loss=f"{values['loss']:.4f}", **{k: f"{v:.4f}" for k, v in list(self.scores.items())[:1]})

    def validate(self, val: Validation | None, log: MetricLogger, stop: Event) -> bool:
        """Scores the model; False if it was stopped on the way."""
        assert val is not None
        with save_on_exception(self):
            scores = score(self, val, log, stop)
        if scores is None:
            return False
        self.scores, self.scored_at = scores, self.step
        log.scalars("val", self.step, {**scores, "seconds": self.seconds})
        log.say(f"step {self.step}: " + "  ".join(f"{key} {value:.4f}" for key, value in scores.items()))
        return True

    def save(self) -> None:
        """A checkpoint that any number of processes can resume from, bit for bit on as many."""
        taken = train_state.state_dict(self)
        self.world.on_main(
            lambda: self.checkpoints.save(taken.weights, self.card, parser.dump(self.run), taken.state, taken.manifest)
        )
        self.saved_at = self.step

    def resume(self, path: Path, manifest: Manifest) -> None:
        """Takes up a verified checkpoint.

        Raises:
            CheckpointError: it is of another model, or lacks something.
        """
        if manifest.data != self.data and self.world.is_main:
            tqdm.write(f"warning: {path} was trained on other data ({manifest.data or 'unknown'}; now {self.data}).")
        if self.world.is_main and (changes := checkpointer.changed(path, self.run)):
            tqdm.write(f"note: {path} was trained otherwise: {'; '.join(changes)}.")
        train_state.load_state_dict(self, path, manifest)
        self.saved_at = self.step


def extras_of(name: str, predictions: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the model hands to the losses of one head beside its prediction."""
    return {key.partition("/")[2]: value for key, value in predictions.items() if key.startswith(f"{name}/")}
