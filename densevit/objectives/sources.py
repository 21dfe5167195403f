"""Sources of a mixture: what the images of each teach; and the moving average of the weights as a teacher of those
without ground truth (mean teacher, Tarvainen & Valpola 2017; for dense prediction UniMatch V2, arXiv:2410.10777).

b images, h x w pixels.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from densevit.config.schema import TrainConfig
from densevit.config.validation import TaskSpec
from densevit.data.datasets.base import MixtureSource
from densevit.data.sanity_checks import found_truths, has_cameras
from densevit.engine.objective import AllReduceMean, TrainerContext, model_inputs
from densevit.errors import ConfigError
from densevit.structures import Batch
from densevit.tasks.base import Extras, Task, task_class
from densevit.utils.device import autocast


def misplaced(sources: Sequence[MixtureSource], run: TrainConfig) -> Iterator[str]:
    """Yield what keeps sources with `consistency` from being learned from."""
    for i, source in enumerate(sources):
        if source.strong is None:
            continue
        key_path = f"data.train.sources.{i}.consistency"
        if source.truths != ("none",):
            yield f"{key_path}: for images without ground truth; set `truth: none` beside it."
        if run.ema is None:
            yield f"{key_path}: its teacher is the moving average of the weights; set `ema`, to 0.996 say."
        if run.parallel == "fsdp" or run.compile:
            yield f"{key_path}: its teacher cannot be combined with {'compile' if run.compile else 'parallel: fsdp'}."


@runtime_checkable
class SupportsPseudoLabels(Protocol):
    """A task of pixels, which can learn from a teacher's predictions, and leave out pixels of the largest error."""

    def with_pseudo_labels(
        self, batch: Batch, rows: Sequence[int], prediction: Tensor, confidences: Sequence[float]
    ) -> Batch:
        """Return the batch with a teacher's prediction for the images of `rows` as their ground truth. `confidences`:
        for each of these images, how sure the teacher must be of a class."""

    def confident_fraction(self, batch: Batch) -> Float[Tensor, "b"] | None:
        """Return the share of each image's pixels of which a teacher was sure; None where that does not count."""

    def trim_outliers(self, prediction: Tensor, batch: Batch, ratio: float) -> Batch:
        """Return the batch without the ground truth of that share of each image's pixels, of the largest error."""


class ConsistencyTeacher:
    """Predicts from the weak views of a batch, in evaluation mode and without gradients.

    Args:
        sources: the data sets of the mixture whose images it teaches.
    """

    def __init__(self, sources: frozenset[str]) -> None:
        self.sources = sources

    def rows(self, batch: Batch) -> list[int]:
        """Return the images of a batch that it teaches."""
        return [row for row, source in enumerate(batch.sources) if source in self.sources]

    @torch.no_grad()
    def __call__(self, batch: Batch, context: TrainerContext) -> dict[str, Tensor]:
        """Return the predictions for `rows(batch)` by head, of CutMix those of both images put together as the images
        are; empty where there are no such images."""
        selected = batch.take(rows) if (rows := self.rows(batch)) else None
        if selected is None or selected.weak is None:
            return {}
        with evaluating(context.state.model), autocast(context.precision, batch.image.device):
            predictions = self._predict(selected.weak, replace(selected, pasted=None), context)
            mixed = [] if selected.pasted is None else selected.pasted.flatten(1).any(1).nonzero().flatten().tolist()
            if mixed and selected.pasted is not None and selected.weak_pasted is not None:
                inside = selected.pasted[mixed][:, None]
                other = selected.take(mixed)
                other = replace(other, intrinsics=other.pasted_intrinsics, pasted=None)
                for head, y in self._predict(selected.weak_pasted[mixed], other, context).items():
                    predictions[head][mixed] = torch.where(inside, y, predictions[head][mixed])
        return predictions

    def _predict(self, image: Tensor, batch: Batch, context: TrainerContext) -> dict[str, Tensor]:
        model, ema = context.state.model, context.state.ema
        assert ema is not None
        image = image.contiguous(memory_format=torch.channels_last)
        inputs = model_inputs(model, replace(batch, features=None))  # cached ones are those of the strong view
        predictions = functional_call(model, ema.average, (image,), inputs)
        return {head: y.float() for head, y in predictions.items() if "/" not in head}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode inside the block; afterwards every part is in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@dataclass(frozen=True)
