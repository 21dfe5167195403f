"""Third-party checkpoints, as read and in densevit's names and options; base class and registry of their families."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor

from densevit.errors import CheckpointError
from densevit.model_card import ModelCard
from densevit.preprocess_config import PreprocessConfig
from densevit.registry import Registry


@dataclass(frozen=True)
class RawCheckpoint:
    """A third-party file or folder as read."""

    path: Path  # for error messages
    tensors: Mapping[str, Tensor]  # under its own names, without the wrappers and prefixes of launchers
    config: Mapping[str, Any] = field(default_factory=dict)  # of `config.json` in the folder; empty without one
    preprocessor: Mapping[str, Any] = field(default_factory=dict)  # of `preprocessor_config.json`; empty without one
    within: str = ""  # prefix of the model inside of another module, already removed; empty without one
    others: int = 0  # number of tensors of that module that do not belong to the model

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def has(self, *names: str) -> bool:
        return all(name in self.tensors for name in names)

    def need(self, *names: str) -> None:
        """Raise CheckpointError if some of these tensors are not in the file."""
        if missing := [name for name in names if name not in self.tensors]:
            first = ", ".join(list(self.tensors)[:5]) or "none"
            raise CheckpointError(
                f"{self.path}: not of this family, or cut short; {len(missing)} of its tensors are missing: "
                f"{', '.join(missing[:5])}. The file's {len(self.tensors)} begin with {first}."
            )


@dataclass(frozen=True, kw_only=True)
class ConvertedCheckpoint:
    """A checkpoint that can be built, loaded and used."""

    model: Mapping[str, Any]  # `encoder`, `decoder` and `heads` (or `decoders`), as in the `model` section of a config
    # under the names of the `DenseModel` that is built from it; buffers that the parts make themselves (`encoder.mean`,
    # `encoder.std`) may be left out
    tensors: Mapping[str, Tensor]
    resize: PreprocessConfig  # preprocessing of the original, and resizing of its predictions
    source: str  # repository and model, for the card; licence: of the weights
    multiple: int | None = None  # of the network's input size; by default the patch size
    # tensors that no forward pass uses, under our names; kept for converting back
    unused: Mapping[str, Tensor] = field(default_factory=dict)
    licence: str = "unknown"
    trained_on: str = ""
    classes: str = ""  # the data set of its classes, if the number agrees: ade20k, voc, ..
    path: str = ""  # what errors call the checkpoint
    card: ModelCard | None = None  # of a checkpoint that densevit wrote; published ones have none


Metres = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Type of the option `max_depth`, which files do not contain."""

# Normalisation of images in [0, 1].
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}


class Family(ABC):
    """Recognises and reads one layout. Options say what the file cannot (a range, a variant)."""

    description: ClassVar[str]  # one line that distinguishes it from families with equal files
    licence: ClassVar[str] = "unknown"  # of the published weights

    @classmethod
    @abstractmethod
    def recognises(cls, raw: RawCheckpoint) -> bool:
        """Return whether the file may be of this family, by its names, shapes and config alone."""

    @abstractmethod
    def read(self, raw: RawCheckpoint) -> ConvertedCheckpoint:
        """Return the file in densevit's terms. Raises CheckpointError if it is of this family, but damaged or of an
        unknown size; with counts and names."""

    def check_components(self, card: ModelCard, *, encoder: str, decoder: str) -> None:
        """Raise CheckpointError if the model has other parts, or several heads, or a stem of convolutions."""
        if card.model["encoder"].get("stem") == "conv":
            raise CheckpointError("this layout holds an encoder with stem 'patch', not 'conv'.")
        have = (card.model["encoder"]["type"], card.model["decoder"]["type"], len(card.model["heads"]))
        if have != (encoder, decoder, 1) or card.model.get("decoders"):
            raise CheckpointError(
                f"this layout holds encoder '{encoder}', decoder '{decoder}' and one head, not encoder '{have[0]}', "
                f"decoder '{have[1]}' and {have[2]} heads."
            )


class WritableFamily(Family):
    """A layout that models are written to as well."""

    @abstractmethod
    def write(self, tensors: Mapping[str, Tensor], card: ModelCard) -> dict[str, Tensor]:
        """Return our tensors under the names of the original, the inverse of `read`. Raises CheckpointError if the
        model is of another architecture."""

    def describe(self, card: ModelCard) -> dict[str, Mapping[str, Any]]:
        """Return JSON files beside the tensors, by file name; none for layouts of one file."""
        return {}

    def unsaid(self, raw: RawCheckpoint) -> list[str]:
        """Return what was written and is read otherwise without options, because nothing there says it; one sentence
        each."""
        return []

    @classmethod
    def writer(cls, card: ModelCard) -> "WritableFamily":
        """Return the family that writes such a model, with options from the card. Raises CheckpointError if the card
        lacks one."""
        return cls()


FAMILIES = Registry[Family]("family")


def family_class(name: str) -> type[Family]:
    family = FAMILIES.components[name]
    assert isinstance(family, type) and issubclass(family, Family)
    return family
