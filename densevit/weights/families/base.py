"""Base class and registry of the families of published checkpoints."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from densevit.errors import CheckpointError
from densevit.model_card import ModelCard
from densevit.registry import Registry
from densevit.weights.external import ConvertedCheckpoint, RawCheckpoint

Metres = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Type of the option `max_depth`, which files do not contain."""

# Normalisation of images in [0, 1].
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


class Family(ABC):
    """Recognises, reads and writes one layout. Options say what the file cannot (a range, a variant)."""

    description: ClassVar[str]  # one line that distinguishes it from families with equal files
    licence: ClassVar[str] = "unknown"  # of the published weights

    @classmethod
    @abstractmethod
    def recognises(cls, found: RawCheckpoint) -> bool:
        """Whether the file may be of this family, by its names, shapes and config alone."""

    @abstractmethod
    def read(self, found: RawCheckpoint) -> ConvertedCheckpoint:
        """The file in densevit's terms. Raises CheckpointError if it is of this family, but damaged or of an unknown
        size; with counts and names."""

    def write(self, tensors: Mapping[str, Tensor], card: ModelCard) -> dict[str, Tensor]:
        """Our tensors under the names of the original, the inverse of `read`. Raises CheckpointError if the model is of
        another architecture, or this direction is not implemented."""
        raise CheckpointError(f"weights are not written back to the layout of {type(self).__name__}.")

    def describe(self, card: ModelCard) -> dict[str, Mapping[str, Any]]:
        """JSON files beside the tensors, by file name; none for layouts of one file."""
        return {}

    @classmethod
    def writer(cls, card: ModelCard) -> "Family":
        """The family that writes such a model, with options from the card."""
        return cls()

    def check_components(self, card: ModelCard, *, encoder: str, decoder: str) -> None:
        """Raises CheckpointError if the model has other parts, or several heads."""
        have = (card.model["encoder"]["type"], card.model["decoder"]["type"], len(card.model["heads"]))
        if have != (encoder, decoder, 1) or card.model.get("decoders"):
            raise CheckpointError(
                f"this layout holds encoder '{encoder}', decoder '{decoder}' and one head, not encoder '{have[0]}', "
                f"decoder '{have[1]}' and {have[2]} heads."
            )


FAMILIES = Registry[Family]("family")
