"""The interface of experiment trackers, and their registry."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from densevit.registry import Registry

PROJECT = "densevit"


class Tracker(ABC):
    """Takes the config of a run and its scalars, in the order of the steps.

    A subclass imports its package in `start`; the keyword-only parameters of its `__init__` are its options.
    """

    package: str

    @abstractmethod
    def start(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        """
        Args:
            folder: of the run.
            name: of the run.
            config: with every default, by dotted key.
        """

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Values by name, as `train/loss`."""

    @abstractmethod
    def finish(self) -> None:
        """Ends the run."""


TRACKERS = Registry[Tracker]("tracker")
