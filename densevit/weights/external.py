"""A third-party checkpoint as read, and converted to densevit's names and options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from densevit.errors import CheckpointError
from densevit.model_card import ModelCard
from densevit.preprocess_config import PreprocessConfig


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
        """Raises CheckpointError if some of these tensors are not in the file."""
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
