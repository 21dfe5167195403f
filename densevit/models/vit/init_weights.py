"""How a Vision Transformer starts, in timm's modes. Tokens and positions are the model's own matter.

'': truncated normal weights of 0.02, zero biases; patch embedding as torch has it, which suits its fan-in.
jax: Glorot uniform weights, nearly zero Mlp biases, LeCun normal patch embedding, zero head (Google's own).
jax_nlhb: jax, with the head's biases at the chance of a class. moco: Glorot, q k v each for itself (MoCo v3).
skip: torch's defaults, which weights will overwrite.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import nn

from densevit.models.vit.mlp import PackedSwiGLU, SwiGLU

Init = Literal["", "jax", "jax_nlhb", "moco", "skip"]


def initialise(vit: nn.Module, mode: Init) -> None:
    """Starts every layer of `vit` but norms and gains, which torch starts well."""
    if mode == "skip":
        return
    for name, module in vit.named_modules():
        START[mode](module, name)
    for module in vit.modules():
        if isinstance(module, SwiGLU | PackedSwiGLU):
            module.flatten_gate()


def rescale_by_depth(blocks: nn.ModuleList) -> None:
    """timm's `fix_init`: what each block adds shrinks with its depth, so that the sum does not grow (BEiT)."""
    with torch.no_grad():
        for index, block in enumerate(blocks):
            for layer in (block.attn.proj, block.mlp.fc2):  # type: ignore[union-attr]
                layer.weight.div_(math.sqrt(2 * (index + 1)))  # type: ignore[union-attr,operator]


def start_plain(module: nn.Module, name: str) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        zero_bias(module)


def start_jax(module: nn.Module, name: str) -> None:
    if isinstance(module, nn.Conv2d):
        truncated_normal(module.weight, (module.in_channels * math.prod(module.kernel_size)) ** -0.5)
        zero_bias(module)
    elif isinstance(module, nn.Linear) and name == "head":
        nn.init.zeros_(module.weight)
        zero_bias(module)
    elif isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        zero_bias(module)
        if "mlp" in name:
            nn.init.normal_(module.bias, std=1e-6)


def start_jax_at_chance(module: nn.Module, name: str) -> None:
    start_jax(module, name)
    if isinstance(module, nn.Linear) and name == "head" and module.bias is not None:
        nn.init.constant_(module.bias, -math.log(module.out_features))


def start_moco(module: nn.Module, name: str) -> None:
    if isinstance(module, nn.Linear):
        # Glorot's gain counts the rows of q, k or v alone
        rows = module.out_features // (3 if "qkv" in name else 1)
        bound = math.sqrt(6 / (rows + module.in_features))
        nn.init.uniform_(module.weight, -bound, bound)
        zero_bias(module)


def zero_bias(module: nn.Linear | nn.Conv2d) -> None:
    if module.bias is not None:
        nn.init.zeros_(module.bias)


def truncated_normal(weight: torch.Tensor, std: float) -> None:
    """A normal cut at two deviations, widened to have `std` nonetheless, as JAX's initialisers."""
    nn.init.trunc_normal_(weight, std=(wide := std / 0.87962566103423978), a=-2 * wide, b=2 * wide)


START: dict[str, Callable[[nn.Module, str], None]] = {
    "": start_plain,
    "jax": start_jax,
    "jax_nlhb": start_jax_at_chance,
    "moco": start_moco,
}
