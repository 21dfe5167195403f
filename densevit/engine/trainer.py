"""The training loop, on one page. It is handed an objective and the data, and knows none of their types."""

import time
from collections.abc import Callable, Iterable
from contextlib import closing, nullcontext
from itertools import islice
from threading import Event
from typing import Any

import torch
from torch import Tensor

from densevit.engine.checkpointer import BestScore, Checkpointer
from densevit.engine.distributed import clip_grad_norm, no_sync, parallelize
from densevit.engine.logger import MetricLogger, format_scores, start_trackers
from densevit.engine.monitors import (
    LossSpikeMonitor,
    OutputSaturationMonitor,
    Throughput,
    check_max_skipped,
    compile_blocks,
    explain_step_errors,
    first_names,
    profiled,
)
from densevit.engine.objective import Batches, CountsDraws, Scheduled, TrainerContext, TrainingObjective, Validation
from densevit.engine.optim import (
    build_optimizer,
    clipping_groups,
    learning_rates,
    set_evaluation_mode,
    set_learning_rate,
    step_unless,
    training_groups,
)
from densevit.engine.skipped_steps import PendingStep, SkippedStepRecorder, StepRecord, StepTensors
from densevit.engine.train_state import EMA, Scores, TrainState
from densevit.engine.validation import Predict, validate
from densevit.errors import Preempted
from densevit.structures import Batch
from densevit.utils.device import BatchUpload, DeviceNumbers, Sizes, autocast, gpu_products, resolve
from densevit.utils.output import tqdm
from densevit.utils.process import frozen_garbage, interruptible
from densevit.utils.process_group import ProcessGroup


