"""Linear and convolutional layers for CPU inference: weights prepacked for oneDNN, with GELU or ReLU fused.

Otherwise torch casts and reorders the weights of a layer at each call, and writes the input of the activation to
memory. Parameters, names and `state_dict` of the model stay as they are; the packed weights are a copy beside them,
renewed when they have changed. A call with gradients, in another precision, on another device or of `torch.export` uses
the layer as it was.
"""

import platform
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from densevit.models.decoders.dpt import ResidualUnit
from densevit.utils.device import DTYPES, Precision

X86 = ("x86_64", "AMD64")
FUSED: dict[str, Callable[[Tensor], Tensor]] = {
    "none": F.gelu, "tanh": partial(F.gelu, approximate="tanh"), "relu": F.relu
}  # fmt: skip
POST_OPS: dict[str | None, tuple[str, str]] = {
    None: ("none", ""), "relu": ("relu", ""), "none": ("gelu", "none"), "tanh": ("gelu", "tanh")
}  # fmt: skip


def packs(precision: Precision) -> bool:
    """Return whether oneDNN packs weights of this precision here: bf16 needs AVX512 or newer instructions."""
    if precision == "fp16" or not torch._C._has_mkldnn or platform.machine() not in X86:
        return False
    return precision != "bf16" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def prepack(model: nn.Module, precision: Precision) -> None:
    """Pack every linear and convolutional layer of a model in place, for predictions on a CPU in `precision`, where
    `packs` says so."""
    if not packs(precision):
        return
    dtype = DTYPES[precision]
    for module in list(model.modules()):
        if (gelu := gelu_of(module)) is not None:
            mlp: Any = module
            mlp.fc1.forward = PackedLinear(mlp.fc1, dtype, gelu)
            mlp.act = nn.Identity()
        fuse_relus(module, dtype)
        if (kind := kind_of(module)) is not None:
            before = module.forward
            module.forward = kind(module, dtype, before.fused if isinstance(before, Packed) else None)


def gelu_of(module: nn.Module) -> str | None:
    """Return which GELU follows `fc1` directly; None for another module or activation."""
    # By name: `models.layers` has one, and timm, which takes seconds to import, another.
    return module.act.approximate if type(module).__name__ == "Mlp" and isinstance(module.act, nn.GELU) else None


def fuse_relus(module: nn.Module, dtype: torch.dtype) -> None:
    """Fuse each ReLU of a module into the convolution before it."""
    children: dict[str, Any] = dict(module.named_children()) if type(module) is nn.Sequential else {}
    if isinstance(module, ResidualUnit):
        children = {name: child for name, child in module.named_children() if name in ("conv1", "norm1", "act")}
    steps = [(name, child) for name, child in children.items() if type(child) is not nn.Identity]
    for (_, conv), (name, relu) in pairwise(steps):
        if kind_of(conv) is PackedConv and type(relu) is nn.ReLU:
            conv.forward = PackedConv(conv, dtype, "relu")
            setattr(module, name, nn.Identity())


class Packed(ABC):
    """The forward of a layer with packed weights, and the activation that follows."""

    # What comes and goes with predictions is kept out of `__dict__`, which `model_fingerprint` reads.
    __slots__ = ("__dict__", "bias", "versions", "weight")

    def __init__(self, layer: Any, dtype: torch.dtype, fused: str | None = None) -> None:
        self.layer, self.dtype, self.fused = layer, dtype, fused
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None
        self.versions: tuple[int, ...] = ()

    def __call__(self, x: Tensor) -> Tensor:
        if not self.fits(x):
            plain: Tensor = type(self.layer).forward(self.layer, x)
            return plain if self.fused is None else FUSED[self.fused](plain)
        if self.weight is None or self.versions != self.current_versions(x):
            weight, bias = self.layer.weight.detach(), self.layer.bias
            self.weight = self.pack(weight.to(self.dtype), x)
            self.bias = None if bias is None else bias.detach().to(self.dtype)
            self.versions = self.current_versions(x)
        return self.compute(x.to(self.dtype), *POST_OPS[self.fused])

    @abstractmethod
    def pack(self, weight: Tensor, x: Tensor) -> Tensor:
        """Return the weights in oneDNN's own order, for inputs as `x`."""

    @abstractmethod
    def compute(self, x: Tensor, post_op: str, algorithm: str) -> Tensor:
        """Return the output of the layer and the activation."""

    def fits(self, x: Tensor) -> bool:
        """Return whether the packed weights serve this call."""
        low = torch.is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if low else x.dtype
        predicts = not torch.is_grad_enabled() and not torch.compiler.is_exporting()
        return x.device.type == "cpu" and dtype == self.dtype and predicts and x.numel() > 0

    def current_versions(self, x: Tensor) -> tuple[int, ...]:
        """Return what the packed weights depend on."""
        return tuple(0 if p is None or p.is_inference() else p._version for p in (self.layer.weight, self.layer.bias))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Packed":
        return type(self)(deepcopy(self.layer, memo), self.dtype, self.fused)

    def __reduce__(self) -> tuple[Callable[..., "Packed"], tuple[Any, ...]]:
        return type(self), (self.layer, self.dtype, self.fused)  # packed weights can be neither copied nor pickled


class PackedLinear(Packed):
    def pack(self, weight: Tensor, x: Tensor) -> Tensor:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
        return packed

    def compute(self, x: Tensor, post_op: str, algorithm: str) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, post_op, [], algorithm)
        return y


class PackedConv(Packed):
    """Packed for the size of its last input: for another one oneDNN may be up to 40 times slower."""

    def pack(self, weight: Tensor, x: Tensor) -> Tensor:
        packed: Tensor = torch.ops.mkldnn._reorder_convolution_weight(weight, *self.shape, list(x.shape))
        return packed

    def current_versions(self, x: Tensor) -> tuple[int, ...]:
        return *super().current_versions(x), *x.shape

    def compute(self, x: Tensor, post_op: str, algorithm: str) -> Tensor:
        y: Tensor = torch.ops.mkldnn._convolution_pointwise(
            x.contiguous(memory_format=torch.channels_last), self.weight, self.bias, *self.shape, post_op, [], algorithm
        )
        return y

    @property
    def shape(self) -> tuple[Any, ...]:
        conv = self.layer
        return conv.padding, conv.stride, conv.dilation, conv.groups

    def fits(self, x: Tensor) -> bool:
        return x.ndim == 4 and super().fits(x)


def kind_of(module: nn.Module) -> type[Packed] | None:
    """Return how a layer is packed; None for any other module."""
    if type(module) is nn.Linear:
        return PackedLinear
    plain = type(module) is nn.Conv2d and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return PackedConv if plain else None
