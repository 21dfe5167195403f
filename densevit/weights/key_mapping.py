"""Published tensors in densevit's terms: renamed by tables of rules that work in both directions, those that no forward
pass uses kept, and the options of the encoder `vit` from their shapes.

A rule is a pair of names in which `{i}` is a number and a trailing `*` any rest:

    ("depth_head.projects.{i}.*", "decoder.reassemble.{i}.project.*")
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from densevit.errors import CheckpointError

Rule = tuple[str, str]


@dataclass(frozen=True)
class KeyMapping:
    """Names of an original layout and densevit's."""

    rules: Sequence[Rule]  # (original, densevit); the first match counts
    unused: Sequence[str] = ()  # patterns of tensors in original files that no forward pass uses, or that are computed

    def to_densevit(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights under densevit's names; names that no rule matches stay, for the loader to report."""
        used = {name: tensor for name, tensor in tensors.items() if not matches_any(name, self.unused)}
        return {translate(name, self.rules): tensor for name, tensor in used.items()}

    def unused_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the unused tensors, under densevit's names."""
        unused = {name: tensor for name, tensor in tensors.items() if matches_any(name, self.unused)}
        return {translate(name, self.rules): tensor for name, tensor in unused.items()}

    def to_original(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the weights under the original names, unused tensors included if given."""
        back = [(ours, theirs) for theirs, ours in self.rules]
        return {translate(name, back): tensor for name, tensor in tensors.items()}


def translate(name: str, rules: Iterable[Rule]) -> str:
    for pattern, target in rules:
        match = compiled(pattern).fullmatch(name)
        if match:
            return target.replace("*", "{rest}").format(**{"rest": "", **match.groupdict()})
    return name


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(compiled(pattern).fullmatch(name) for pattern in patterns)


@cache  # thousands of names times dozens of rules
def compiled(pattern: str) -> re.Pattern[str]:
    exact = re.escape(pattern).replace(r"\*", "(?P<rest>.*)")
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", exact))


def add_unused(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add DINOv2's mask token and the deepest fusion's residual unit, as zeros if absent."""
    full = dict(tensors)
    full.setdefault("encoder.vit.mask_token", torch.zeros(1, tensors["encoder.vit.cls_token"].shape[-1]))
    for name, tensor in tensors.items():
        if name.startswith("decoder.fusions.3.refine."):
            full.setdefault(name.replace(".refine.", ".level."), torch.zeros_like(tensor))
    return full


STEM = "encoder.vit."
HEAD_DIM = 64  # channels of an attention head in every published ViT, from S to 7B


def vit_options(
    tensors: Mapping[str, Tensor], source: object, *, gated: bool = False, heads: int = 0
) -> dict[str, Any]:
    """Return the options of the encoder `vit` for tensors under its names. Raises CheckpointError if a tensor is
    missing, position embeddings of no square grid, or channels not a multiple of 64.

    Args:
        source: the file, for error messages.
        gated: whether its MLPs are packed SwiGLUs.
        heads: number of attention heads, which shapes do not tell; 0 for heads of 64 channels.
    """
    patch = shape(tensors, "patch_embed.proj.weight", source)
    positions = shape(tensors, "pos_embed", source)
    hidden = shape(tensors, "blocks.0.mlp.fc1.weight", source)[0]
    dim, side = patch[0], round((positions[1] - 1) ** 0.5)
    if side**2 != positions[1] - 1:
        raise CheckpointError(f"{source}: its {positions[1]} position embeddings are no class token and a square grid.")
    if not heads and dim % HEAD_DIM:
        raise CheckpointError(f"{source}: {dim} channels; published ViTs have multiples of {HEAD_DIM}, as 384 or 768.")
    return {
        "type": "vit",
        "dim": dim,
        "depth": num_blocks(tensors),
        "heads": heads or dim // HEAD_DIM,
        "patch_size": patch[-1],
        "image_size": side * patch[-1],
        "mlp": "swiglu_packed" if gated else "gelu",
        # The encoder rounds dim * mlp_ratio down; the half keeps fractional ratios from rounding to one less.
        "mlp_ratio": hidden / dim if hidden % dim == 0 else (hidden + 0.5) / dim,
        "layer_scale": 1.0 if f"{STEM}blocks.0.ls1.gamma" in tensors else None,
    }


def shape(tensors: Mapping[str, Tensor], name: str, source: object) -> tuple[int, ...]:
    if STEM + name not in tensors:
        raise CheckpointError(f"{source}: has no {name} where its encoder should be.")
    return tuple(tensors[STEM + name].shape)


def num_blocks(tensors: Mapping[str, Tensor], prefix: str = f"{STEM}blocks.") -> int:
    matches = (re.match(rf"{re.escape(prefix)}(\d+)\.", name) for name in tensors)
    return 1 + max((int(match[1]) for match in matches if match), default=-1)


def four_even_blocks(depth: int) -> tuple[int, ...]:
    """Return the last blocks of four equal parts: 5, 11, 17 and 23 of 24."""
    return tuple(depth * i // 4 - 1 for i in range(1, 5))