class SourcePolicy:
    """How a task learns from a source of a mixture."""

    name: str
    share: float  # of the draws
    trim: float = 0.0  # share of each image's pixels, those with the largest error, that is not learned from
    # for images without ground truth, how sure a teacher must be of it; None: with ground truth
    confidence: float | None = None


def source_policies(
    run: TrainConfig, tasks: Mapping[str, TaskSpec], sources: Sequence[MixtureSource], *, needs_truth: bool = True
) -> dict[str, list[SourcePolicy]]:
    """Return the sources of a mixture that teach each task, by the ground truth that its losses learn from. Raises
    ConfigError: every mistake at once: where `needs_truth`, a source whose ground truth fits no task, or a task that no
    source teaches."""
    problems = list(misplaced(sources, run))
    classes = {name: task_class(task.task) for name, task in tasks.items()}
    required = {
        name: task.ground_truth_kinds([loss.build() for _, loss in tasks[name].losses])
        for name, task in classes.items()
    }
    truths = {source.name: found_truths(source) for source in sources}
    policies: dict[str, list[SourcePolicy]] = {}
    for name, kinds in required.items():
        pseudo_labels, selected = issubclass(classes[name], SupportsPseudoLabels), tasks[name].sources
        policies[name] = [
            SourcePolicy(s.name, s.share, s.drop_worst, None if s.strong is None else s.confidence)
            for s in sources
            if (kinds & truths[s.name] or (s.strong is not None and pseudo_labels))
            and (not selected or s.name in selected)
        ]
        if needs_truth and not policies[name]:
            listed = ", ".join(sorted(kinds))
            problems.append(f"tasks.{name}: no source of data.train has ground truth that it learns from ({listed}).")
    learned = {policy.name for of_task in policies.values() for policy in of_task}
    for i, source in enumerate(sources):
        if needs_truth and source.name not in learned:
            listed = "; ".join(f"{name} from {', '.join(sorted(kinds))}" for name, kinds in required.items())
            problems.append(
                f"data.train.sources.{i}: the ground truth of '{source.name}' fits no task: it has "
                f"{', '.join(sorted(truths[source.name])) or 'none'}; {listed}. Set its `truth`, leave it out, or set "
                "`consistency` to learn from images without."
            )
    if problems:
        raise ConfigError(*problems)
    return policies


def leave_out_unknown_cameras(
    policies: Mapping[str, list[SourcePolicy]], tasks: Mapping[str, Task], sources: Sequence[MixtureSource]
) -> dict[str, list[SourcePolicy]]:
    """Return the policies without sources whose cameras are not known, for heads of one focal length: they cannot teach
    these, and do not count."""
    if all(task.output.focal is None for task in tasks.values()):
        return dict(policies)
    known = {source.name for source in sources if has_cameras(source.data)}
    return {
        name: [policy for policy in of_task if tasks[name].output.focal is None or policy.name in known]
        for name, of_task in policies.items()
    }


