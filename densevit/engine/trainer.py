"""The training loop, on one page. It is handed the model, the tasks and the data; it knows none of their kinds."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from threading import Event
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from tqdm import tqdm

import densevit
from densevit import config
from densevit.config import Run
from densevit.engine import seed
from densevit.engine.checkpointing import Checkpoints
from densevit.engine.distributed import World
from densevit.engine.ema import EMA
from densevit.engine.log import Log
from densevit.engine.optim import LayeredEncoder, build_optimizer, learning_rate, parameter_groups, set_learning_rate
from densevit.errors import CheckpointError, Diverged, Preempted
from densevit.ops.precision import autocast, resolve
from densevit.signals import interruptible
from densevit.structures import Batch, ModelCard
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest

Scores = dict[str, float]


@runtime_checkable
class Objective(Protocol):
    """What the loop asks of a task."""

    best: tuple[str, Literal["min", "max"]]

    def losses(self, prediction: Tensor, batch: Batch, step: int) -> dict[str, Tensor]: ...
    def rows(self, prediction: Tensor, batch: Batch) -> list[Scores]: ...
    def summary(self, rows: Sequence[Scores]) -> Scores: ...
    def panel(self, prediction: Tensor, batch: Batch) -> Any: ...


@runtime_checkable
class Batches(Protocol):
    """An endless iterator that may hold processes until it is closed; any generator is one."""

    def __next__(self) -> Batch: ...
    def __iter__(self) -> Iterator[Batch]: ...
    def close(self) -> None: ...


@runtime_checkable
class Validation(Protocol):
    """The validation images of this process, each once, and their number over all processes."""

    def __iter__(self) -> Iterator[Batch]: ...
    def __len__(self) -> int: ...


class Trainer:
    """Trains one model on the sum of its tasks' losses.

    Args:
        run: the resolved config; `steps` is set.
        model: image b 3 h w -> {task: prediction}, with an `encoder` attribute.
        tasks: by the name of the prediction they learn from.
        predict: how validation calls the model, so that its numbers are those of `eval_depth.py`.
        card: goes into every checkpoint.
    """

    def __init__(
        self,
        run: Run,
        model: nn.Module,
        tasks: Mapping[str, Objective],
        world: World,
        *,
        predict: Callable[[nn.Module, Tensor], dict[str, Tensor]],
        card: ModelCard,
    ) -> None:
        assert run.steps is not None
        self.run, self.steps, self.tasks, self.world, self.predict, self.card = (
            run,
            run.steps,
            tasks,
            world,
            predict,
            card,
        )
        self.precision = resolve(run.precision, world.device)
        self.model = model.to(world.device).to(memory_format=torch.channels_last)
        if run.compile:
            self.model.compile()
        self.wrapped = world.parallel(self.model)
        self.encoder: LayeredEncoder = model.encoder  # type: ignore[assignment]
        self.optimizer = build_optimizer(parameter_groups(model, self.encoder, run.optim), run.optim)
        self.rate = learning_rate(run.optim, run.schedule, self.steps)
        self.scaler = torch.GradScaler(world.device.type, enabled=self.precision == "fp16")
        self.ema = EMA(model, run.ema) if run.ema else None
        score, direction = next(iter(tasks.values())).best
        name = score if len(tasks) == 1 else f"{next(iter(tasks))}/{score}"
        self.checkpoints = Checkpoints(run.output / "checkpoints", (name, direction), run.keep_last)
        self.skip_limit = run.max_skipped or (12 if self.precision == "fp16" else 3)
        self.step = 0  # tried
        self.updates = 0  # of the weights: steps less the skipped ones
        self.skipped_in_row = 0
        self.seconds = 0.0
        self.scores: Scores = {}
        self.scored_at = -1  # the step of `scores`

    def fit(self, train: Callable[[int], Batches], val: Validation | None) -> Scores:
        """Runs from wherever `resume` left it to the last step.

        Args:
            train: start (images already seen) -> endless micro-batches, `accumulate` to a step.

        Returns:
            the scores of the last validation.

        Raises:
            Preempted: a signal came; everything is saved.
            Diverged: too many steps in a row had a non-finite loss or gradient.
        """
        log = Log(self.run.output if self.world.is_main else None, self.step)
        bar = tqdm(total=self.steps, initial=self.step, desc="train", unit="step", disable=not self.world.is_main)
        batches = train(self.step * self.run.batch_size)
        begun, before = time.monotonic(), self.seconds
        with interruptible() as stop, closing(batches), bar:
            while self.step < self.steps:
                values, stopping = self._step(batches, stop)
                self.seconds = before + time.monotonic() - begun
                bar.update()
                if self._due(self.run.log_every):
                    self._report(log, bar, values)
                if val is not None and self._due(self.run.validate_every):
                    self.scores = self.validate(val, log)
                if stopping or self._due(self.run.save_every):
                    self.save()
                if stopping and self.step < self.steps:
                    raise Preempted(f"stopped and saved at step {self.step} of {self.steps}; go on with --resume.")
        log.close()
        return self.scores

    def _step(self, batches: Batches, stop: Event) -> tuple[Scores, bool]:
        """Backward, unscale, clip, agree that all is finite; then step, schedule and average, or skip and count."""
        rate = self.rate(self.updates)
        set_learning_rate(self.optimizer, rate)
        self.wrapped.train()
        if self.run.model.freeze_encoder:
            self.encoder.eval()
        self.optimizer.zero_grad(set_to_none=True)
        values: dict[str, Tensor] = {}
        names: tuple[str, ...] = ()
        for part in range(self.run.accumulate):
            batch = next(batches).to(self.world.device)
            names += batch.names
            last = part == self.run.accumulate - 1
            with nullcontext() if last or self.world.size == 1 else self.wrapped.no_sync():  # type: ignore[operator]
                terms = self._losses(batch)
                total = torch.stack(list(terms.values())).sum() / self.run.accumulate
                torch.autograd.backward(self.scaler.scale(total))
            for name, term in terms.items():
                values[name] = values.get(name, 0) + term.detach().float() / self.run.accumulate
        self.scaler.unscale_(self.optimizer)
        trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        norm = nn.utils.clip_grad_norm_(trained, self.run.optim.clip_grad or math.inf)
        numbers = torch.stack([*values.values(), norm.float()]).tolist()
        good, stopping = self.world.agree(all(map(math.isfinite, numbers)), stop.is_set())
        self.step += 1
        if good:
            self.scaler.step(self.optimizer)
            self.updates += 1
            if self.ema:
                self.ema.update(self.updates)
        self.scaler.update()
        self._count_skips(good, names)
        return {
            "loss": sum(numbers[:-1]),
            **dict(zip(values, numbers, strict=False)),
            "grad_norm": numbers[-1],
            "lr": rate,
        }, stopping

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        with autocast(self.precision, self.world.device):
            predictions = self.wrapped(batch.image.contiguous(memory_format=torch.channels_last))
        terms = {name: task.losses(predictions[name], batch, self.updates) for name, task in self.tasks.items()}
        if len(terms) == 1:
            return next(iter(terms.values()))
        return {f"{name}/{key}": value for name, values in terms.items() for key, value in values.items()}

    def _count_skips(self, good: bool, names: tuple[str, ...]) -> None:
        self.skipped_in_row = 0 if good else self.skipped_in_row + 1
        if good:
            return
        shown = ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
        tqdm.write(
            f"step {self.step}: loss or gradient is not finite; step skipped. Rank {self.world.rank} had: {shown}"
        )
        if self.skipped_in_row > self.skip_limit:
            hint = (
                "try precision=bf16" if self.precision == "fp16" else "try a lower optim.lr or a longer schedule.warmup"
            )
            raise Diverged(
                f"{self.skipped_in_row} steps in a row were not finite, the last at step {self.step}; {hint}, "
                "and look at the images named above. The last good checkpoint is kept."
            )

    def _due(self, every: int | None) -> bool:
        return self.step == self.steps or (every is not None and self.step % every == 0)

    def _report(self, log: Log, bar: Any, values: Scores) -> None:
        values = self.world.mean(values)
        values["skipped"] = self.step - self.updates
        values["seconds"] = self.seconds
        log.scalars("train", self.step, values)
        bar.set_postfix(loss=f"{values['loss']:.4f}", **{k: f"{v:.4f}" for k, v in list(self.scores.items())[:1]})

    def validate(self, val: Validation, log: Log) -> Scores:
        """Scores every validation image once, whatever the number of processes, in the order of the data set."""
        found: dict[str, dict[int, Scores]] = {name: {} for name in self.tasks}
        self.model.eval()
        bar = tqdm(total=len(val), desc="validate", unit="image", leave=False, disable=not self.world.is_main, delay=1)
        with self.ema.applied() if self.ema else nullcontext(), torch.inference_mode(), bar:
            for number, batch in enumerate(val):
                batch = batch.to(self.world.device)
                with autocast(self.precision, self.world.device):
                    predictions = self.predict(self.model, batch.image)
                for name, task in self.tasks.items():
                    prediction = predictions[name].float()
                    found[name] |= dict(zip(batch.indices, task.rows(prediction, batch), strict=True))
                    if number == 0:
                        log.picture(f"panel/{name}", self.step, task.panel(prediction, batch))
                bar.update(len(batch))
        scores: Scores = {}
        for name, task in self.tasks.items():
            rows: dict[int, Scores] = {}
            for part in self.world.gather(found[name]):
                rows |= part
            summary = task.summary([rows[i] for i in sorted(rows)])
            scores |= summary if len(self.tasks) == 1 else {f"{name}/{key}": value for key, value in summary.items()}
        self.scored_at = self.step
        log.scalars("val", self.step, {**scores, "seconds": self.seconds})
        log.say(f"step {self.step}: " + "  ".join(f"{key} {value:.4f}" for key, value in scores.items()))
        return scores

    def save(self) -> None:
        """A checkpoint that any number of processes can resume from, bit for bit on as many."""
        random_states = self.world.gather(seed.random_state(self.world.device))
        self.world.run_on_main(lambda: self._write(random_states))

    def _write(self, random_states: list[dict[str, Any]]) -> None:
        weights = self.model.state_dict()
        state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "random": random_states,
            "updates": self.updates,
            "skipped_in_row": self.skipped_in_row,
            "seconds": self.seconds,
            "scores": self.scores,
        }
        if self.ema:
            state["raw_weights"], weights = weights, self.ema.state_dict()
        manifest = Manifest(
            step=self.step,
            samples=self.step * self.run.batch_size,
            scores=self.scores if self.scored_at == self.step else {},
            world_size=self.world.size,
            versions={"densevit": densevit.__version__, "torch": torch.__version__},
        )
        self.checkpoints.save(weights, self.card, config.dump(self.run), state, manifest)

    def resume(self, path: Path, manifest: Manifest) -> None:
        """Takes up a verified checkpoint.

        Raises:
            CheckpointError: it is of another model, or lacks something.
        """
        weights, _ = checkpoint.read(path)
        state = checkpoint.read_state(path)
        try:
            raw = state["raw_weights"] if self.ema else weights
            checkpoint.load_into(self.model, raw, path)
            if self.ema:
                self.ema.load_state_dict(weights)
            self.optimizer.load_state_dict(state["optimizer"])
            self.scaler.load_state_dict(state["scaler"])
            self.updates, self.skipped_in_row = state["updates"], state["skipped_in_row"]
            self.seconds, self.scores = state["seconds"], state["scores"]
            randoms = state["random"]
        except KeyError as error:
            raise CheckpointError(
                f"{path / checkpoint.STATE}: holds no {error}; was it written with another config?"
            ) from None
        except ValueError as error:
            raise CheckpointError(f"{path / checkpoint.STATE}: does not fit this run ({error}).") from None
        self.step = manifest.step
        if len(randoms) == self.world.size:
            seed.set_random_state(randoms[self.world.rank], self.world.device)
        else:
            seed.reseed(self.run.seed, self.world.rank, self.step)
