"""Linear layers for CPU inference: weights prepacked for oneDNN, with GELU fused.

Otherwise torch casts and reorders the weights of a layer at each call, and writes the input of GELU to memory.
Parameters, names and `state_dict` of the model stay as they are; the packed weights are a copy beside them, renewed
when they have changed. A call with gradients, in another precision, on another device or of `torch.export` uses the
layer as it was.
"""

import platform
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from jaxtyping import Float
from timm.layers.mlp import Mlp as TimmMlp
from torch import Tensor, nn

from densevit.models.vit.mlp import ACTIVATIONS, Mlp
from densevit.utils.precision import DTYPES, Precision

X86 = ("x86_64", "AMD64")
GELU = {"none": ACTIVATIONS["gelu"], "tanh": ACTIVATIONS["gelu_tanh"]}
MLPS = (Mlp, TimmMlp)


def prepack_linears(model: nn.Module, precision: Precision) -> None:
    """Packs every linear layer of a model in place, for predictions on a CPU in `precision`; fp16 is left alone."""
    if precision == "fp16" or not torch._C._has_mkldnn or platform.machine() not in X86:
        return
    dtype = DTYPES[precision]
    for module in list(model.modules()):
        if (gelu := gelu_of(module)) is not None:
            mlp: Any = module
            mlp.fc1.forward = PackedLinear(mlp.fc1, dtype, gelu)
            mlp.act = nn.Identity() if isinstance(mlp.act, nn.Module) else identity
        elif type(module) is nn.Linear:
            before = module.forward
            module.forward = PackedLinear(module, dtype, before.gelu if isinstance(before, PackedLinear) else None)  # type: ignore


def gelu_of(module: nn.Module) -> str | None:
    """Which GELU follows `fc1` directly; None for another module or activation."""
    if type(module) not in MLPS:
        return None
    act: Any = module.act
    if isinstance(act, nn.GELU):
        return act.approximate
    return next((name for name, gelu in GELU.items() if act is gelu), None)


def identity(x: Tensor) -> Tensor:
    return x


class PackedLinear:
    """The forward of a linear layer with packed weights, and GELU where one follows."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, gelu: str | None = None) -> None:
        self.linear, self.dtype, self.gelu = linear, dtype, gelu
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None
        self.versions: tuple[int, ...] = ()

    def __call__(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b k"]:
        if not self.fits(x):
            plain = nn.Linear.forward(self.linear, x)
            return plain if self.gelu is None else GELU[self.gelu](plain)
        if self.weight is None or self.versions != self.current_versions():
            self.repack()
        post_op = ("none", "") if self.gelu is None else ("gelu", self.gelu)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(
            x.to(self.dtype), self.weight, self.bias, post_op[0], [], post_op[1]
        )
        return y

    def fits(self, x: Tensor) -> bool:
        """Whether the packed weights serve this call."""
        low = torch.is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if low else x.dtype
        predicts = not torch.is_grad_enabled() and not torch.compiler.is_exporting()
        return x.device.type == "cpu" and dtype == self.dtype and predicts and x.numel() > 0

    def current_versions(self) -> tuple[int, ...]:
        return tuple(0 if p is None or p.is_inference() else p._version for p in (self.linear.weight, self.linear.bias))

    def repack(self) -> None:
        weight, bias = self.linear.weight.detach(), self.linear.bias
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(self.dtype).contiguous())
        self.bias = None if bias is None else bias.detach().to(self.dtype)
        self.versions = self.current_versions()

    def __deepcopy__(self, memo: dict[int, Any]) -> "PackedLinear":
        return PackedLinear(deepcopy(self.linear, memo), self.dtype, self.gelu)

    def __reduce__(self) -> tuple[Callable[..., "PackedLinear"], tuple[Any, ...]]:
        return PackedLinear, (self.linear, self.dtype, self.gelu)  # packed weights can be neither copied nor pickled