class SourceRouter:
    """Computes the losses of a task for each source by itself, and keeps them for the logs of one step.

    A source's losses are means over its images. They are weighted by the source's share of the images that teach the
    task, so that no count has to cross processes.

    Args:
        policies: by task; with several tasks, columns are `source/task/loss`, with one `source/loss`.
    """

    def __init__(self, policies: Mapping[str, Sequence[SourcePolicy]], tasks: Mapping[str, Task]) -> None:
        self.policies = {name: {policy.name: policy for policy in of_task} for name, of_task in policies.items()}
        self.shares = {name: sum(policy.share for policy in of_task) or 1.0 for name, of_task in policies.items()}
        self.columns = [
            self._column(source, name, loss)
            for name, of_task in self.policies.items()
            for source in of_task
            for loss in dict.fromkeys(key for key, _ in tasks[name].weights)
        ]
        self.clear()

    @property
    def unlabelled(self) -> frozenset[str]:
        """The sources without ground truth, which a teacher labels."""
        every = (policy for of_task in self.policies.values() for policy in of_task.values())
        return frozenset(policy.name for policy in every if policy.confidence is not None)

    def confidence(self, name: str, source: str) -> float:
        """Return how sure a teacher must be for a task to learn from it; infinite where the task does not."""
        policy = self.policies[name].get(source)
        return torch.inf if policy is None or policy.confidence is None else policy.confidence

    def clear(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = dict.fromkeys(self.columns, 0)

    def losses(
        self, name: str, task: Task, prediction: Tensor, batch: Batch, step: int, extras: Extras
    ) -> dict[str, Tensor]:
        """Return the losses of a task for a batch, of the sources that teach it."""
        zero = prediction[:0].sum().float()  # attached to the graph
        terms = dict.fromkeys((key for key, _ in task.weights), zero)
        for fraction, losses in self._by_source(name, task, prediction, batch, step, extras):
            terms |= {key: terms.get(key, zero) + fraction * loss for key, loss in losses.items()}
        return terms

    def _by_source(
        self, name: str, task: Task, prediction: Tensor, batch: Batch, step: int, extras: Extras
    ) -> Iterator[tuple[float, dict[str, Tensor]]]:
        policies = self.policies[name]
        rows_of = {source: rows for source, rows in batch.by_source().items() if source in policies}
        for source, rows in rows_of.items():
            whole = len(rows) == len(batch)
            y = prediction if whole else prediction[rows]
            source_extras = {key: x[rows] if x.ndim > 2 and not whole else x for key, x in extras.items()}
            losses = source_losses(task, policies[source], y, batch.take(rows), step, source_extras)
            for key, loss in losses.items():
                if (column := self._column(source, name, key)) in self.counts:
                    self.sums[column] = self.sums.get(column, 0) + len(rows) * loss.detach().float()
                    self.counts[column] += len(rows)
            yield len(rows) / (len(batch) * self.shares[name]), losses
        if not rows_of:  # every loss all the same, as 0, so that all processes have the same ones
            unknown = replace(batch, depth=None, valid=None, labels=None, label=None, normals=None, segments=None)
            yield 0.0, task.losses(prediction, unknown, step, extras)

    def means(self, all_reduce_mean: AllReduceMean) -> dict[str, float | None]:
        """Return the mean of each column; None where no process had an image of it. All processes call it together."""
        sums = torch.stack(list(self.sums.values())).tolist() if self.sums else []
        local_sums = dict(zip(self.sums, sums, strict=True))
        total = all_reduce_mean({column: local_sums.get(column, 0.0) for column in self.columns})
        count = all_reduce_mean({column: float(n) for column, n in self.counts.items()})
        return {column: total[column] / count[column] if count[column] else None for column in self.columns}

    def _column(self, source: str, name: str, loss: str) -> str:
        return f"{source}/{name}/{loss}" if len(self.policies) > 1 else f"{source}/{loss}"


def source_losses(
    task: Task, policy: SourcePolicy, prediction: Tensor, batch: Batch, step: int, extras: Extras
) -> dict[str, Tensor]:
    """Return the losses of the images of one source.

    With a teacher's classes they are the mean over images of each one's losses times the share of its pixels that are
    labelled, so that few sure pixels count little (UniMatch divides by all pixels, too).
    """
    fraction: Tensor | None = None
    if isinstance(task, SupportsPseudoLabels):
        fraction = None if policy.confidence is None else task.confident_fraction(batch)
        batch = task.trim_outliers(prediction, batch, policy.trim) if policy.trim else batch
    if fraction is None:
        return task.losses(prediction, batch, step, extras)
    terms: dict[str, Tensor] = {}
    for i, share in enumerate(fraction / len(batch)):
        image_extras = {key: x[i : i + 1] if x.ndim > 2 else x for key, x in extras.items()}
        losses = task.losses(prediction[i : i + 1], batch.take([i]), step, image_extras)
        terms = {key: terms.get(key, 0) + share * loss for key, loss in losses.items()}
    return terms
