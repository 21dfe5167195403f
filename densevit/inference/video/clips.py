"""The clips of an export, with the names of their outputs, and the files that each will become."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from densevit.data.index.paths import tell_apart
from densevit.data.io.video import CAMERA, VIDEO_SUFFIXES, TimeSpan, VideoSource, open_video
from densevit.errors import ConfigError, DataError
from densevit.inference.camera import Intrinsics, Lens
from densevit.inference.predict.inputs import is_video, videos_in
from densevit.inference.predict.output_plan import Existing, ExportPlan
from densevit.inference.video.formats import ClipFormat
from densevit.inference.writers.base import MapWriter
from densevit.utils.json_files import MALFORMED

TIMES = "times.csv"
PROGRESS = "progress.json"


@dataclass(frozen=True, eq=False)
class Clip:
    """One clip to export."""

    input: str  # path or camera, as the user named it
    name: str  # of its outputs
    source: VideoSource


def find_clips(inputs: Sequence[str], rate: float) -> list[Clip]:
    """Return the video files, folders of video files, folders of frames, cameras. `rate`: frames per second of folders
    of frames. Raises DataError if an input does not exist, or is an image."""
    expanded = [
        str(path)
        for source in inputs
        for path in (videos_in(Path(source)) if Path(source).is_dir() and is_video(source) else [source])
    ]
    for source in expanded:
        if Path(source).is_file() and Path(source).suffix.lower() not in VIDEO_SUFFIXES:
            raise DataError(
                f"{source}: is no video. Options and formats of videos, as --stabilize and mp4, are for videos, "
                "folders of frames and camera:0; give images by themselves."
            )
    expanded = list(dict.fromkeys(expanded))
    full = tell_apart([clip_name(source) for source in expanded], [Path(source).name for source in expanded])
    if twice := [name for name, count in Counter(full).items() if count > 1]:
        raise DataError(f"several clips are called {twice[0]}; export them into folders of their own.")
    return [Clip(source, name, open_video(source, rate)) for source, name in zip(expanded, full, strict=True)]


def clip_name(source: str) -> str:
    if source.startswith(CAMERA):
        return source.replace(":", "")
    path = Path(source).absolute()
    return path.name if path.is_dir() else path.stem


@dataclass(frozen=True)
class ClipPlan(ExportPlan):
    """Which clips become which files."""

    clips: Sequence[Clip]
    writers: Mapping[str, MapWriter]  # formats of single frames, written into a folder of the clip's name
    clip_formats: Mapping[str, ClipFormat]  # formats of whole clips
    folder: Path
    span: TimeSpan = TimeSpan()  # noqa: RUF009  frozen
    stabilize: Mapping[str, Any] | None = None  # None, or the options of the stabiliser
    intrinsics: Intrinsics | Lens | None = None

    @property
    def formats(self) -> Mapping[str, Any]:
        return {**self.writers, **self.clip_formats}

    def path(self, clip: Clip, format: str) -> Path:
        return self.folder / (clip.name + self.clip_formats[format].suffix)

    def frame_path(self, clip: Clip, name: str, format: str) -> Path:
        return self.folder / clip.name / (name + self.writers[format].suffix)

    def finals(self, clip: Clip) -> list[Path]:
        """Return the files that are there when a clip is complete."""
        times = [self.folder / clip.name / TIMES] if self.writers else []
        return [*(self.path(clip, format) for format in self.clip_formats), *times]

    def work(self, clip: Clip) -> Path:
        """Return the folder of what is under way."""
        return self.folder / f".{clip.name}.parts"

    def is_complete(self, clip: Clip) -> bool:
        return all(path.exists() for path in self.finals(clip))

    def __str__(self) -> str:
        return f"{len(self.clips)} clip{'s' * (len(self.clips) != 1)}"

    def inputs(self) -> set[Path]:
        return {Path(clip.input).absolute() for clip in self.clips}

    def units(self) -> Iterator[tuple[Any, list[Path]]]:
        return ((clip, self.finals(clip)) for clip in self.clips)

    def digest(self, unit: Clip) -> Any:
        return unit.source.digest()

    def frames(self, times: Path, writer: MapWriter) -> Iterator[Path]:
        """Return the files of the single frames that a file of times lists."""
        rows = times.read_text(errors="replace").splitlines()[1:] if times.exists() else ()
        return (times.parent / (row.rpartition(",")[0] + writer.suffix) for row in rows)

    def maps(self, format: str) -> Iterator[Path]:
        folders = (self.folder / clip.name for clip in self.clips)
        return (path for folder in folders for path in self.frames(folder / TIMES, self.writers[format]))

    def discard(self, path: Path) -> None:
        """Remove an earlier output; with the times of single frames those frames, too."""
        if path.name == TIMES:
            for frame in (frame for writer in self.writers.values() for frame in self.frames(path, writer)):
                frame.unlink(missing_ok=True)
        super().discard(path)

    def unfinished(self) -> list[Path]:
        return [self.work(clip) for clip in self.clips]

    def settings(self, formats: Mapping[str, Any], batch_size: int) -> dict[str, Any]:
        return {
            "intrinsics": self.intrinsics and asdict(self.intrinsics),
            "formats": formats,
            "span": asdict(self.span),
            "stabilize": self.stabilize and dict(self.stabilize),
            "batch_size": batch_size,
        }

    def check(self, existing: Existing = "refuse") -> None:  # a format may need a camera of every head
        for format, writer in self.writers.items():
            if writer.needs_intrinsics:
                self.check_cameras(format)
        super().check(existing)

    def check_cameras(self, format: str) -> None:
        if self.intrinsics is None:
            raise ConfigError(f"format {format}: give the camera by --fov, --focal or --intrinsics.")


@dataclass
class ClipProgress:
    """How far a clip is written."""

    made_from: str = ""  # the settings and the clip, by their hashes
    frames: int = 0  # of the source, those that could not be read included
    segments: int = 0  # that are complete
    times: list[float] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    coding: dict[str, Any] | None = None  # of 16-bit segments, once the first map is known
    out_of_range: int = 0
    size: list[int] = field(default_factory=list)
    focal: float | None = None  # of all frames, in pixels, where the model estimated it in the first

    @classmethod
    def read(cls, path: Path, made_from: str) -> "ClipProgress":
        """Return what is noted; nothing where it is damaged, or of another clip or model."""
        with suppress(OSError, *MALFORMED):
            noted = cls(**json.loads(path.read_text()))
            if noted.made_from == made_from:
                return noted
        return cls(made_from)
