"""What to measure, and how often."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch

from densevit.speed.reference_models import Unavailable
from densevit.utils.device import Precision

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    device: torch.device
    precision: Precision  # the number format that `auto` takes on the device
    size: str = "small"  # of the ViT: small, base or large
    sides: tuple[int, ...] = (518,)  # of square images, multiples of 14
    batches: tuple[int, ...] = (1,)
    rounds: int = 5
    images: int = 40  # of the sections that read files
    workers: int = 2
    threads: int = 1
    compile: bool = False
    depth_anything: Path | None = None  # the folder of the reference code
    # filled on the way: which other implementations are missing, and why
    absent: list[str] = field(default_factory=list)

    def network(self, patch: int = 14) -> str:
        """Return the name of the ViT, as `ViT-S/14`."""
        return f"ViT-{self.size[0].upper()}/{patch}"

    def try_build(self, build: Callable[[], T]) -> T | None:
        """Return what was built; None, with a note in `absent`, where something that it needs is not installed."""
        try:
            return build()
        except Unavailable as reason:
            if str(reason) not in self.absent:
                self.absent.append(str(reason))
            return None
