"""The scores of surface normals."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from densevit.evaluation.bootstrap import no_interval_reason
from densevit.evaluation.normals.protocol import NormalsProtocol
from densevit.evaluation.scores import Cards, Scores
from densevit.reporting.figures import Figure
from densevit.structures import Row


@dataclass(frozen=True)
class NormalsScores(Scores):
    """The scores of a data set."""

    protocol: NormalsProtocol
    rows: Sequence[tuple[str, Row]]
    mean: Row  # of the data set, as the protocol pools it
    skipped: Sequence[str]
    pixels: int  # that were scored

    task = "normals"
    ranking = "mean"
    width = 13

    @property
    def resampled(self) -> bool:  # type: ignore[override]
        return self.protocol.pool != "pixels"

    @property
    def name(self) -> str:
        return self.protocol.name

    @property
    def protocol_text(self) -> str:
        return f"{self.name}: {self.protocol.description} ({self.protocol.source}); degrees and percent"

    @property
    def counts(self) -> dict[str, int]:  # type: ignore[override]
        return {"images": len(self.rows) + len(self.skipped), "scored": len(self.rows), "pixels": self.pixels}

    def summary_sentence(self) -> str:
        images = len(self.rows) + len(self.skipped)
        parts = [f"{len(self.rows):,} of {images:,} images scored, {self.pixels:,} pixels"]
        parts += [f"{len(self.skipped):,} without true normals"] if self.skipped else []
        parts += no_interval_reason(len(self.rows)) if self.protocol.pool == "images" else []
        return "; ".join(parts) + "."

    def cards(self) -> Cards:
        return [
            ("Mean angle", f"{self.mean['mean']:.2f}°", "of the pixels, to the truth"),
            ("Median angle", f"{self.mean['median']:.2f}°", "of the pixels"),
            ("Within 11.25°", f"{self.mean['within_11.25']:.1f}%", "of the pixels"),
        ]

    def entries(self) -> dict[str, Any]:
        return {"protocol": asdict(self.protocol)}

    def page(self, figures: Sequence[Figure], baseline: Row | None) -> dict[str, Any]:
        note = "Normals in camera axes: red is to the right, green up, blue towards the camera."
        return {**super().page(figures, baseline), "note": note}
