"""What became of the images of an export, in numbers and in words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from densevit.errors import PartialError


@dataclass
class Summary:
    """What became of the images of one run."""

    images: int
    done: int = 0
    already: int = 0  # complete before this run
    failed: dict[Path, str] = field(default_factory=dict)  # reasons
    clipped: int = 0  # valid values beyond what a format holds
    invalid: int = 0  # pixels without a value
    seconds: float = 0.0

    def __str__(self) -> str:
        rate = f"{self.done} images in {self.seconds:.1f} s ({self.done / max(self.seconds, 1e-9):.1f} images/s)"
        notes = [
            f"{self.already} were already there" if self.already else "",
            f"{self.clipped:,} values clipped to the 16-bit range: lower --scale" if self.clipped else "",
            f"{self.invalid:,} pixels without a value" if self.invalid else "",
            f"{len(self.failed)} failed" if self.failed else "",
        ]
        lines = [f"  {shown(source)}: {reason}" for source, reason in self.failed.items()]
        return "\n".join([", ".join([rate, *filter(None, notes)]) + ".", *lines])


def merged(parts: Sequence[Summary]) -> Summary:
    """The summary of several processes that worked at the same time."""
    counts = ("images", "done", "already", "clipped", "invalid")
    failed = {source: why for part in parts for source, why in part.failed.items()}
    seconds = max(part.seconds for part in parts)
    sums = {name: sum(getattr(part, name) for part in parts) for name in counts}
    return Summary(failed=failed, seconds=seconds, **sums)


class Incomplete(PartialError):
    """The error that carries the summary of what was done nevertheless."""

    def __init__(self, summary: Summary, record: Path) -> None:
        super().__init__(f"{len(summary.failed)} of {summary.images} images failed; {record} says why.")
        self.summary, self.record = summary, record

    def __reduce__(self) -> tuple[type["Incomplete"], tuple[Summary, Path]]:
        # Errors travel between processes; by itself one is made anew of its message alone.
        return Incomplete, (self.summary, self.record)


def out_of_memory(error: BaseException) -> bool:
    # Torch names this error on GPUs only; on the CPU its allocator says it in words.
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def reason(error: BaseException, source: Path) -> str:
    """Why an image failed, in words that do not repeat its path."""
    if isinstance(error, MemoryError) or out_of_memory(error):
        return "does not fit into memory; --max-pixels refuses such images beforehand."
    return shown(str(error).removeprefix(f"{source}: "))


def shown(text: object) -> str:
    """Text that any terminal takes: file names may hold bytes that are no UTF-8."""
    return str(text).encode(errors="replace").decode()
