"""`recording`: sequences of a camera with measured depth, and with the times, poses and cameras that recorders write.

    ROOT/SEQUENCE/...        or ROOT itself, in one of the layouts of densevit.data.recordings.layouts
    ROOT/intrinsics.json     optional, there or in a sequence: one camera for images of which the layout has none, or
                             one of CAMERA_FILES, in a form of densevit.data.recordings.cameras

`train` and `val` are blocks of time of every sequence, with a gap between them, since neighbouring frames show the
same.
"""

import fnmatch
from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from densevit.data.datasets.base import DATASETS, DepthRange, FileDataset, Invalid, Root, folder_of, resolve_root
from densevit.data.index.paths import Listing, SampleFiles, Subset
from densevit.data.io.readers import NOT_MEASURED
from densevit.data.recordings.blocks import ValFraction, split_blocks
from densevit.data.recordings.cameras import Camera, is_camera_object, read_camera
from densevit.data.recordings.layouts import LAYOUTS, TRAJECTORIES, RecordingLayout, find_sequences
from densevit.errors import DataError
from densevit.ops.geometry import pinhole
from densevit.utils.json_files import MALFORMED, read_json

Pinhole = tuple[float, float, float, float]

CAMERA_SUFFIXES = ("json", "yaml", "yml", "xml")
CAMERA_FILES = tuple(
    f"{stem}.{suffix}"
    for stem in ("intrinsics", "cam*", "calib*", "ost", "out_camera_data")
    for suffix in CAMERA_SUFFIXES
)


@DATASETS.register("recording")
class Recording(FileDataset):
    """Recordings of a camera with depth: TUM RGB-D, 7-Scenes, ScanNet, ARKit, COLMAP and the like."""

    video = True
    depth_of_any_size = True

    def __init__(
        self,
        *,
        root: Root = None,
        sequences: tuple[str, ...] = (),
        split: Literal["all", "train", "val"] = "all",
        val_fraction: ValFraction = 0.15,
        depth_scale: Annotated[float, Field(gt=0)] | None = None,
        depth_range: DepthRange = (1e-3, 80.0),
        invalid: Invalid = NOT_MEASURED,
        camera: Pinhole | None = None,
        depth_camera: Pinhole | None = None,
        every: Annotated[int, Field(ge=1)] = 1,
        max_gap: Annotated[float, Field(ge=0)] = 0.02,
        require_depth: bool = True,
        subset: Subset = "full",
    ) -> None:
        """List and pair the frames; nothing is decoded.

        Args:
            sequences: folders of the root, in this order; none names all.
            split: part of each sequence; all takes every frame.
            val_fraction: share of `val`: the end of each sequence, and a quarter of it before is in neither.
            depth_scale: stored units per metre; default: the layout's, 5000 for tum and 1000 for others.
            depth_range: metres that the ground truth can have.
            camera: fx, fy, cx, cy of the images in pixels, where no file has them.
            depth_camera: those of the depth maps, where another camera took them.
            every: takes only every n-th frame.
            max_gap: seconds that may lie between an image and its depth or pose.
            require_depth: false takes images without depth, too.

        Raises:
            DataError: no sequence in a known layout, or a damaged one; naming the file.
        """
        self.root = resolve_root(root, "recording")
        self.depth_range, self.invalid = depth_range, invalid
        found = find_sequences(self.root)
        if sequences:
            found = [(path, layout) for name in sequences for path, layout in found if path == self.root / name]
            if len(found) < len(sequences):
                raise DataError(f"{self.root}: no sequences {', '.join(sequences)} in a known layout.")
        if not found:
            known = ", ".join(dict.fromkeys(layout.name for layout in LAYOUTS))
            raise DataError(
                f"{self.root}: no recording in a known layout ({known}); `densevit list components data_set recording`."
            )
        scales = {layout.depth_scale: f"{layout.name} {layout.depth_scale:g}" for _, layout in found}
        if len(scales) > 1 and not depth_scale:
            raise DataError(
                f"{self.root}: its sequences have several units of depth ({', '.join(scales.values())} a metre). "
                "Name those of one layout in `sequences`, or set `depth_scale` for all."
            )
        self.layouts = {layout.name for _, layout in found}
        self.depth_scale = depth_scale or found[0][1].depth_scale
        self.version = f"{self.depth_scale:g}"  # follows from the layout, which a file more can change
        samples, sources, without, listing = [], set[str](), 0, Listing()
        shared = (pinhole(*camera), "`camera`") if camera else camera_file(self.root)
        for path, layout in found:
            try:
                frames = layout.read(path, max_gap)
            except DataError:
                raise
            except MALFORMED as error:
                raise DataError(f"{path}: a damaged recording of layout {layout.name} ({error!s:.300}).") from error
            frames = [f if f.depth and f.depth in listing else replace(f, depth=None, masks=()) for f in frames]
            without += sum(frame.depth is None for frame in frames)
            frames = [frame for frame in frames if frame.depth is not None or not require_depth][::every]
            fallback, source = (None if camera else camera_file(path)) or shared or (None, "")
            other = pinhole(*depth_camera) if depth_camera else None
            prefix = path.name if path == self.root else path.relative_to(self.root).as_posix()
            walks = groupby(frames, key=lambda frame: folder_of(frame.name))  # or cameras, side by side
            blocks = [split_blocks([*walk], split, val_fraction) for _, walk in walks]
            samples += [
                replace(
                    frame, name=f"{prefix}/{frame.name}",
                    intrinsics=fallback if frame.intrinsics is None else frame.intrinsics,
                    depth_intrinsics=other if frame.depth_intrinsics is None else frame.depth_intrinsics,
                )
                for frame in chain.from_iterable(blocks)
            ]  # fmt: skip
            sources |= {source if frame.intrinsics is None else f"the files of {layout.name}" for frame in frames}
        if not samples:
            raise DataError(
                f"{self.root}: no frame of '{split}' has depth; `require_depth: false` takes them without, "
                "as recipe self_supervised/recording does."
            )
        self.split_by_fraction = split != "all"  # a sequence is then in both splits
        taken = "left out; `require_depth: false` takes them" if require_depth else "taken, too"
        unmeasured = [f"images without a depth map: {without:,}, {taken}"] if without else []
        self.facts = [*recording_facts(found, samples, split, sources, max_gap), *unmeasured]
        super().__init__(samples, subset, f"recording '{split}' in {self.root}")

    def scene(self, index: int) -> str:
        return "" if self.split_by_fraction else super().scene(index)


