"""MLPs of Transformer blocks: GELU variants and SwiGLU. b images, n tokens, d channels; timm's parameter names."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError

MlpKind = Literal["gelu", "gelu_tanh", "quick_gelu", "swiglu", "swiglu_packed"]


def quick_gelu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """OpenAI CLIP's approximation of GELU, off by up to 0.02."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # SigLIP
    "quick_gelu": quick_gelu,
}


class Mlp(nn.Module):
    """Linear, activation, linear."""

    def __init__(self, dim: int, hidden: int, *, activation: str = "gelu", drop: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = ACTIVATIONS[activation]
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))


class SwiGLU(nn.Module):
    """Gated MLP, silu(gate) * value (Shazeer 2020)."""

    def __init__(self, dim: int, hidden: int, *, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1_g = nn.Linear(dim, hidden)
        self.fc1_x = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.drop(self.fc2(self.drop(F.silu(self.fc1_g(x)) * self.fc1_x(x))))

    def init_gate(self) -> None:
        """Initialises the gate to silu(1) for every input, as timm does."""
        nn.init.ones_(self.fc1_g.bias)
        nn.init.normal_(self.fc1_g.weight, std=1e-6)


class PackedSwiGLU(nn.Module):
    """SwiGLU with gate and value in one matrix, gate first, as in DINOv2's giant; `hidden` counts both."""

    def __init__(self, dim: int, hidden: int, *, drop: float = 0.0) -> None:
        super().__init__()
        if hidden % 2:
            raise ConfigError(f"mlp 'swiglu_packed' needs an even number of hidden channels, not {hidden}.")
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden // 2, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        gate, value = self.fc1(x).chunk(2, dim=-1)
        return self.drop(self.fc2(self.drop(F.silu(gate) * value)))

    def init_gate(self) -> None:
        """Initialises the value to 1 for every input, as timm does: an MLP with SiLU."""
        half = len(self.fc1.bias) // 2
        nn.init.ones_(self.fc1.bias[half:])
        nn.init.normal_(self.fc1.weight[half:], std=1e-6)


MLPS: dict[str, Callable[..., nn.Module]] = {
    **{name: partial(Mlp, activation=name) for name in ACTIVATIONS},
    "swiglu": SwiGLU,
    "swiglu_packed": PackedSwiGLU,
}
