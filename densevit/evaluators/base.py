"""What every evaluation has, whatever was predicted: scores, intervals, a table, a report."""

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from densevit.data.datasets.base import Dataset
from densevit.reporting.tables import Interval
from densevit.structures import Row


@dataclass(frozen=True, kw_only=True)
class Evaluation(ABC):
    """The scores of one set of predictions for a data set; `print` shows them, `report` writes them.

    Attributes:
        data: the images and their ground truth.
        seconds: that the model took for each image; empty for saved maps.
        card: the checkpoint's description of itself; empty for saved maps.
        title: of the report.
        source: what was evaluated and how, as plain values; goes into metrics.json.
    """

    data: Dataset = field(repr=False)
    seconds: Sequence[float] = field(default=(), repr=False)
    card: Mapping[str, Any] = field(default_factory=dict, repr=False)
    title: str = ""
    source: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    @abstractmethod
    def scores(self) -> Row:
        """Metric -> value over the data set; with several protocols `PROTOCOL/METRIC`."""

    @property
    @abstractmethod
    def intervals(self) -> Mapping[str, Interval]:
        """Metric -> ends of its 95% bootstrap interval over images; empty for few images."""

    @property
    @abstractmethod
    def per_image(self) -> Sequence[tuple[str, Row]]:
        """Name and scores of each image that was scored."""

    @abstractmethod
    def summary(self) -> str:
        """The scores as a table for a terminal."""

    @abstractmethod
    def write_report(self, folder: Path, *, title: str, source: Mapping[str, Any]) -> list[Path]:
        """Writes metrics.json and tables as CSV; of maps also report.html.

        Args:
            source: what was evaluated and how, as plain values.
        """

    def report(self, folder: str | Path) -> list[Path]:
        """Writes metrics.json, per_image.csv and, of maps, report.html; returns their paths.

        Raises:
            StorageError: the folder cannot be made or written to.
        """
        return self.write_report(Path(folder), title=self.title, source=self.source)

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        """The scores as Jupyter shows them."""
        rows = ""
        for name, value in self.scores.items():
            low, high = self.intervals.get(name, (None, None))
            spread = "" if low is None else f"{low:.4f} to {high:.4f}"
            rows += f"<tr><td>{html.escape(name)}</td><td>{value:.4f}</td><td>{spread}</td></tr>"
        head = "<tr><th></th><th>score</th><th>95% over images</th></tr>" if self.intervals else ""
        return f"<b>{html.escape(self.title)}</b><table>{head}{rows}</table>"
