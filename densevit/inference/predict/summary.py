"""What became of the inputs of an export: in numbers and words, and output by output in `outputs.jsonl`."""

import hashlib
import json
import logging
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from densevit.data.io import images
from densevit.errors import StorageError
from densevit.inference.point_fit import PointFit
from densevit.inference.predict.inputs import list_unsupported
from densevit.utils.atomic_io import write_text
from densevit.utils.device import is_out_of_memory

SOURCES = {"given": "given", "EXIF": "from EXIF", "estimate": "estimated by the model"}
"""Where the focal length of an image is from, in words."""


class ReaderWarnings(logging.Handler):
    """What readers warn of, by path, for the summary in place of standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        path, _, message = record.getMessage().partition(": ")
        self.messages[path] = message

    def __enter__(self) -> None:
        images.log.addHandler(self)
        images.log.propagate = False

    def __exit__(self, *_: object) -> None:
        images.log.removeHandler(self)
        images.log.propagate = True


@dataclass
class Summary:
    """What became of the images, or of the frames of clips, of one run."""

    images: int  # of clips, those that were read
    clips: int | None = None  # None: single images
    done: int = 0
    already: int = 0  # complete before this run
    failed: dict[Path | str, str] = field(default_factory=dict)  # image or clip -> the reason
    warnings: dict[Path, str] = field(default_factory=dict)  # of images that were exported nevertheless
    invalid: int = 0  # pixels without a value
    out_of_range: int = 0  # valid values that 16 bits do not hold, written as 0, not valid
    cameras: Counter[str] = field(default_factory=Counter)  # images by where their focal length was taken from
    fits: list[PointFit] = field(default_factory=list)  # fits of images to their measured points
    seconds: float = 0.0
    unsupported: Mapping[str, int] = field(default_factory=dict)  # files left out, by suffix

    def __str__(self) -> str:
        noun, count = ("images", count_images(self.done)) if self.clips is None else ("frames", self.frames_of_clips())
        rate = f"{count} in {self.seconds:.1f} s ({self.done / max(self.seconds, 1e-9):.1f} {noun}/s)"
        notes = [
            f"{self.already:,} were already there" if self.already else "",
            f"{self.out_of_range:,} values beyond 16 bits became 0, not valid: change --scale"
            if self.out_of_range
            else "",
            f"{self.invalid:,} pixels without a value" if self.invalid else "",
            "focal lengths: " + ", ".join(f"{self.cameras[s]} {text}" for s, text in SOURCES.items() if self.cameras[s])
            if self.cameras
            else "",
            describe_points(self.fits) if self.fits else "",
            list_unsupported(self.unsupported) if self.unsupported else "",
            f"{len(self.failed)} {'failed' if self.clips is None else 'incomplete'}" if self.failed else "",
        ]
        lines = [f"  {printable(p)}: {printable(text)}" for p, text in [*self.warnings.items(), *self.failed.items()]]
        return "\n".join([", ".join([rate, *filter(None, notes)]) + ".", *lines])

    def frames_of_clips(self) -> str:
        return f"{self.done:,} frame{'s' * (self.done != 1)} of {self.clips} clip{'s' * (self.clips != 1)}"

    @property
    def ready(self) -> str:
        """What is complete, before this run or in it."""
        ready = self.done + self.already
        return f"{ready} frames" if self.clips is not None else f"{ready} of {self.images} images, all of them whole"


def count_images(count: int) -> str:
    return f"{count} image{'s' * (count != 1)}"


def merge_summaries(summaries: Sequence[Summary]) -> Summary:
    """Return the summary of several processes that worked at the same time."""
    counts = ("images", "done", "already", "invalid", "out_of_range")
    clips = [summary.clips for summary in summaries if summary.clips is not None]
    return Summary(
        clips=sum(clips) if clips else None,
        failed={source: why for summary in summaries for source, why in summary.failed.items()},
        warnings={source: text for summary in summaries for source, text in summary.warnings.items()},
        fits=[fit for summary in summaries for fit in summary.fits],
        cameras=sum((summary.cameras for summary in summaries), Counter()),
        seconds=max(summary.seconds for summary in summaries),
        unsupported=summaries[0].unsupported,
        **{name: sum(getattr(summary, name) for summary in summaries) for name in counts},
    )


def describe_points(fits: Sequence[PointFit]) -> str:
    """Say how far off the maps are at points, as means over the images whose points are enough to tell."""
    points = mean(fit.points for fit in fits)
    count = f"{points:.0f} point{'s' * (points > 1)} an image"
    errors = [fit.error for fit in fits if fit.error is not None]
    if not errors:
        return f"{count}, too few to tell how far off the maps are"
    off = f"off by {mean(errors):.1%}"
    if fits[0].is_input:
        return f"{count}, an input of the model; its maps are {off} at them"
    between = mean(fit.interpolation for fit in fits if fit.interpolation is not None)
    return f"{count}; {off} at points that are left out, where interpolation without the model is off by {between:.1%}"


def failure_reason(error: BaseException, source: Path) -> str:
    """Return why an image failed, without its path."""
    if is_out_of_memory(error):
        return "does not fit into memory; --max-pixels refuses such images beforehand."
    return printable(str(error).removeprefix(f"{source}: "))


def printable(text: object) -> str:
    """Return the text that any terminal takes: file names may hold bytes that are no UTF-8."""
    return str(text).encode(errors="replace").decode()


LEDGER, JOURNALS = "outputs.jsonl", ".outputs-*.jsonl"
Rows = dict[str, tuple[str, Any]]
"""File, relative to the folder -> the hash of the settings, and what tells its input."""


@dataclass(frozen=True)
class Ledger:
    """`outputs.jsonl`: the settings and the input that every output in a folder was made from, by their hashes.

    Only what a row names is taken for done by `--resume`. A row is written after its file, and removed before it, so a
    row never outlives the file it is of. Each exporter appends to a journal of its own; they are merged at the end.
    """

    folder: Path
    settings: str
    token: str = field(default_factory=lambda: secrets.token_hex(4))

    def name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()

    def read(self) -> Rows:
        """Return all rows; a line that a killed process left half written counts for nothing."""
        rows: Rows = {}
        for path in [self.folder / LEDGER, *sorted(self.folder.glob(JOURNALS))]:
            lines: list[bytes] = []
            with suppress(FileNotFoundError):  # another export may just have joined this journal to the ledger
                lines = path.read_bytes().splitlines()
            for line in lines:
                with suppress(ValueError, TypeError, KeyError):
                    row = json.loads(line)
                    rows[str(row["file"])] = (row["settings"], row["input"])
        return rows

    def write(self, rows: Rows) -> None:
        """Replace all rows, and remove the journals."""
        lines = [json.dumps({"file": f, "settings": s, "input": i}) + "\n" for f, (s, i) in sorted(rows.items())]
        journals = list(self.folder.glob(JOURNALS))
        write_text(self.folder / LEDGER, "".join(lines))
        for path in journals:
            path.unlink(missing_ok=True)

    def add(self, path: Path, source: Any) -> None:
        """Note a file that is complete, and what tells its input."""
        row = {"file": self.name(path), "settings": self.settings, "input": source}
        try:
            with open(self.folder / JOURNALS.replace("*", self.token), "a", encoding="ascii") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot be written ({error.strerror}).") from error


def hash_of(tree: Mapping[str, Any] | list[Any]) -> str:
    """Return a hash of JSON."""
    return hashlib.sha256(json.dumps(tree).encode()).hexdigest()[:32]
