"""Two names for one tensor: tables that read in both directions.

A rule is a pair of names in which `{i}` stands for a number and a trailing `*` for any rest:

    ("depth_head.projects.{i}.*", "decoder.reassemble.{i}.project.*")
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from torch import Tensor

Rule = tuple[str, str]
HOLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class KeyMapping:
    """Theirs to ours and back.

    Attributes:
        rules: (theirs, ours); the first that fits is taken.
        unused: patterns of tensors in their files that never run, or that we make ourselves.
    """

    rules: Sequence[Rule]
    unused: Sequence[str] = ()

    def to_densevit(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Under our names; what no rule knows keeps its own, for the loader to report."""
        kept = {name: tensor for name, tensor in tensors.items() if not matches_any(name, self.unused)}
        return {translate(name, self.rules): tensor for name, tensor in kept.items()}

    def unused_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The spare ones, under our names."""
        kept = {name: tensor for name, tensor in tensors.items() if matches_any(name, self.unused)}
        return {translate(name, self.rules): tensor for name, tensor in kept.items()}

    def to_original(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Under their names; spare tensors are among them if they are given."""
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


@cache  # thousands of names meet dozens of rules
def compiled(pattern: str) -> re.Pattern[str]:
    exact = re.escape(pattern).replace(r"\*", "(?P<rest>.*)")
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\d+)", exact))