def recording_facts(
    found: Sequence[tuple[Path, RecordingLayout]],
    samples: Sequence[SampleFiles],
    split: str,
    sources: Set[str],
    max_gap: float,
) -> list[str]:
    """Return what was found, for `check-data`. `sources`: where cameras come from, "" where they are not known."""
    layouts = ", ".join(dict.fromkeys(layout.name for _, layout in found))
    posed, known = (sum(getattr(files, key) is not None for files in samples) for key in ("pose", "intrinsics"))
    blocks = "" if split == "all" else f"; {split} is a block of each, by time"
    camera = f"of {known:,} of them from {' and '.join(sorted(filter(None, sources)))}"
    if not known:
        camera = "unknown: write intrinsics.json or set `camera`"
    timed = any(files.time is not None for files in samples)
    trajectory = next((name for path, _ in found for name in TRAJECTORIES if (path / name).is_file()), "")
    why = f"none within `max_gap`, {max_gap:g} s" if timed else "matched by time, and the images' names are no times"
    why = f" ({trajectory}: {why})" if posed < len(samples) and trajectory else ""
    rated = sum(bool(files.masks) for files in samples)
    confidence = [f"confidence of {rated:,} depth maps; where it is 0 (low), depth is not measured"] if rated else []
    return [
        f"{len(found):,} sequences, layout {layouts}{blocks}",
        f"poses of {posed:,} of {len(samples):,} images{why}; camera {camera}",
        *confidence,
    ]


def camera_file(folder: Path) -> tuple[Camera, str] | None:
    """Return the camera in one of CAMERA_FILES of a folder, and the file's name; None where there is none."""
    names = sorted(path.name for path in folder.iterdir() if path.name.endswith(CAMERA_SUFFIXES))
    for path in (folder / name for pattern in CAMERA_FILES for name in fnmatch.filter(names, pattern)):
        if path.stem == "intrinsics" or path.suffix != ".json" or is_camera_object(read_json(path)):
            return read_camera(path), path.name
    return None
