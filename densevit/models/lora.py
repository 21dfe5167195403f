"""LoRA and DoRA: an encoder keeps its weights and learns low-rank updates of them. i inputs, o outputs.

LoRA: Hu et al. 2022. DoRA: Liu et al. 2024. The formulas and initial values are those of Hugging Face's peft.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.config.schema import TrainConfig
from densevit.errors import ConfigError
from densevit.ops.matrices import merge_lora

# Linear layers of attention and MLP in all our encoders. The names begin with a block's, so that neither a patch
# embedding's `proj` nor the MLP of Swin V2's position biases is among them.
LAYERS = {
    "attention": r"(?:^|\.)blocks\.\d+\.attn\.(?:qkv|q_proj|k_proj|v_proj|proj)",
    "mlp": r"(?:^|\.)blocks\.\d+\.mlp\.fc\w+",
}


@dataclass(frozen=True, kw_only=True)
class Lora:
    """The low-rank update W + alpha / rank * B A of an encoder's linear layers.

    Args:
        rank: rows of A and columns of B.
        alpha: numerator of the update's scale; by default the rank, so that the scale is 1.
        dropout: rate on the update's inputs, in training.
        dora: also learn the norm of each row of the weights (DoRA).
        layers: which layers of every block are updated: those of the attention, of the MLP, or both.
    """

    rank: Annotated[int, Field(ge=1, le=4096)] = 8
    alpha: Annotated[float, Field(gt=0)] | None = None
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    dora: bool = False
    layers: tuple[Literal["attention", "mlp"], ...] = ("attention", "mlp")

    @staticmethod
    def incompatible(run: TrainConfig) -> Iterator[str]:
        """Yield what in a run is incompatible with low-rank updates."""
        if run.model.freeze_encoder:
            yield "model.freeze_encoder: model.encoder.lora freezes the encoder itself, and trains its updates."

    @property
    def scale(self) -> float:
        return (self.rank if self.alpha is None else self.alpha) / self.rank


class LoraLinear(nn.Linear):
    """A linear layer with a frozen weight W and a trained update; as `linear` was until B is no longer zero.

    Parameters keep their names beside the new `lora_a`, `lora_b` and, of DoRA, `lora_magnitude`.
    """

    def __init__(self, linear: nn.Linear, options: Lora) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=False, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.scale, self.dropout = options.scale, nn.Dropout(options.dropout)
        self.lora_a = nn.Parameter(linear.weight.new_empty(options.rank, linear.in_features))
        self.lora_b = nn.Parameter(linear.weight.new_empty(linear.out_features, options.rank))
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))
        nn.init.zeros_(self.lora_b)
        self.lora_magnitude = nn.Parameter(linear.weight.detach().norm(dim=1)) if options.dora else None

    def forward(self, x: Float[Tensor, "*b i"]) -> Float[Tensor, "*b o"]:
        dropped = self.dropout(x)
        update = self.scale * F.linear(F.linear(dropped, self.lora_a), self.lora_b)
        if self.lora_magnitude is None:
            return F.linear(x, self.weight, self.bias) + update
        # The norm is taken as a constant, section 4.3 of the paper.
        norm = merge_lora(self.weight.detach(), self.lora_a.detach(), self.lora_b.detach(), self.scale).norm(dim=1)
        gain = self.lora_magnitude / norm
        rescaled = (gain - 1) * F.linear(dropped, self.weight) + gain * update
        return F.linear(x, self.weight, self.bias) + rescaled


def add_lora(encoder: nn.Module, options: Lora) -> None:
    """Freeze an encoder, and give its attention and MLP layers updates to train. Raises ConfigError if it has no such
    layers, or one is smaller than the rank."""
    pattern = re.compile("|".join(LAYERS[name] for name in options.layers) or "(?!)")
    modules = dict(encoder.named_modules())
    linears = {name: m for name, m in modules.items() if isinstance(m, nn.Linear) and pattern.search(name)}
    if not linears:
        raise ConfigError(
            f"encoder.lora.layers: the encoder has no linear layers of {list(options.layers)} in its blocks."
        )
    smallest = min(min(linear.in_features, linear.out_features) for linear in linears.values())
    if options.rank > smallest:
        raise ConfigError(f"encoder.lora.rank: {options.rank}, where the smallest layer has {smallest} channels.")
    encoder.requires_grad_(False)
    for name, linear in linears.items():
        parent, _, child = name.rpartition(".")
        if getattr(modules[parent], "q_bias", None) is not None:
            # timm's BEiT, EVA and Swin V2 read `qkv.weight` past the layer, unless its biases are added apart.
            modules[parent].qkv_bias_separate = True
        setattr(modules[parent], child, LoraLinear(linear, options))
