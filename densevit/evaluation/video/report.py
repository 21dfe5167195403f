"""The report of a video evaluation: a table, JSON, CSV, and a page with strips of frames and slices through time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from densevit.evaluation.video.clip import METRICS, Align, Frames, VideoProtocol, mean_scores
from densevit.evaluation.video.metrics import FORMULAE
from densevit.ops.colormap import colorize, percentile_range
from densevit.reporting.figures import MAX_WIDTH, jpeg, lossless, shrink
from densevit.reporting.html_page import write_evaluation_page
from densevit.reporting.tables import csv_text, json_text, write_files
from densevit.structures import Row
from densevit.version import versions

SHOWN = 5  # frames of the strip
BETTER_LARGER = ("d1", "rtc")
NOTES = {"tae": "% temporal alignment error", "flicker": "% a frame", "abs_rel": "mean over clips"}

Map = Float[np.ndarray, "h w"]


class ClipPictures(NamedTuple):
    """A clip in the report: frames side by side, and one row of pixels over time, from top to bottom."""

    name: str
    score: str
    strip: list[tuple[str, str]]
    slices: list[tuple[str, str]]


@dataclass(frozen=True)
class VideoEvaluation:
    """The scores of clips.

    Attributes:
        clips: name and scores of each.
        align: how each clip's predictions were fitted to its ground truth.
    """

    clips: Sequence[tuple[str, Row]]
    protocol: VideoProtocol
    align: Align
    pictures: Sequence[ClipPictures] = field(default=(), repr=False)

    @property
    def scores(self) -> Row:
        """The mean of each metric over the clips that have it."""
        return mean_scores([row for _, row in self.clips])

    def summary(self) -> str:
        """A line per clip and the mean; for a terminal."""
        names = list(self.scores)
        width = max(4, *(len(name) for name, _ in self.clips))
        lines = [" " * width + "".join(f"{name:>14}" for name in names) + f"{'frames':>8}"]
        for name, row in [*self.clips, ("mean", self.scores)]:
            cells = "".join(f"{row[m]:14.4f}" if m in row else f"{'-':>14}" for m in names)
            frames = f"{int(row['frames']):8}" if "frames" in row else ""
            lines.append(f"{name:{width}}{cells}{frames}")
        return "\n".join([*lines, "", self.describe()])

    def describe(self) -> str:
        low, high = self.protocol.range
        if self.protocol.name == "films":
            return "films: no ground truth; maps as predicted, without unit in medians of the first."
        aligned = {
            "none": "metres as predicted",
            "scale": "one scale per clip",
            "affine": "one scale and shift per clip",
        }
        how = aligned.get(self.align, "one scale and shift in disparity per clip")
        most = f"at most {self.protocol.frames} frames of a clip, " if self.protocol.frames else ""
        return f"{self.protocol.name}: {most}ground truth from {low:g} to {high:g} m, {how}."

    def write_report(self, folder: Path, *, title: str, source: Mapping[str, Any]) -> list[Path]:
        """Writes metrics.json, per_clip.csv and report.html.

        Args:
            source: what was evaluated and how, as plain values.
        """
        tree = {
            "protocol": self.describe(), "metrics": self.scores, "clips": dict(self.clips), "source": dict(source),
            "versions": versions(),
        }  # fmt: skip
        columns = ["frames", *self.scores]
        rows = [[name, *(repr(row[c]) if c in row else "" for c in columns)] for name, row in self.clips]
        content = {"metrics.json": json_text(tree), "per_clip.csv": csv_text([["name", *columns], *rows])}
        written = write_files(folder, content)
        scores = self.scores
        metrics = [
            (f"{name} {'↑' if name in BETTER_LARGER else '↓'}", [f"{scores[name]:.4f}"], FORMULAE.get(name, "metres"))
            for name in METRICS
            if name in scores
        ]
        cards = [(name, f"{scores[name]:.4f}", NOTES[name])
                 for name in ("tae", "flicker", "abs_rel") if name in scores]  # fmt: skip
        page = write_evaluation_page(
            folder / "report.html", template="video_report.html", title=title, cards=cards,
            subtitle=f"{len(self.clips)} clips", columns=["mean over clips"], metrics=metrics, clips=self.pictures,
            protocol=self.describe(),
        )  # fmt: skip
        return [*written, page]


def draw(name: str, row: Row, frames: Frames, move: Callable[[Map], Map]) -> ClipPictures:
    """A strip of frames, and how the middle row of pixels changes over time: flicker shows as stripes across."""
    count = int(row["frames"])
    chosen = set(np.linspace(0, count - 1, min(SHOWN, count)).astype(int).tolist())
    rows: dict[str, list[np.ndarray]] = {"image": [], "prediction": [], "ground truth": []}
    kept: list[tuple[int, Any, np.ndarray]] = []
    for position, frame in enumerate(frames()):
        values = np.asarray(move(frame.prediction))
        middle = values.shape[0] // 2
        rows["image"].append(frame.image[frame.image.shape[0] // 2])
        rows["prediction"].append(values[middle])
        if frame.depth is not None and frame.valid is not None:
            rows["ground truth"].append(np.where(frame.valid[middle], frame.depth[middle], np.nan))
        if position in chosen:
            kept.append((position, frame.image, values))
    low, high = percentile_range(np.stack(rows["prediction"]))
    strip = [(f"frame {position}", jpeg(shrink(image, width=MAX_WIDTH // 2))) for position, image, _ in kept]
    strip += [
        (f"map {position}", lossless(shrink(colorize(values, low, high), width=MAX_WIDTH // 2)))
        for position, _, values in kept
    ]
    slices = [("the middle row of the film, frame by frame downwards", jpeg(np.stack(rows["image"])))]
    for what in ("prediction", "ground truth"):
        if rows[what]:
            slices.append((f"the same row of the {what}", lossless(colorize(np.stack(rows[what]), low, high))))
    score = ", ".join(f"{metric} {row[metric]:.4f}" for metric in METRICS if metric in row)
    return ClipPictures(name, score, strip, slices)
