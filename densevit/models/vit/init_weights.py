"""Weight initialisation of Vision Transformers in timm's modes. Tokens and positions: `VisionTransformer.init_tokens`.

'': truncated normal weights with std 0.02, zero biases; torch's default for the patch embedding.
jax, jax_nlhb: Xavier uniform weights, nearly zero MLP biases, LeCun normal patch embedding (Google's; timm's two
differ in the classifier, which an encoder does not have). moco: Xavier, separately for q, k and v (MoCo v3).
skip: torch's defaults, for weights that are loaded afterwards.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from densevit.models.layers import PackedSwiGLU, SwiGLU

Init = Literal["", "jax", "jax_nlhb", "moco", "skip"]


def initialise(vit: nn.Module, mode: Init) -> None:
    """Initialise every layer of `vit` except norms and layer scales."""
    if mode == "skip":
        return
    for name, module in vit.named_modules():
        INIT_FUNCTIONS[mode](module, name)
    for module in vit.modules():
        if isinstance(module, SwiGLU | PackedSwiGLU):
            module.init_gate()


def rescale_by_depth(blocks: nn.ModuleList) -> None:
    """Apply timm's `fix_init_weight` (BEiT): divide the output weights of block i by sqrt(2 i)."""
    with torch.no_grad():
        for index, block in enumerate(blocks):
            for layer in (block.attn.proj, block.mlp.fc2):  # type: ignore[union-attr]
                layer.weight.div_(math.sqrt(2 * (index + 1)))  # type: ignore[union-attr,operator]


def init_default(module: nn.Module, name: str) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        zero_bias(module)


def init_jax(module: nn.Module, name: str) -> None:
    if isinstance(module, nn.Conv2d):
        truncated_normal(module.weight, (module.in_channels * math.prod(module.kernel_size)) ** -0.5)
        zero_bias(module)
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        zero_bias(module)
        if "mlp" in name:
            nn.init.normal_(module.bias, std=1e-6)


def init_moco(module: nn.Module, name: str) -> None:
    if isinstance(module, nn.Linear):
        # fan-out of q, k and v alone
        rows = module.out_features // (3 if "qkv" in name else 1)
        bound = math.sqrt(6 / (rows + module.in_features))
        nn.init.uniform_(module.weight, -bound, bound)
        zero_bias(module)


def zero_bias(module: nn.Linear | nn.Conv2d) -> None:
    if module.bias is not None:
        nn.init.zeros_(module.bias)


def truncated_normal(weight: torch.Tensor, std: float) -> None:
    """Draw from a normal truncated at two standard deviations and scaled to `std`, as in JAX's initialisers."""
    nn.init.trunc_normal_(weight, std=(wide := std / 0.87962566103423978), a=-2 * wide, b=2 * wide)


INIT_FUNCTIONS: dict[str, Callable[[nn.Module, str], None]] = {
    "": init_default,
    "jax": init_jax,
    "jax_nlhb": init_jax,
    "moco": init_moco,
}


RANDOM = ("uniform_", "normal_", "trunc_normal_", "erfinv_")


class SkipInit(TorchFunctionMode):
    """Within `with SkipInit():` no random numbers are drawn; parameters are zero or uninitialised."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else options["tensor"]
        if getattr(func, "__name__", "") in RANDOM:
            return (
                args[0].zero_()
            )  # trunc_normal_ redraws until all numbers are within its bounds, which uninitialised ones may never be
        return func(*args, **options)
