"""The scores of clips, and a page with strips of frames and slices through time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from densevit.evaluation.scores import Cards, Scores
from densevit.evaluation.video.clip import METRICS, Align, Frames, VideoProtocol
from densevit.ops.colors import colorize, percentile_range
from densevit.reporting.figures import MAX_WIDTH, Figure, color_bar, jpeg, lossless, shrink
from densevit.reporting.tables import rows_csv
from densevit.structures import Row

SHOWN = 5  # frames of the strip
NOTES = {"tae": "% temporal alignment error", "flicker": "% a frame", "abs_rel": "mean over clips"}

Map = Float[np.ndarray, "h w"]


class ClipFigures(NamedTuple):
    """A clip in the report: frames side by side, and one row of pixels over time, from top to bottom."""

    name: str
    score: str
    strip: list[tuple[str, str]]
    scale: tuple[str, str, str]
    slices: list[tuple[str, str]]


@dataclass(frozen=True)
class VideoScores(Scores):
    """The scores of clips."""

    rows: Sequence[tuple[str, Row]]  # name and scores of each clip
    protocol: VideoProtocol
    align: Align  # how each clip's predictions were fitted to its ground truth
    figures: Sequence[ClipFigures] = field(default=(), repr=False)
    skipped: Sequence[str] = ()

    task = "video"
    ranking = "flicker"
    resampled = False

    @cached_property
    def mean(self) -> Row:  # type: ignore[override]
        """The mean of each metric over the clips that have it."""
        values = {name: [row[name] for _, row in self.rows if name in row] for name in METRICS}
        return {name: float(np.mean(each)) for name, each in values.items() if each}

    @property
    def protocol_text(self) -> str:
        low, high = self.protocol.range
        if self.protocol.name == "videos":
            return (
                "videos without ground truth: metres as predicted, or multiples of the median of the clip's first map."
            )
        aligned = {
            "none": "metres as predicted",
            "scale": "one scale per clip",
            "affine": "one scale and shift per clip",
        }
        how = aligned.get(self.align, "one scale and shift in disparity per clip")
        most = f"at most {self.protocol.frames} frames of a clip, " if self.protocol.frames else ""
        return f"{self.protocol.name}: {most}ground truth from {low:g} to {high:g} m, {how}."

    def formula(self, metric: str) -> str:
        return super().formula(metric) or "metres"

    @property
    def counts(self) -> dict[str, int]:  # type: ignore[override]
        return {"clips": len(self.rows), "frames": sum(int(row.get("frames", 0)) for _, row in self.rows)}

    def summary_sentence(self) -> str:
        return f"{len(self.rows)} clip{'s' * (len(self.rows) != 1)}"

    def cards(self) -> Cards:
        return [(name, f"{self.mean[name]:.4f}", note) for name, note in NOTES.items() if name in self.mean]

    def table(self) -> str:
        """Return a line per clip and the mean; for a terminal."""
        names = list(self.mean)
        width = max(4, *(len(name) for name, _ in self.rows))
        lines = [" " * width + "".join(f"{name:>14}" for name in names) + f"{'frames':>8}"]
        for name, row in [*self.rows, ("mean", self.mean)]:
            cells = "".join(f"{row[m]:14.4f}" if m in row else f"{'-':>14}" for m in names)
            frames = f"{int(row['frames']):8}" if "frames" in row else ""
            lines.append(f"{name:{width}}{cells}{frames}")
        if "tae" not in names and self.protocol.name != "videos":
            needed = "the pose and the camera of two neighbouring frames"
            lines += [
                "",
                f"No tae: it needs {needed}. `densevit check-data` counts those; --focal gives the camera.",
            ]
        return "\n".join([*lines, "", self.protocol_text])

    def entries(self) -> dict[str, Any]:
        return {"protocol": self.protocol_text, "clips": dict(self.rows)}

    def files(self) -> dict[str, str | bytes]:
        return {"per_clip.csv": rows_csv("name", ["frames", *self.mean], self.rows)}

    def page(self, figures: Sequence[Figure], baseline: Row | None) -> dict[str, Any]:
        shown = {"template": "video_report.html", "clips": self.figures}
        return {**super().page(figures, baseline), **shown, "columns": ["mean over clips"]}


def draw(name: str, row: Row, frames: Frames, move: Callable[[Map], Map], unit: str = " m") -> ClipFigures:
    """Return a strip of frames, and how the middle row of pixels changes over time: flicker shows as stripes across."""
    count = int(row["frames"])
    selected = set(np.linspace(0, count - 1, min(SHOWN, count)).astype(int).tolist())
    rows: dict[str, list[np.ndarray]] = {"image": [], "prediction": [], "ground truth": []}
    shown: list[tuple[int, Any, np.ndarray]] = []
    for position, frame in enumerate(frames()):
        values = np.asarray(move(frame.prediction))
        middle = values.shape[0] // 2
        rows["image"].append(frame.image[frame.image.shape[0] // 2])
        rows["prediction"].append(values[middle])
        if frame.depth is not None and frame.valid is not None:
            rows["ground truth"].append(np.where(frame.valid[middle], frame.depth[middle], np.nan))
        if position in selected:
            shown.append((position, frame.image, values))
    low, high = percentile_range(np.stack(rows["prediction"]))
    strip = [(f"frame {position}", jpeg(shrink(image, width=MAX_WIDTH // 2))) for position, image, _ in shown]
    strip += [
        (f"map {position}", lossless(shrink(colorize(values, low, high), width=MAX_WIDTH // 2)))
        for position, _, values in shown
    ]
    slices = [("the middle row of the video, frame by frame downwards", jpeg(np.stack(rows["image"])))]
    for what in ("prediction", "ground truth"):
        if rows[what]:
            slices.append((f"the same row of the {what}", lossless(colorize(np.stack(rows[what]), low, high))))
    score = ", ".join(f"{metric} {row[metric]:.4f}" for metric in METRICS if metric in row)
    scale = (f"{low:.3g}{unit}", color_bar("turbo"), f"{high:.3g}{unit}")
    return ClipFigures(name, score, strip, scale, slices)
