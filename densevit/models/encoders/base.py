"""What a decoder may ask of any encoder, and the names a config may use for them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.registry import Registry
from densevit.structures import EncoderOutput, FeatureSpec


class Encoder(nn.Module, ABC):
    """Turns an image into one feature map per tap.

    Attributes:
        features: what each map will be, shallow to deep.
        patch_size: image pixels per token; sides that are no multiple are padded.
        prefix_tokens: class and register tokens in front of the patches (0 for encoders without).
        out_indices: 0-based indices of the blocks whose outputs are handed on.
        mean, std: buffers b 3 1 1; they travel with weights and exports.
    """

    features: list[FeatureSpec]
    patch_size: int
    prefix_tokens: int
    out_indices: tuple[int, ...]
    mean: Tensor
    std: Tensor

    def set_normalisation(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """
        Raises:
            ConfigError: a deviation of 0, by which nothing can be divided.
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
        """Takes a state dict in any layout it knows.

        Args:
            source: what errors call the file.

        Raises:
            CheckpointError: it does not fit; with counts and the first five names.
        """

    @abstractmethod
    def layer_groups(self) -> list[list[nn.Parameter]]:
        """Every parameter once, grouped from the input (patch embedding) to the output, for layer-wise rates."""

    @abstractmethod
    def no_weight_decay(self) -> set[str]:
        """Names of the parameters without weight decay, as in timm: tokens and position embeddings."""

    @abstractmethod
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Trades time for memory: blocks are recomputed in the backward pass."""

    def leave(self, blocks: int, *, out_indices: bool) -> None:
        """Leaves its last blocks to a decoder, from now on: it hands them on as `Features.rest`.

        Args:
            out_indices: whether its own taps are still asked for, because other decoders read them.

        Raises:
            ConfigError: it has no blocks that could take a decoder's tokens in, or too few.
        """
        raise ConfigError(f"decoder: it wants to join the last blocks of the encoder; {type(self).__name__} has none.")


ENCODERS = Registry[Encoder]("encoder")
