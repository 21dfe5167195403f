"""Pre-training of an encoder from images alone. b images, h x w pixels.

A method gives the losses; decoder and heads are a probe, trained anew on the frozen encoder before each validation.
Without heads there is no probe, and no image needs a label.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from densevit.config.schema import TrainConfig
from densevit.engine.objective import TrainingObjective, TrainingSetup
from densevit.engine.train_state import Scores
from densevit.errors import ConfigError
from densevit.models.dense import DenseModel
from densevit.models.encoders.base import Encoder
from densevit.objectives.pretraining.probe import Probe, read_labelled
from densevit.structures import Batch


class PretrainingMethod(nn.Module, ABC):
    """What an encoder learns from images alone; has the encoder by position, and its options by keyword.

    Attributes:
        progress: share of the run's steps that is done.
        uses_all_parameters: whether all that is trained has a gradient in every step.
    """

    progress: float = 0.0
    uses_all_parameters: bool = True

    @abstractmethod
    def forward(self, encoder: Encoder, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        """Return losses by name, weighted; `image` is in [0, 1], augmented by `data.transforms`."""

    def on_train_step(self, progress: float) -> None:
        self.progress = progress

    check_data, fewest_images = TrainingObjective.check_data, TrainingObjective.fewest_images

    @classmethod
    def incompatible(cls, run: TrainConfig) -> Iterator[str]:
        """Yield what in a run is incompatible with pre-training."""
        if run.data.val is None and run.model.heads:
            yield "data.val: missing; the probe is scored on its labelled images. Without any, set model.heads: {}."
        if not run.model.heads and (run.data.val or run.data.probe):
            yield "data.val: without model.heads there is no probe to score on it; leave out data.val and data.probe."
        if run.model.freeze_encoder:
            yield "model.freeze_encoder: leaves a pre-training nothing to learn."
        if run.model.trainable and "encoder" not in {name.partition(".")[0] for name in run.model.trainable}:
            yield "model.trainable: leaves a pre-training nothing to learn; name encoder, or parts of it."
        if run.parallel == "fsdp":
            yield "parallel: pre-training needs ddp, which holds the whole model."
        if run.data.clip > 1:
            yield "data.clip: a pre-training learns from single images."
        if run.data.cache_features is not None:
            yield "data.cache_features: a pre-training changes the encoder, which no cache follows; leave it out."
        if names := [name for name, options in run.model.conditioning.items() if options is not None]:
            yield f"model.conditioning: a pre-training learns from images alone; leave out {', '.join(names)}."

    @classmethod
    def build(cls, setup: TrainingSetup, **options: Any) -> "Pretraining":
        """Return the objective that trains an encoder by this method. Raises ConfigError: it does not fit the encoder.
        Raises DataError: the images of the probe are unreadable, or have no ground truth."""
        encoder = setup.model.get_submodule("encoder")
        if getattr(encoder, "num_detached", 0):
            raise ConfigError("model.decoder: runs blocks of the encoder, as no probe does; take linear, say.")
        return Pretraining(setup, cls(encoder, **options))


class PretrainModel(DenseModel):
    """A dense model whose encoder learns from a method; decoder and heads are the probe's, and not trained here.

    In training the forward pass gives losses, otherwise predictions.

    Attributes:
        training_only: prefixes of the weights that only training needs.
    """

    training_only = ("objective.",)

    def __init__(self, model: nn.Module, method: PretrainingMethod) -> None:
        nn.Module.__init__(self)
        self.__dict__ |= {name: value for name, value in vars(model).items() if not name.startswith("_")}
        self._modules |= model._modules
        for module in self.probe():
            module.requires_grad_(False)
        self.objective = method
        self.uses_all_parameters = method.uses_all_parameters

    def probe(self) -> list[nn.Module]:
        """Return everything between encoder and prediction."""
        return [child for name, child in self.named_children() if name not in ("encoder", "objective")]

    def forward(self, image: Float[Tensor, "b 3 h w"], *args: Any, **inputs: Any) -> dict[str, Tensor]:
        if self.training:
            return dict(self.objective(self.encoder, image))
        return super().forward(image, *args, **inputs)


class Pretraining(TrainingObjective):
    """Minimises the losses of a method; the tasks are the probe's."""

    trains = "encoder"

    def __init__(self, setup: TrainingSetup, method: PretrainingMethod) -> None:
        model = PretrainModel(setup.model, method)
        super().__init__(replace(setup, model=model))
        self.validates_start = bool(setup.tasks)
        self.probe: Probe | None = None
        if self.validates_start:
            data = setup.data.get("probe", setup.data["train"])
            batches = read_labelled(data, setup.run.probe.images, setup.run.data.on_corrupt)
            sources = {name: spec.sources for name, spec in setup.task_specs.items()}
            self.probe = Probe(model.probe(), setup.tasks, batches, setup.card, setup.run.probe, sources)

    def losses(self, batch: Batch, step: int) -> dict[str, Tensor]:
        return self.context.forward(batch.image)

    def before_validation(self) -> Scores:
        return self.probe.fit(self.context.state, self.context.precision) if self.probe else {}


def average_into(target: nn.Module, source: nn.Module, momentum: float) -> None:
    """Set target <- momentum * target + (1 - momentum) * source; buffers are copied."""
    sources: Mapping[str, Tensor] = dict(source.named_parameters())
    for name, parameter in target.named_parameters():
        parameter.data.lerp_(sources[name].detach().to(parameter.dtype), 1 - momentum)
    buffers = dict(source.named_buffers())
    for name, buffer in target.named_buffers():
        buffer.copy_(buffers[name])
