"""Layers of Transformer blocks, with timm's parameter names. b images, n tokens, d channels.

timm's own bring torchvision and, with it, torch's compiler: a third of the time in which a command starts.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LayerScale(nn.Module):
    """Multiply each channel by a learned factor (Touvron et al. 2021)."""

    def __init__(self, dim: int, init_value: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), init_value))

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return x * self.gamma


class DropPath(nn.Module):
    """Leave out a residual branch for some images of a batch in training: stochastic depth (Huang et al. 2016)."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        if not self.training:
            return x
        kept = x.new_empty(x.shape[0], 1, 1).bernoulli_(1 - self.drop_prob)
        return x * kept.div_(1 - self.drop_prob)


class QuickGELU(nn.Module):
    """Approximate GELU by x sigmoid(1.702 x), as OpenAI's CLIP does; off by up to 0.02."""

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return x * torch.sigmoid(1.702 * x)


class Mlp(nn.Module):
    """Two linear layers with an activation between."""

    def __init__(self, dim: int, hidden: int, *, act: Callable[[], nn.Module] = nn.GELU, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = act()
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))


class SwiGLU(nn.Module):
    """Gate the hidden channels by SiLU (Shazeer 2020): fc2(silu(fc1_g(x)) fc1_x(x))."""

    def __init__(self, dim: int, hidden: int, *, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1_g = nn.Linear(dim, hidden)
        self.fc1_x = nn.Linear(dim, hidden)
        self.act = nn.SiLU()
        self.fc2 = nn.Linear(hidden, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        return self.drop(self.fc2(self.drop(self.act(self.fc1_g(x)) * self.fc1_x(x))))

    def init_gate(self) -> None:
        """Begin with a gate that is the same for every input, as timm does."""
        nn.init.ones_(self.fc1_g.bias)
        nn.init.normal_(self.fc1_g.weight, std=1e-6)


class PackedSwiGLU(nn.Module):
    """SwiGLU with gate and value in one matrix, as in DINOv2's giant; `hidden` counts both."""

    def __init__(self, dim: int, hidden: int, *, drop: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.SiLU()
        self.fc2 = nn.Linear(hidden // 2, dim)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        gate, value = self.fc1(x).chunk(2, dim=-1)
        return self.drop(self.fc2(self.drop(self.act(gate) * value)))

    def init_gate(self) -> None:
        """Begin with a value that is the same for every input: timm takes the second half, which is not the gate."""
        half = self.fc1.out_features // 2
        nn.init.ones_(self.fc1.bias[half:])
        nn.init.normal_(self.fc1.weight[half:], std=1e-6)
