"""Supervised training: the losses of all tasks, weighted, with those of unlabelled images and of a frozen encoder."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from densevit.config.schema import TrainConfig
from densevit.config.validation import TaskSpec
from densevit.data.datasets.base import check_source_names
from densevit.engine.objective import OBJECTIVES, AllReduceMean, TrainerContext, TrainingObjective, TrainingSetup
from densevit.losses.reduction import StepTotals
from densevit.model_card import HeadSpec
from densevit.objectives.feature_alignment import AlignFeatures, FeatureAlignment
from densevit.objectives.sources import (
    ConsistencyTeacher,
    SourceRouter,
    SupportsPseudoLabels,
    leave_out_unknown_cameras,
    source_policies,
)
from densevit.structures import Batch
from densevit.tasks.base import extras_of

Terms = Mapping[str, Tensor]


class LossWeighting(nn.Module):
    """Fixed weights: the losses come with them already."""

    def attach(self, splits: int, all_reduce: Callable[[Tensor], Tensor]) -> None:
        """Take the number of parts of a step, micro-batches times processes, and what sums over the processes."""
        self.splits, self.all_reduce = splits, all_reduce

    def forward(self, terms: Mapping[str, Terms]) -> dict[str, Tensor]:
        """Turn {task: {name: loss}} into {name: loss}, with several tasks into {task/name: loss}."""
        if len(terms) == 1:
            return dict(next(iter(terms.values())))
        return {f"{task}/{name}": loss for task, losses in terms.items() for name, loss in losses.items()}


class UncertaintyWeighting(LossWeighting):
    """exp(-s) * loss + s / 2 for each task, s = ln(sigma^2) learned with the weights (Kendall et al. 2018, eq. 10).

    The paper halves the losses of regression, which moves their s by ln 2 and nothing else. At the minimum
    exp(-s) * loss is 1/2 for every task, so that none outweighs the others.

    A task whose losses are exactly 0 has no ground truth. Where it has none in a step, its s gets no gradient; else
    s / 2 is added once: in the first micro-batch that has some, shared by the processes that do.
    """

    def __init__(self, tasks: Sequence[str]) -> None:
        super().__init__()
        self.log_variances = nn.Parameter(torch.zeros(len(tasks)))
        self.on_train_step(0)

    def on_train_step(self, progress: float) -> None:
        self.added = torch.zeros_like(self.log_variances, dtype=torch.bool)

    def forward(self, terms: Mapping[str, Terms]) -> dict[str, Tensor]:
        present = torch.stack([torch.stack(list(losses.values())).detach().sum() != 0 for losses in terms.values()])
        count = self.all_reduce(torch.where(present, 1.0, 0.0))
        shares = self.splits * present / count.clamp_min(1) * ~self.added
        self.added |= count > 0
        weighted = {
            task: {name: torch.exp(-s) * loss for name, loss in losses.items()} | {"uncertainty": share * s / 2}
            for (task, losses), s, share in zip(terms.items(), self.log_variances, shares, strict=True)
        }
        return super().forward(weighted)


LOSS_WEIGHTINGS = {"fixed": lambda tasks: LossWeighting(), "uncertainty": UncertaintyWeighting}


@OBJECTIVES.register("supervised")
class Supervised(TrainingObjective):
    """The sum of the losses of all tasks, learned from ground truth; the default.

    Attributes:
        needs_truth: whether each source of a mixture must have ground truth, or a teacher.
        taught: the tasks that learn from ground truth.
    """

    needs_truth: ClassVar[bool] = True

    def __init__(
        self,
        setup: TrainingSetup,
        *,
        loss_weighting: Literal["fixed", "uncertainty"] = "fixed",
        align_features: AlignFeatures | None = None,
    ) -> None:
        """Raise ConfigError: the frozen encoder of `align_features` has other features than the model's.

        Args:
            loss_weighting: how several tasks are weighted: by their `weight`, or by weights that are learned.
            align_features: keep the encoder's features close to those of a frozen encoder.
        """
        super().__init__(setup)
        run, tasks = setup.run, setup.tasks
        self.loss_weighting = LOSS_WEIGHTINGS[loss_weighting](list(tasks))
        sources = setup.data["train"].sources if setup.data else ()
        policies = source_policies(run, setup.task_specs, sources, needs_truth=self.needs_truth) if sources else {}
        self.router = SourceRouter(leave_out_unknown_cameras(policies, tasks, sources), tasks) if policies else None
        unlabelled = self.router.unlabelled if self.router else None
        self.teacher = ConsistencyTeacher(unlabelled) if unlabelled else None
        self.taught = dict(tasks)
        criteria = [loss for task in tasks.values() for loss in getattr(task, "criteria", ())]
        # Of a mixture, the losses of a source are those of its images in a micro-batch, whatever their pool.
        self.pooled = [loss for loss in criteria if loss.pool == "batch"] if self.router is None else []
        self.looks_ahead = bool(self.pooled) and run.grad_accum_steps > 1
        self.alignment: FeatureAlignment | None = None
        if align_features is not None:
            frozen = setup.build_encoder(align_features.encoder, "objective.align_features.encoder")
            self.alignment = FeatureAlignment(setup.model.get_submodule("encoder"), frozen, align_features)

    @classmethod
    def incompatible(cls, run: TrainConfig) -> Iterator[str]:
        yield from super().incompatible(run)
        parts = {name.partition(".")[0] for name in run.model.trainable or ("encoder",)}
        frozen = run.model.freeze_encoder or "encoder" not in parts
        if run.objective.get("align_features") and (frozen or run.compile or run.parallel == "fsdp"):
            yield "objective.align_features: needs a trained encoder, and neither compile nor parallel: fsdp."
        if run.objective.get("loss_weighting") == "uncertainty" and len(run.tasks) == 1:
            yield "objective.loss_weighting: there is only one task, and nothing to balance it with."

    @classmethod
    def check_data(cls, run: TrainConfig, tasks: Mapping[str, TaskSpec], data: Mapping[str, Any]) -> None:
        sources = data["train"].sources
        if aligned := run.objective.get("align_features"):
            check_source_names("objective.align_features", aligned.get("sources", ()), sources)
        if sources:
            source_policies(run, tasks, sources, needs_truth=cls.needs_truth)

    def attach(self, context: TrainerContext) -> None:
        super().attach(context)
        world = context.state.world
        split = (self.setup.run.grad_accum_steps, world.size) if self.pooled else (1, 1)
        self.totals = StepTotals(*split, world.all_reduce_sum)
        self.loss_weighting.attach(self.setup.run.grad_accum_steps * world.size, world.all_reduce_sum)
        if self.alignment is not None:
            self.alignment.frozen.to(context.state.world.device)

    def on_train_step(self, progress: float) -> None:
        if self.router is not None:
            self.router.clear()

    def look_ahead(self, batches: Iterable[Batch], step: int) -> None:
        """Take the sums that losses over the batch need: of predictions, or where those do not matter, without them."""
        predicted = any(loss.sums_predictions for loss in self.pooled)
        with self.totals.count():
            for batch in batches:
                predictions = self.predict(batch) if predicted else {}
                with self.totals.micro_batch():
                    for name, task in self.taught.items():
                        y = predictions[name] if predicted else blank_prediction(task.output, batch)
                        task.losses(y, batch, step, extras_of(name, predictions) or {"auxiliary": y})

    def losses(self, batch: Batch, step: int) -> dict[str, Tensor]:
        pseudo_labels = {} if self.teacher is None else self.teacher(batch, self.context)
        return self.weighted_losses(self.predict(batch), batch, step, pseudo_labels)

    def weighted_losses(
        self, predictions: Mapping[str, Tensor], batch: Batch, step: int, pseudo_labels: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the losses of all tasks for the predictions of a batch."""
        with self.totals.micro_batch():
            losses = {
                name: self._task_losses(name, predictions, batch, step, pseudo_labels) for name in self.setup.tasks
            }
        weighted: dict[str, Tensor] = self.loss_weighting(losses)
        if self.alignment is not None:
            weighted["align_features"] = self.alignment.loss(batch, self.context.precision)
        return weighted

    def _task_losses(
        self, name: str, predictions: Mapping[str, Tensor], batch: Batch, step: int, pseudo_labels: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        task, y, extras = self.setup.tasks[name], predictions[name], extras_of(name, predictions)
        if self.router is None:
            return task.losses(y, batch, step, extras)
        if self.teacher is not None and pseudo_labels and isinstance(task, SupportsPseudoLabels):
            rows = self.teacher.rows(batch)
            confidences = [self.router.confidence(name, batch.sources[row]) for row in rows]
            batch = task.with_pseudo_labels(batch, rows, pseudo_labels[name], confidences)
        return self.router.losses(name, task, y, batch, step, extras)

    def log_values(self, all_reduce_mean: AllReduceMean) -> dict[str, float | None]:
        return {} if self.router is None else self.router.means(all_reduce_mean)


def blank_prediction(output: HeadSpec, batch: Batch) -> Tensor:
    """Return a prediction of the right size, all ones."""
    kind = output.output_kind
    channels = len(output.classes) if kind.has_classes else kind.channels
    size = (1, 1) if kind.image_level else batch.image.shape[-2:]
    return batch.image.new_ones(()).expand(len(batch), channels, *size)
