"""What a predictor saves: a folder, or a repository of the Hugging Face hub."""

from pathlib import Path

from torch import nn

from densevit.errors import ConfigError
from densevit.model_card import ModelCard
from densevit.weights import hub


class HubMixin:
    """Saves weights and card, as `huggingface_hub`'s mixin of models does."""

    model: nn.Module
    card: ModelCard
    cast_weights: bool

    def save_pretrained(self, folder: str | Path) -> None:
        """Save weights and card into a new folder that `densevit.load` reads; one that exists is a CheckpointError."""
        self.check_savable()
        hub.save_pretrained(Path(folder), self.model.state_dict(), self.card)

    def push_to_hub(self, repository: str, *, private: bool = False) -> str:
        """Save to `owner/name` on the Hugging Face hub; return the address that `densevit.load` takes. Raises
        CheckpointError if the hub is unreachable or refuses."""
        self.check_savable()
        return hub.push_to_hub(repository, self.model.state_dict(), self.card, private=private)

    def check_savable(self) -> None:
        """Raise ConfigError if the weights are not those of a checkpoint."""
        if self.cast_weights:
            raise ConfigError("cast_weights: these weights have lost digits; load the checkpoint without, to save it.")
        if not any(True for _ in self.model.parameters()):
            raise ConfigError("an ONNX file has no weights to save; take the checkpoint that it was made from.")
