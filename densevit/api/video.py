"""`export_video`: depth of clips as videos, arrays or a file a frame."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from densevit.api.export import Formats, build_writer, find_model, run_export, with_options
from densevit.data.io.video import Span
from densevit.inference.camera import Intrinsics, Lens
from densevit.inference.predict.output_plan import Existing
from densevit.inference.predict.summary import Summary
from densevit.inference.predictor import Predictor
from densevit.inference.video.clips import ClipPlan, find_clips
from densevit.inference.video.export import ClipExporter
from densevit.inference.video.formats import CLIP_FORMATS, ClipFormat
from densevit.inference.writers import MapWriter


def export_video(
    model: Predictor | str | Path,
    clips: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    formats: str | Sequence[str] | Formats = ("mp4", "ffv1"),
    heads: Sequence[str] = (),
    existing: Existing = "refuse",
    stabilize: bool = False,
    lookahead: int = 6,
    fuse: bool = True,
    start: float = 0.0,
    end: float | None = None,
    every: int = 1,
    fps: float = 30.0,
    intrinsics: Sequence[float] | None = None,
    fov: float | None = None,
    workers: int = 2,
    **options: Any,
) -> Summary:
    """Writes the depth of videos, folders of frames and cameras, as `densevit export-depth` does.

    >>> densevit.export_video("runs/mine", "film.mp4", "maps", stabilize=True)  # doctest: +SKIP

    Args:
        model: a checkpoint's path, or a `Predictor`.
        clips: video files, folders of them or of frames, `camera:0`.
        output: the folder to write to.
        formats: mp4, ffv1, npz_clip, h5_clip, and those of images, a file a frame; a dict gives options.
        heads: which to write, where the model has several that a format is for.
        existing: what to do where outputs are there: refuse, overwrite, or resume.
        stabilize: bring each map to the running scale of its neighbours.
        lookahead: later frames that this uses; 0 for a camera.
        fuse: with `stabilize`, average static parts per pixel, too.
        start, end, every: seconds to begin and end at, and every how many frames.
        fps: frames per second of folders of frames.
        intrinsics: fx, fy, cx, cy of the frames, in pixels.
        fov: horizontal field of view in degrees, in place of `intrinsics`.
        workers: threads that encode single frames.
        options: of `densevit.load`, for a path.

    Returns:
        counts of clips and frames; `print` shows them.

    Raises:
        ConfigError, DataError, StorageError: before anything is written.
        PartialError: some clips could not be read, or not to their end; what was read is written.
        Preempted: Ctrl-C or SIGTERM; existing="resume" goes on.
    """
    given = [clips] if isinstance(clips, str | Path) else list(clips)
    camera = Lens(fov=fov) if fov is not None else intrinsics
    chosen = {"future": lookahead, "fuse": fuse} if stabilize else None
    span = Span(start, end, every)
    plan = plan_clips(list(map(str, given)), Path(output), with_options(formats), camera, existing, span, chosen, fps)
    ready, device = find_model(model, options)
    return run_export(plan, ready, device, ClipExporter, heads=heads, existing=existing, workers=workers)


def plan_clips(
    inputs: Sequence[str],
    output: Path,
    formats: Formats,
    camera: Sequence[float] | Lens | None,
    existing: Existing,
    span: Span,
    stabilize: Mapping[str, Any] | None,
    fps: float,
) -> ClipPlan:
    """What to write where, checked before the model loads; see `export_video`."""
    clip_formats: dict[str, ClipFormat] = {}
    writers: dict[str, MapWriter] = {}
    for name, options in formats.items():
        if name in CLIP_FORMATS.components:
            clip_formats[name] = CLIP_FORMATS.check({"type": name, **options}, f"--format {name}").build()
        else:
            writers[name] = build_writer(name, options)
    lens = Intrinsics(camera[0], camera[1], camera[2], camera[3]) if isinstance(camera, Sequence) else camera
    plan = ClipPlan(find_clips(inputs, fps), writers, clip_formats, output.absolute(), span, stabilize, lens)
    plan.check(existing)
    return plan
