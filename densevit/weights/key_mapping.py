"""Renames tensors by tables of rules that work in both directions, and keeps those that no forward pass uses.

A rule is a pair of names in which `{i}` is a number and a trailing `*` any rest:

    ("depth_head.projects.{i}.*", "decoder.reassemble.{i}.project.*")
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

Rule = tuple[str, str]
HOLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class KeyMapping:
    """Names of an original layout and densevit's."""

    rules: Sequence[Rule]  # (original, densevit); the first match counts
    unused: Sequence[str] = ()  # patterns of tensors in original files that no forward pass uses, or that are computed

    def to_densevit(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Under densevit's names; names that no rule matches stay, for the loader to report."""
        kept = {name: tensor for name, tensor in tensors.items() if not matches_any(name, self.unused)}
        return {translate(name, self.rules): tensor for name, tensor in kept.items()}

    def unused_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The unused tensors, under densevit's names."""
        kept = {name: tensor for name, tensor in tensors.items() if matches_any(name, self.unused)}
        return {translate(name, self.rules): tensor for name, tensor in kept.items()}

    def to_original(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Under the original names, unused tensors included if given."""
        back = [(ours, theirs) for theirs, ours in self.rules]
        return {translate(name, back): tensor for name, tensor in tensors.items()}


def translate(name: str, rules: Iterable[Rule]) -> str:
    for pattern, target in rules:
        found = compiled(pattern).fullmatch(name)
        if found:
            values = found.groupdict()
            return HOLE.sub(partial(_fill, values), target).replace("*", values.get("rest", ""))
    return name


def _fill(values: Mapping[str, str], hole: re.Match[str]) -> str:
    return values[hole[1]]


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(compiled(pattern).fullmatch(name) for pattern in patterns)


@cache  # thousands of names times dozens of rules
def compiled(pattern: str) -> re.Pattern[str]:
    exact = re.escape(pattern).replace(r"\*", "(?P<rest>.*)")
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", exact))


UNUSED = "spare."
"""Prefix, in our files, of tensors that published layouts store and no forward pass uses."""


def add_unused(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Adds DINOv2's mask token and the deepest fusion's residual unit, as zeros if absent."""
    full = dict(tensors)
    full.setdefault("encoder.vit.mask_token", torch.zeros(1, tensors["encoder.vit.cls_token"].shape[-1]))
    for name, tensor in tensors.items():
        if name.startswith("decoder.fusions.3.refine."):
            full.setdefault(name.replace(".refine.", ".level."), torch.zeros_like(tensor))
    return full


def prefix_unused(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Under the names in our files."""
    return {UNUSED + name: tensor for name, tensor in tensors.items()}


def split_unused(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Splits the tensors of our file into the model's and the unused ones, these under their own names."""
    unused = {name.removeprefix(UNUSED): tensor for name, tensor in tensors.items() if name.startswith(UNUSED)}
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(UNUSED)}, unused