class Trainer:
    """Trains the model of an objective.

    Args:
        objective: gives the losses, and what they are built from: config, model, tasks and card.
        predict: how validation runs the model, so that its scores are those of `densevit eval`.
        data: the fingerprint of the training data; goes into every checkpoint.
        best: the score that picks the best checkpoint, and its direction.

    Attributes:
        state: all that training changes; saved and loaded by `checkpointer`.
        on_validated: called after each validation, on every process; may lower `steps`.
    """

    on_validated: Callable[[], object] | None = None

    def __init__(
        self,
        objective: TrainingObjective,
        world: ProcessGroup,
        *,
        predict: Predict,
        best: BestScore,
        data: str = "",
    ) -> None:
        setup = objective.setup
        run, model, tasks, card = setup.run, setup.model, setup.tasks, setup.card
        assert run.steps is not None
        self.run, self.steps, self.tasks, self.world = run, run.steps, tasks, world
        self.predict, self.card = predict, card
        self.precision = resolve(run.precision, world.device)
        self.model = model.to(world.device).to(memory_format=torch.channels_last)
        if run.compile:
            compile_blocks(self.model, run.compile)
        for task in tasks.values():
            task.to(world.device)
        self.objective = objective.to(world.device)
        self.parallel_model = parallelize(self.model, world, run, self.precision)
        self.scheduled = [m for module in (model, objective) for m in module.modules() if isinstance(m, Scheduled)]
        self._set_training_mode()
        self.optimizer = build_optimizer(training_groups(model, objective, run), run.optim)
        self.clipping_groups = clipping_groups(self.model, self.optimizer)
        self.rates = learning_rates(run.optim, run.schedule, self.steps)
        self.scaler = torch.GradScaler(world.device.type, enabled=self.precision == "fp16")
        self.ema = EMA(model, run.ema) if run.ema else None
        self.state = TrainState(self.model, self.optimizer, objective, self.scaler, self.ema, world, run_seed=run.seed)
        self.checkpointer = Checkpointer(self.state, run, card, data, best)
        self.loss_spikes = LossSpikeMonitor()
        self.saturation = OutputSaturationMonitor({name: card.outputs[name].range for name in tasks})
        self.record_skipped = SkippedStepRecorder(self.state, run, card, data)
        self.upload = BatchUpload(world.device)
        self.pending: PendingStep | None = None
        self.sizes = Sizes()
        self.latest: tuple[Scores, bool] = ({}, False)
        self.checkpointer.settle = self.settle
        objective.attach(TrainerContext(self.forward, self.state, self.precision))

    def fit(self, train: Callable[[int], Batches], val: Validation | None) -> Scores:
        """Train from the step of `state` to the last; return the scores of the last validation. Raises Preempted when a
        signal came and everything is saved, Diverged after too many steps in a row with a non-finite loss or gradient.
        `train`: start (images already seen) -> endless micro-batches, `grad_accum_steps` to a step."""
        state = self.state
        folder = self.run.output if self.world.is_main else None
        log = MetricLogger(folder, state.step, self.steps, start_trackers(self.run, folder))
        began = time.monotonic() - state.seconds
        trace = profiled(self.run, self.world, state.step) if self.run.profile else nullcontext(lambda: None)
        with (
            interruptible() as stop, closing(log), frozen_garbage(), trace as traced,
            closing(Throughput(self.run, self.world.device, self.precision, train(state.samples))) as batches,
        ):  # fmt: skip
            self._begin(val, log, stop)
            while state.step < self.steps:
                with batches.step():
                    values, stopping = self.train_step(batches, stop, wait=self._settles_next())
                traced()
                state.seconds = time.monotonic() - began
                log.advance()
                if self._due(state.step, self.run.log_every):
                    self._log(log, values, batches)
                better = False
                if not stopping and self._validation_due(val):
                    stopping = not self.validate(val, log, stop)
                    better = not stopping and self.world.on_main(lambda: self.checkpointer.folder.is_best(state.scores))
                if stopping or better or self._due(state.step, self.run.save_every):
                    self.checkpointer.save()
                if stopping and (state.step < self.steps or self._validation_due(val)):
                    raise Preempted(f"stopped and saved at step {state.step} of {self.steps}; continue with --resume.")
            log.print(batches.summary())
        return state.scores

    def _begin(self, val: Validation | None, log: MetricLogger, stop: Event) -> None:
        """Repeat the validation during which an earlier run was stopped."""
        state = self.state
        _, stopping = self.world.all_reduce_flags(True, stop.is_set())
        if not stopping and state.step and self._validation_due(val):
            self._set_progress(state.updates - (state.skipped_in_row == 0))  # as in the step before it
            stopping = not self.validate(val, log, stop)
            if not stopping:
                self.checkpointer.save()
        if not stopping and self.objective.validates_start and state.step == 0:
            stopping = not self.validate(val, log, stop)
        if stopping:
            saved = f"the checkpoint of step {state.step} stands" if state.step else "there is nothing to save"
            raise Preempted(f"stopped before the next step; {saved}.")

    def train_step(self, batches: Batches, stop: Event, *, wait: bool = True) -> tuple[Scores, bool]:
        """Run forward and backward; then, if all processes have finite values, optimiser and EMA; else skip and
        count. `wait`: for the step's numbers. Without, a GPU always has work queued: the host reads numbers one step
        later, between the next step's backward pass and its optimiser.

        Returns:
            the row of `train.csv`, and whether any process was asked to stop: of this step, or without `wait` of the
            one before, empty and False before the first.
        """
        state = self.state
        with self.checkpointer.save_on_exception(undo=True), explain_step_errors(self.run, self.world):
            tensors = self.forward_backward_step(batches)
        numbers = tensors.numbers()
        failed = 1 - numbers.isfinite().all().float()
        flags = self.world.all_reduce_max(torch.stack([failed, torch.full_like(failed, stop.is_set())]))
        self.settle()
        lr, encoder_lr = (rate(state.updates) for rate in self.rates)
        set_learning_rate(self.optimizer, lr, encoder_lr)
        step_unless(self.optimizer, flags[0])
        state.restore_statistics(flags[0])
        self.scaler.update()
        state.step += 1
        read_later = DeviceNumbers(torch.cat([numbers, flags]))
        self.pending = PendingStep(state.step, state.samples, tensors, read_later, lr, state.random_before)
        state.samples += self.run.batch_size
        if wait:
            self.settle()
        return self.latest

    def settle(self) -> None:
        """Read the numbers of the last step, if they are not read yet, and do what depends on them. Raises Diverged
        after too many steps in a row with a non-finite loss or gradient."""
        pending, self.pending = self.pending, None
        if pending is None:
            return
        state = self.state
        record, finite, stopping = pending.read()
        values = {"loss": sum(record.losses.values()), **record.losses, "grad_norm": record.grad_norm}
        if finite:
            state.updates += 1
            if self.ema:
                self.ema.update(state.updates)
            self._warn(pending.step, self.loss_spikes(values["loss"]), record)
        else:
            self._warn(pending.step, "loss or gradient is not finite; step skipped", record)
            self.record_skipped(pending, record, fp16=self.precision == "fp16")
        state.skipped_in_row = 0 if finite else state.skipped_in_row + 1
        self.latest = {**values, "lr": pending.lr}, stopping
        check_max_skipped(state.skipped_in_row, self.run.max_skipped, pending.step, self.precision)

    def _set_training_mode(self) -> None:
        self.parallel_model.train()
        set_evaluation_mode(self.model, self.run.model)
        self.objective.train()

    def forward_backward_step(self, batches: Batches) -> StepTensors:
        """Compute losses and clipped gradients of the next step's images; weights and moving average stay as they
        are."""
        self.state.begin_step()
        if not self.model.training:  # after a validation
            self._set_training_mode()
        self._set_progress(self._updates())
        self.optimizer.zero_grad(set_to_none=True)
        if self.run.cuda_graphs:
            # What graphs have returned so far may be overwritten from here on.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        values: dict[str, Tensor] = {}
        names: list[str] = []
        indices: list[int] = []
        count = self.run.grad_accum_steps
        micro_batches: Iterable[Batch] = islice(batches, count)
        if self.objective.looks_ahead:
            micro_batches = list(micro_batches)
            with torch.no_grad(), gpu_products(tf32=self.precision != "fp32", benchmark=False):
                self.objective.look_ahead(map(self.upload, micro_batches), self._updates())
            self.state.undo_step()
        for number, batch in enumerate(map(self.upload, micro_batches), 1):
            names += batch.names
            indices += batch.indices
            # Under mixed precision, what autocast leaves in fp32 needs no more than TF32.
            products = gpu_products(tf32=self.precision != "fp32", benchmark=self.sizes.repeat(batch.image))
            with products, no_sync(self.parallel_model) if number < count else nullcontext():
                losses = self.objective.losses(batch, self._updates())
                total = torch.stack(list(losses.values())).sum() / count
                torch.autograd.backward(self.scaler.scale(total))
            for name, loss in losses.items():
                values[name] = values.get(name, 0) + loss.detach().float() / count
        self.world.all_reduce_gradients(self.objective)
        self.scaler.unscale_(self.optimizer)
        norms = [clip_grad_norm(group, self.run.optim.clip_grad).float() for group in self.clipping_groups]
        return StepTensors(names, indices, values, torch.stack(norms).square().sum().sqrt())

    def forward(self, image: Tensor, **inputs: Any) -> dict[str, Tensor]:
        """Run the model in training; at the steps that are logged, warn of heads that have saturated."""
        with autocast(self.precision, self.world.device):
            image = image.contiguous(memory_format=torch.channels_last)
            outputs: dict[str, Tensor] = self.parallel_model(image, **inputs)
        step = self.state.step + 1
        if self.world.is_main and torch.is_grad_enabled() and step % self.run.log_every == 0:
            for warning in self.saturation(outputs):
                self._warn(step, warning)
        return outputs

    def _updates(self) -> int:
        """Steps taken. One whose numbers are not read yet counts: they are finite but for one step in thousands."""
        return self.state.updates + (self.pending is not None)

    def _set_progress(self, updates: int) -> None:
        for module in self.scheduled:
            module.on_train_step(updates / self.steps)

    def _warn(self, step: int, warning: str | None, record: StepRecord | None = None) -> None:
        """Print a line about a step; of every process, for each has other images."""
        if warning is not None:
            images = f". Rank {self.world.rank} had: {first_names(record.names)}" if record else ""
            tqdm.write(f"step {step}: {warning}{images}")

    def _settles_next(self) -> bool:
        """Return whether the numbers of the next step are needed before the one after it."""
        every = (self.run.log_every, self.run.validate_every, self.run.save_every)
        return self.world.device.type != "cuda" or self._due(self.state.step + 1, *every)

    def _due(self, step: int, *every: int | None) -> bool:
        """Return whether a step completes an interval or the run."""
        return step == self.steps or any(n is not None and step % n == 0 for n in every)

    def _validation_due(self, val: Validation | None) -> bool:
        step = self.state.step
        return val is not None and self._due(step, self.run.validate_every) and self.state.scored_at != step

    def _log(self, log: MetricLogger, values: Scores, speed: Throughput) -> None:
        state, mean = self.state, self.world.all_reduce_mean
        values = mean({**values, **speed.row(), "spikes": self.loss_spikes.count * self.world.size})
        values |= {"skipped": state.step - state.updates, "seconds": state.seconds}
        drawn = speed.batches.drawn(state.samples) if isinstance(speed.batches, CountsDraws) else {}
        counts = {f"{source}/samples": n for source, n in drawn.items()}
        log.train(state.step, {**values, **counts, **self.objective.log_values(mean)}, state.scores)

    def validate(self, val: Validation | None, log: MetricLogger, stop: Event) -> bool:
        """Score the model; False if it was stopped on the way."""
        assert val is not None
        state = self.state
        # Graphs would be recorded for each size of image, and written over where no step begins.
        eager = torch.compiler.set_stance("force_eager") if self.run.cuda_graphs else nullcontext()
        with eager, self.checkpointer.save_on_exception():
            further = self.objective.before_validation()
            scores = validate(
                state, self.tasks, val, self.predict, log, stop,
                precision=self.precision, multiple=self.card.multiple,
                eval_sources={name: task.sources for name, task in self.run.tasks.items()},
            )  # fmt: skip
        if scores is None:
            return False
        scores |= further
        state.scores, state.scored_at = scores, state.step
        log.scalars("val", state.step, {**scores, "seconds": state.seconds})
        log.print(f"step {state.step}: {format_scores(scores) or 'no image of data.val has ground truth to score'}")
        if self.on_validated:
            self.on_validated()
        return True
