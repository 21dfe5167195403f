"""What became of the clips of an export, in numbers and in words."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from densevit.inference.predict.summary import printable


@dataclass
class ClipSummary:
    """What became of the clips of one run."""

    clips: int
    frames: int = 0
    already: int = 0  # frames that were written before this run
    failed: dict[str, str] = field(default_factory=dict)  # clip -> what could not be read of it
    out_of_range: int = 0
    estimated: int = 0  # clips whose focal length the model estimated
    seconds: float = 0.0

    def __str__(self) -> str:
        rate = self.frames / max(self.seconds, 1e-9)
        noun = "clip" if self.clips == 1 else "clips"
        parts = [f"{self.frames:,} frames of {self.clips} {noun} in {self.seconds:.1f} s ({rate:.1f} frames/s)"]
        if self.already:
            parts.append(f"{self.already:,} were already there")
        if self.out_of_range:
            parts.append(f"{self.out_of_range:,} values beyond 16 bits became 0, not valid: change --scale")
        if self.estimated:
            parts.append(f"focal length of {self.estimated} estimated by the model")
        if self.failed:
            parts.append(f"{len(self.failed)} incomplete")
        lines = [f"  {printable(clip)}: {printable(why)}" for clip, why in self.failed.items()]
        return "\n".join([", ".join(parts) + ".", *lines])


def merge_summaries(parts: Sequence[ClipSummary]) -> ClipSummary:
    """The summary of several processes that worked at the same time."""
    return ClipSummary(
        clips=sum(part.clips for part in parts),
        frames=sum(part.frames for part in parts),
        already=sum(part.already for part in parts),
        failed={clip: why for part in parts for clip, why in part.failed.items()},
        out_of_range=sum(part.out_of_range for part in parts),
        estimated=sum(part.estimated for part in parts),
        seconds=max(part.seconds for part in parts),
    )
