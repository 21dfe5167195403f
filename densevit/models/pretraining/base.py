"""The interface of pre-training objectives, and the model that trains one. b images, h x w pixels."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor, nn

from densevit.models.dense import DenseModel
from densevit.models.encoders.base import Encoder
from densevit.registry import Registry
from densevit.structures import EncoderOutput, Size


class Objective(nn.Module, ABC):
    """What an encoder learns from images alone; has the encoder by position, and its options by keyword.

    Attributes:
        progress: share of the run's steps that is done.
    """

    progress: float = 0.0

    @abstractmethod
    def forward(self, encoder: Encoder, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        """Losses by name, weighted; `image` is in [0, 1], augmented by `data.transforms`."""

    def on_train_step(self, progress: float) -> None:
        self.progress = progress


class PretrainModel(DenseModel):
    """A dense model whose encoder learns from an objective; decoder and heads are the probe's, and not trained here.

    In training the forward pass gives losses, otherwise predictions.

    Attributes:
        training_only: prefixes of the weights that only training needs.
    """

    training_only = ("objective.",)

    def __init__(self, model: DenseModel, objective: Objective) -> None:
        nn.Module.__init__(self)
        self.__dict__ |= {name: value for name, value in vars(model).items() if not name.startswith("_")}
        self._modules |= model._modules
        for part in self.probe():
            part.requires_grad_(False)
        self.objective = objective

    def probe(self) -> list[nn.Module]:
        """Everything between encoder and prediction."""
        return [child for name, child in self.named_children() if name not in ("encoder", "objective")]

    def forward(
        self,
        image: Float[Tensor, "b 3 h w"],
        output_size: Size | None = None,
        camera: Tensor | None = None,
        features: EncoderOutput | None = None,
        clip_length: int = 1,
        points: Tensor | None = None,
    ) -> dict[str, Tensor]:
        if self.training:
            return dict(self.objective(self.encoder, image))
        return super().forward(image, output_size, camera, features, clip_length, points)


def average_into(target: nn.Module, source: nn.Module, momentum: float) -> None:
    """target <- momentum * target + (1 - momentum) * source; buffers are copied."""
    sources: Mapping[str, Tensor] = dict(source.named_parameters())
    for name, parameter in target.named_parameters():
        parameter.data.lerp_(sources[name].detach().to(parameter.dtype), 1 - momentum)
    buffers = dict(source.named_buffers())
    for name, buffer in target.named_buffers():
        buffer.copy_(buffers[name])


OBJECTIVES = Registry[Objective]("pretraining objective")
