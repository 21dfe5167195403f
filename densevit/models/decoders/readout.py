"""DPT's readout operations on the class token. b images, d channels, gh x gw tokens, p prefix tokens."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError

ReadoutKind = Literal["ignore", "add", "average", "project"]


class Readout(nn.Module, ABC):
    """Built with the channels of the patches and the number of prefix tokens."""

    needs_class_token: ClassVar[bool] = True

    def __init__(self, channels: int, prefix_tokens: int) -> None:
        """Raise ConfigError: it needs a class token, which the encoder does not have."""
        super().__init__()
        if self.needs_class_token and not prefix_tokens:
            name = type(self).__name__.lower()
            raise ConfigError(f"decoder.readout: '{name}' needs a class token, which this encoder lacks; use 'ignore'.")

    @abstractmethod
    def forward(self, x: Float[Tensor, "b d gh gw"], prefix: Float[Tensor, "b p d"]) -> Float[Tensor, "b d gh gw"]: ...


class Ignore(Readout):
    """The class token is not used (Depth Anything)."""

    needs_class_token = False

    def forward(self, x: Float[Tensor, "b d gh gw"], prefix: Float[Tensor, "b p d"]) -> Float[Tensor, "b d gh gw"]:
        return x


class Add(Readout):
    """The class token is added to every patch."""

    def forward(self, x: Float[Tensor, "b d gh gw"], prefix: Float[Tensor, "b p d"]) -> Float[Tensor, "b d gh gw"]:
        return x + prefix[:, 0, :, None, None]


class Average(Readout):
    """The mean of class and register tokens is added to every patch (segmentation-models-pytorch's `add`)."""

    def forward(self, x: Float[Tensor, "b d gh gw"], prefix: Float[Tensor, "b p d"]) -> Float[Tensor, "b d gh gw"]:
        return x + prefix.mean(1)[:, :, None, None]


class Project(Readout):
    """The class token is concatenated to every patch, then linear layer and GELU (DPT, MiDaS)."""

    def __init__(self, channels: int, prefix_tokens: int) -> None:
        super().__init__(channels, prefix_tokens)
        self.project = nn.Linear(2 * channels, channels)

    def forward(self, x: Float[Tensor, "b d gh gw"], prefix: Float[Tensor, "b p d"]) -> Float[Tensor, "b d gh gw"]:
        # W [patch, class] = W_patch patch + W_class class: the class token's term is computed once per image.
        for_patch, for_class = self.project.weight.chunk(2, dim=1)
        patches = F.linear(x.permute(0, 2, 3, 1), for_patch)
        token = F.linear(prefix[:, None, None, 0], for_class, self.project.bias)
        return F.gelu(patches + token).permute(0, 3, 1, 2)


READOUTS: dict[ReadoutKind, type[Readout]] = {"ignore": Ignore, "add": Add, "average": Average, "project": Project}
