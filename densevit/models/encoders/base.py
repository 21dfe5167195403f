"""The interface of all encoders and their registry."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.lora import Lora
from densevit.registry import Registry
from densevit.structures import EncoderOutput, FeatureSpec


class Encoder(nn.Module, ABC):
    """Turns an image into feature maps, one per out index.

    Attributes:
        features: what each map will be, shallow to deep.
        patch_size: image pixels per token; sides that are no multiple are padded.
        prefix_tokens: class and register tokens in front of the patches (0 for encoders without).
        out_indices: 0-based indices of the blocks or stages whose outputs are returned.
        mean, std: buffers b 3 1 1, part of the weights and of exports.
        licence: of the weights it was built with.
        lora: low-rank updates that it is given once its weights are loaded.
    """

    features: list[FeatureSpec]
    patch_size: int
    prefix_tokens: int
    out_indices: tuple[int, ...]
    mean: Tensor
    std: Tensor
    licence: str = "unknown"
    lora: Lora | None = None

    def set_normalisation(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """
        Raises:
            ConfigError: a standard deviation of 0.
        """
        if min(std) <= 0:
            raise ConfigError(f"encoder.std: three numbers over 0, got {list(std)}.")
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))

    @abstractmethod
    def forward(self, image: Float[Tensor, "b 3 h w"]) -> EncoderOutput:
        """`image` in [0, 1], of any size. It is normalised, then centre-padded to multiples of the patch."""

    @abstractmethod
    def load_weights(self, state: Mapping[str, Tensor], source: str) -> None:
        """Loads a state dict in any layout it knows.

        Args:
            source: the file, for error messages.

        Raises:
            CheckpointError: it does not fit; with counts and the first five names.
        """

    @abstractmethod
    def layer_groups(self) -> list[list[nn.Parameter]]:
        """Every parameter once, grouped from the input (patch embedding) to the output, for layer-wise rates."""

    @abstractmethod
    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that are not decayed: position embeddings and tokens."""

    @abstractmethod
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recomputes blocks in the backward pass, which saves memory and costs time."""

    def detach_last_blocks(self, blocks: int, *, out_indices: bool) -> None:
        """Leaves its last blocks to a decoder, which gets them as `EncoderOutput.remaining`.

        Args:
            out_indices: whether its own feature maps are still needed, by other decoders.

        Raises:
            ConfigError: it has too few blocks, or none that take query tokens.
        """
        raise ConfigError(f"decoder: it needs the last blocks of a ViT encoder; {type(self).__name__} has none.")


def check_one_weight_source(pretrained: bool, weights: Path | None) -> None:
    """
    Raises:
        ConfigError: both published weights and a file are given.
    """
    if pretrained and weights:
        raise ConfigError("encoder: pretrained and weights exclude each other; keep one.")


ENCODERS = Registry[Encoder]("encoder")
