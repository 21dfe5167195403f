"""The interface of conditionings: what a model does with an input beside images; and their registry."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from densevit.config.schema import TrainConfig
from densevit.model_card import ModelCard
from densevit.model_inputs import ModelInputs
from densevit.models.decoders.base import Decoder
from densevit.models.heads.base import Head
from densevit.registry import Registry
from densevit.structures import EncoderOutput, FeatureSpec

FirstPass = Callable[[EncoderOutput, str], Float[Tensor, "b _ h w"]]
"""Features and the name of a head -> its prediction at the size of the padded image, by `model.decoder`."""


@dataclass(frozen=True)
class ConditionedParts:
    """The parts of a network that a conditioning is built for."""

    features: Sequence[FeatureSpec]  # of the encoder
    decoder: Decoder  # of `model.decoder`
    heads: Mapping[str, Head]  # of that decoder, by name


class Conditioning(nn.Module, ABC):
    """Changes the features of images, or the maps of the decoder, by an input beside the images.

    Built as `Conditioning(parts, **options)`. It begins as one that changes nothing, so that a pretrained model begins
    as it was.

    Attributes:
        input: its kind in `INPUT_KINDS`; the conditioning is left out where it is not given.
        run_options: options that follow from the run, and not from the checkpoint that a model starts from.
        uses: the inputs that it reads.
    """

    input: ClassVar[str]
    run_options: ClassVar[tuple[str, ...]] = ()

    @property
    def uses(self) -> tuple[str, ...]:
        return (self.input,)

    @classmethod
    def resolved(cls, options: Mapping[str, Any], run: TrainConfig) -> Mapping[str, Any]:
        """Return the options with those that follow from the run."""
        return options

    @classmethod
    def incompatible(cls, run: TrainConfig) -> Iterator[str]:
        """Yield what in a run is incompatible with it."""
        yield from ()

    @abstractmethod
    def forward(self, features: EncoderOutput, inputs: ModelInputs, first_pass: FirstPass) -> EncoderOutput:
        """Return the features with what the input changes. `inputs`: of the padded images that the features cover;
        `first_pass`: the model without this conditioning, where it needs a prediction."""


CONDITIONINGS = Registry[Conditioning]("conditioning")


def input_names(card: ModelCard) -> list[str]:
    """Return the inputs beside images that a model takes, by what its card says."""
    names = ["camera"] if card.needs_camera else []
    components: Mapping[str, Any] = CONDITIONINGS.components
    return list(dict.fromkeys([*names, *(components[name].input for name in card.conditioning if name in components)]))
