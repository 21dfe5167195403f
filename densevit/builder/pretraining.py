"""Builds what a pre-training has besides a training: the objective, and the probe with its labelled images."""

from collections.abc import Mapping

from torch import Tensor, nn

from densevit.builder.plan import Plan
from densevit.builder.probe import Probe
from densevit.data.datasets.base import Dataset
from densevit.data.loading.collate import collate_by_size
from densevit.data.loading.dataloader import with_sample_name
from densevit.errors import ConfigError, DataError
from densevit.inference.forward import preprocess, resize_to_input
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel
from densevit.models.pretraining.base import PretrainModel
from densevit.structures import Batch, EncoderOutput, Sample
from densevit.tasks.base import Task

BATCH = 8


def build_pretrain_model(plan: Plan, model: DenseModel) -> PretrainModel:
    """The model with its objective.

    Raises:
        ConfigError: the objective does not go with this encoder.
    """
    assert plan.pretrain is not None
    if getattr(model.encoder, "num_detached", 0):
        raise ConfigError(plan.locate("model.decoder: runs blocks of the encoder, as no probe does; take linear, say."))
    try:
        return PretrainModel(model, plan.pretrain.build(model.encoder))
    except ConfigError as error:
        raise ConfigError(*map(plan.locate, error.problems)) from None


def build_probe(plan: Plan, model: PretrainModel, tasks: Mapping[str, Task], card: ModelCard) -> Probe:
    """The probe, with its images read.

    Raises:
        DataError: an image is unreadable, or none has ground truth.
    """
    data = plan.opened.get("probe", plan.train)
    batches = probe_batches(data, plan.run.probe.images)
    if all(batch.depth is None and batch.labels is None and batch.label is None for batch in batches):
        raise DataError(plan.locate("data.probe: its images have no ground truth for the probe to learn."))

    def encode(model: nn.Module, image: Tensor) -> tuple[Tensor, EncoderOutput]:
        x = preprocess(image, card.resize, card.multiple)
        features: EncoderOutput = model.get_submodule("encoder")(x)
        return x, features

    def decode(model: nn.Module, x: Tensor, features: EncoderOutput, size: tuple[int, int]) -> dict[str, Tensor]:
        assert isinstance(model, DenseModel)
        found = DenseModel.forward(model, x, size, features=features)
        return {name: y if "/" in name else resize_to_input(y, size, card.resize) for name, y in found.items()}

    return Probe(model.probe(), tasks, batches, encode, decode, plan.run.probe)


def probe_batches(data: Dataset, count: int) -> list[Batch]:
    """`count` images spread over the data set, in batches of one size."""
    indices = sorted({i * len(data) // count for i in range(count)})
    samples: list[Sample] = []
    for index in indices:
        with with_sample_name(data, index):
            samples.append(data.read(index))
    found: list[Batch] = []
    for batch in range(0, len(samples), BATCH):
        part = slice(batch, batch + BATCH)
        found += collate_by_size(samples[part], indices[part])
    return found
