"""Supervised training: the losses of all tasks, weighted, with those of unlabelled images and of a frozen encoder."""

from torch import Tensor

from densevit.engine.objective import AllReduceMean, Runtime, TrainingObjective, TrainingSetup
from densevit.objectives.base import OBJECTIVES
from densevit.objectives.consistency import ConsistencyTeacher
from densevit.objectives.feature_alignment import FeatureAlignment
from densevit.objectives.loss_weighting import LOSS_WEIGHTINGS
from densevit.objectives.source_losses import SourceLosses
from densevit.structures import Batch
from densevit.tasks.base import extras_of


@OBJECTIVES.register("supervised")
class Supervised(TrainingObjective):
    """The sum of the losses of all tasks, learned from ground truth; the default."""

    def __init__(self, setup: TrainingSetup) -> None:
        """
        Raises:
            ConfigError: the frozen encoder of `align_features` has other features than the model's.
        """
        super().__init__(setup)
        run, tasks = setup.run, setup.tasks
        self.loss_weighting = LOSS_WEIGHTINGS[run.loss_weighting](list(tasks))
        self.source_losses = SourceLosses(tasks) if any(task.sources for task in tasks.values()) else None
        unlabelled = frozenset(source for task in tasks.values() for source in task.confidence)
        self.teacher = ConsistencyTeacher(unlabelled, setup.card) if unlabelled and run.ema else None
        options = run.align_features
        self.alignment: FeatureAlignment | None = None
        if options is not None:
            frozen = setup.build_encoder(options.encoder, "align_features.encoder")
            self.alignment = FeatureAlignment(setup.model.get_submodule("encoder"), frozen, options)

    def attach(self, runtime: Runtime) -> None:
        super().attach(runtime)
        if self.alignment is not None:
            self.alignment.frozen.to(runtime.state.world.device)

    def on_train_step(self, progress: float) -> None:
        if self.source_losses is not None:
            self.source_losses.clear()

    def losses(self, batch: Batch, step: int) -> dict[str, Tensor]:
        pseudo_labels = {} if self.teacher is None else self.teacher(batch, self.runtime)
        predictions = self.predict(batch)
        losses = {}
        for name, task in self.setup.tasks.items():
            y, labelled = predictions[name], batch
            if self.teacher is not None and pseudo_labels:
                labelled = task.with_pseudo_labels(batch, self.teacher.rows(batch), pseudo_labels[name])
            by_source = task.losses_by_source(y, labelled, step, extras_of(name, predictions))
            if self.source_losses is not None:
                self.source_losses.add(name, by_source, batch)
            losses[name] = task.joined_losses(by_source, y, batch)
        weighted: dict[str, Tensor] = self.loss_weighting(losses)
        if self.alignment is not None:
            weighted["align_features"] = self.alignment.loss(batch, self.runtime.precision)
        return weighted

    def log_values(self, all_reduce_mean: AllReduceMean) -> dict[str, float | None]:
        return {} if self.source_losses is None else self.source_losses.means(all_reduce_mean)
