"""What stands behind `predict`: plans that are checked before the model loads, and runs of them."""

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from math import inf
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from densevit import api
from densevit.api.checkpoint import as_names, card_before_loading, make_lens, packaged_model
from densevit.data.index.matching import IMAGE_SUFFIXES
from densevit.data.io.video import FrameFolder, TimeSpan
from densevit.errors import ConfigError, DataError, Preempted
from densevit.inference.backends.auto import sampled_sizes
from densevit.inference.camera import Intrinsics, Lens, check_camera
from densevit.inference.choose_runtime import choose_runtime
from densevit.inference.predict.cameras import is_one_camera, plan_cameras, resolve_cameras, size_of
from densevit.inference.predict.inputs import find_items, is_video, paths_of
from densevit.inference.predict.output_plan import Existing, ExportPlan, OutputPlan
from densevit.inference.predict.pipeline import Exporter, ImageExporter
from densevit.inference.predict.point_files import PointFiles
from densevit.inference.predict.summary import Summary
from densevit.inference.predictor import Predictor
from densevit.inference.video.clips import ClipPlan, find_clips
from densevit.inference.video.export import ClipExporter
from densevit.inference.video.formats import CLIP_FORMATS, ClipFormat
from densevit.inference.writers import DEPTH_FORMATS, LABEL_FORMATS, MapWriter
from densevit.model_card import ModelCard
from densevit.registry import Registry, did_you_mean, schema
from densevit.utils.docstrings import defaults, flag
from densevit.utils.network import is_address
from densevit.utils.process import interruptible
from densevit.utils.process_group import process_group

PATIENCE = timedelta(days=7)  # what one process of several may wait for the slowest at the end

REGISTRIES: tuple[Registry[Any], ...] = (DEPTH_FORMATS, LABEL_FORMATS, CLIP_FORMATS)
Formats = Mapping[str, Mapping[str, Any]]
"""Format -> its options."""


USUAL: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("metric", "affine", "disparity"), ("png16",)),
    "labels": ("labels", "overlay"),
    "normals": ("normals",),
    "panoptic": ("panoptic", "segments"),
    "instances": ("coco", "segments"),
}
"""By kind of a head, the formats that are written where none is named."""
USUAL_OF_VIDEOS = ("mp4", "ffv1")
FIRST_LOOK = ("png16", "color", "overlay", "normals")  # of the model of the package


def predict(
    model: Predictor | str | Path,
    inputs: Sequence[str | Path] | str | Path,
    output: str | Path,
    *,
    formats: Sequence[str] | Formats,
    heads: Sequence[str],
    overwrite: bool,
    resume: bool,
    intrinsics: Sequence[float] | Path | str | None,
    points: Path | str | PointFiles | None,
    points_scale: float | None,
    points_pose: Path | str | None,
    workers: int | None,
    max_pixels: int | None,
    options: Mapping[str, Any],
    **others: Any,
) -> Summary:
    """Write maps; see `densevit.predict`. `others`: of videos, as `plan_clips` takes them, and of formats."""
    named, heads = paths_of(inputs), as_names(heads)
    if not isinstance(model, Predictor) and (not named or is_image(model)):
        if is_address(model) or card_before_loading(model) is not None:
            raise ConfigError(f"predict: {model} is a model; name images or videos after it.")
        model, named = packaged_model(), paths_of([model, *named])
        formats = formats or (() if heads or is_video(str(named[0])) else FIRST_LOOK)
    formats = as_names(formats)
    existing = existing_rule(overwrite=overwrite, resume=resume)
    videos = {name: others.pop(name) for name in defaults(plan_clips)}
    options = {**options}
    fov = options.pop("fov", None)  # a camera of the images, also for a `Predictor`
    camera = camera_of(intrinsics, options.get("focal"), fov)
    if camera is None and isinstance(model, Predictor):
        own = model.cameras.override
        camera = own if isinstance(own, Lens) else camera_of(None, own, None)
    format_options = {name: value for name, value in others.items() if value is not None}
    measured = point_files(points, points_scale, points_pose)
    ready, device = find_model(model, options)
    work: dict[str, Any] = {"heads": heads, "existing": existing, "workers": workers or min(8, os.cpu_count() or 1)}
    asked = any(videos[name] != default for name, default in defaults(plan_clips).items())
    clips = asked or set(formats) & set(CLIP_FORMATS.components)
    if clips or any(is_video(str(source)) for source in named):
        refuse_for_videos(camera, points, max_pixels)
        lens = Intrinsics.of_file(camera) if isinstance(camera, Path) else camera
        requested = with_options(formats or USUAL_OF_VIDEOS, format_options)
        clip_plan = plan_clips(list(map(str, named)), Path(output), requested, lens, existing, **videos)
        return run_export(clip_plan, ready, device, ClipExporter, **work)

    def plan(card: ModelCard | None) -> OutputPlan:
        requested = with_options(formats or usual_formats(card, heads), format_options)
        return plan_export(named, Path(output), requested, camera, existing, measured)

    card = card_before_loading(model)
    planned = plan(card) if formats or card is not None else plan
    return run_export(planned, ready, device, ImageExporter, max_pixels=max_pixels, **work)


def is_image(path: str | Path) -> bool:
    """Return whether a path names an image or a video, not a model."""
    return Path(path).suffix.lower() in IMAGE_SUFFIXES or is_video(str(path))


def existing_rule(*, overwrite: bool, resume: bool) -> Existing:
    """Raise ConfigError if both are asked for."""
    if overwrite and resume:
        raise ConfigError("--overwrite and --resume: choose one; resume writes only the files that are missing.")
    return "overwrite" if overwrite else "resume" if resume else "refuse"


def camera_of(intrinsics: Any, focal: Any, fov: float | None) -> Sequence[float] | Path | Lens | None:
    """Return the camera that one of the three gives; None where none does. Raises ConfigError if several are given, or
    the number makes no camera."""
    if sum(camera is not None for camera in (intrinsics, focal, fov)) > 1:
        raise ConfigError("--intrinsics: give the camera as one of --focal, --fov and --intrinsics.")
    if intrinsics is not None and not isinstance(intrinsics, str | Path):
        numbers: list[float] = np.asarray(intrinsics, object).ravel().tolist()
        if len(numbers) != 4 or not all(isinstance(x, Real) and 0 < x < inf for x in numbers):
            raise ConfigError(f"--intrinsics: fx, fy, cx, cy in pixels above 0; got {intrinsics}.")
        return numbers
    if focal is None and fov is None:
        return Path(intrinsics) if isinstance(intrinsics, str) else intrinsics
    if isinstance(focal, Sequence):
        check_camera(focal)
        if len(focal) == 4:
            return focal
        along_x, along_y = (make_lens(length) for length in (focal[0], focal[-1]))
        return replace(along_x, focal_y=None if along_y == along_x else along_y.focal)
    return make_lens(focal, fov)


def point_files(path: Any, scale: float | None, pose: Path | str | None) -> PointFiles | None:
    """Raise ConfigError: options of points without any. Raises DataError: no such file."""
    if path is None and (scale is not None or pose is not None):
        raise ConfigError("--points-scale and --points-pose belong to --points.")
    if path is None or isinstance(path, PointFiles):
        return path
    files = PointFiles(Path(path), scale, None if pose is None else Path(pose))
    for file in (files.path, files.pose):
        if file is not None and not file.exists():
            raise DataError(f"--points: {file}: no such file or folder.")
    return files


def refuse_for_videos(camera: Any, points: Any, max_pixels: int | None) -> None:
    """Raise ConfigError: options that are for images."""
    table = isinstance(camera, Path) and not is_one_camera(camera)
    problems = ["--intrinsics: a clip has one camera; give FX,FY,CX,CY or its calibration."] if table else []
    problems += ["--points: is for images."] if points is not None else []
    problems += ["--max-pixels: is for images."] if max_pixels is not None else []
    if problems:
        raise ConfigError(*problems)


def usual_formats(card: ModelCard | None, heads: Sequence[str]) -> list[str]:
    """Return the formats that are written of a model where none is named. Raises ConfigError if no head gives maps."""
    assert card is not None
    selected = [card.head(name) for name in heads]
    kinds = [spec.kind for name, spec in card.outputs.items() if not selected or name in selected]
    formats = list(dict.fromkeys(format for kind in kinds for format in USUAL.get(kind, ())))
    if not formats:
        what = ", ".join(selected or card.outputs) or "an encoder without heads"
        raise ConfigError(f"predict: there is no map to write from {what}.")
    return formats


def with_options(formats: Sequence[str] | Formats, options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return formats with those of the options that each has. `formats`: names, or name -> options of its own. Raises
    ConfigError if an option that no requested format has."""
    overrides = formats if isinstance(formats, Mapping) else {}
    allowed = {name: options_of_format(name) for name in formats}
    if foreign := [option for option in options if not any(option in has for has in allowed.values())]:
        every = {name: options_of_format(name) for registry in REGISTRIES for name in registry.components}
        owners = {option: " or ".join(name for name, has in every.items() if option in has) for option in foreign}
        raise ConfigError(*(f"{flag(o)} is for {names}, which --formats does not name." for o, names in owners.items()))
    if wrong := [name for name, own in overrides.items() if not isinstance(own, Mapping)]:
        raise ConfigError(*(f"--formats {name}: its options are a dict, got {overrides[name]!r}." for name in wrong))
    shared = {name: {key: value for key, value in options.items() if key in has} for name, has in allowed.items()}
    return {name: {**values, **overrides.get(name, {})} for name, values in shared.items()}


def options_of_format(format: str) -> Collection[str]:
    """Return the options of a format; none of one that does not exist, which is reported where it is built."""
    component = next((r.components[format] for r in REGISTRIES if format in r.components), None)
    return () if component is None else schema(component).model_fields


def find_model(model: Predictor | str | Path, options: Mapping[str, Any]) -> tuple[Callable[[str], Predictor], str]:
    """Return what makes the predictor of a process from its device, and the device that they ask for. Raises
    ConfigError: options, and the model is loaded already."""
    if isinstance(model, Predictor):
        if options:
            raise ConfigError(f"predict: {', '.join(options)}: options of a checkpoint's path; this is a Predictor.")
        return lambda device: model, str(model.device)
    return lambda device: api.load(model, **{**options, "device": device}), device_for(options)


def device_for(options: Mapping[str, Any]) -> str:
    """Return the device: of those that compute, only torch takes another device than the CPU by itself."""
    device = str(options.get("device", "auto"))
    return "cpu" if options.get("runtime", "torch") not in ("torch", "auto") and device == "auto" else device


def plan_export(
    images: Sequence[str | os.PathLike[str]],
    output: Path,
    formats: Formats,
    intrinsics: Sequence[float] | Path | Lens | None = None,
    existing: Existing = "refuse",
    points: PointFiles | None = None,
) -> OutputPlan:
    """Return what to write where, checked before the model loads; see `densevit.predict`."""
    writers = {name: build_writer(name, options) for name, options in formats.items()}
    selection = find_items(images, [writer.suffix for writer in writers.values()], output)
    exif = any(writer.needs_intrinsics for writer in writers.values()) or points is not None
    items = selection.items if intrinsics is None and not exif else plan_cameras(selection.items, intrinsics)
    plan = OutputPlan(items, writers, output.absolute(), selection.unsupported, points)
    plan.check(existing)
    if points is not None:
        points.check(items)
    return plan


def build_writer(format: str, options: Mapping[str, Any]) -> MapWriter:
    known = [name for registry in REGISTRIES for name in registry.components]
    if format not in known:
        raise ConfigError(f"--formats: no format '{format}'.{did_you_mean(format, known)}")
    registry = LABEL_FORMATS if format in LABEL_FORMATS.components else DEPTH_FORMATS
    return registry.check({"type": format, **options}, f"--formats {format}").build()


def run_export(
    plan: ExportPlan | Callable[[ModelCard], ExportPlan],
    ready: Callable[[str], Predictor],
    device: str,
    build: type[Exporter],
    *,
    existing: Existing = "refuse",
    **options: Any,
) -> Summary:
    """Write a plan, alone or as one of torchrun's processes.

    Args:
        plan: or what makes it, where it depends on the model.
        ready: the device of this process -> the model on it.
        build: the exporter, of images or of clips.
        options: of the exporter.
    """
    with interruptible() as stop, process_group(device, patience=PATIENCE) as world:
        predictor = ready(str(world.device))
        plan = plan if isinstance(plan, ExportPlan) else plan(predictor.card)
        if isinstance(plan, OutputPlan) and (predictor.card.needs_camera or predictor.card.fov is not None):
            plan = replace(plan, items=resolve_cameras(plan.items, predictor.cameras))
        if stop.is_set():
            raise Preempted("stopped before anything was written.")
        if predictor.runtime == "auto" and isinstance(plan, OutputPlan):
            before = plan.recorded("runtime", "torch") if existing == "resume" else None
            undecided, items = predictor, plan.items

            def choose() -> tuple[str, str]:
                nonlocal predictor
                if before is not None:
                    predictor, why = undecided.with_options(runtime=before), f"runtime auto: {before}, as before"
                else:
                    sizes = sampled_sizes(len(items), lambda index: size_of(items[index]))
                    predictor, why = choose_runtime(undecided, sizes)
                return predictor.runtime, why

            name, why = world.on_main(choose)
            if name != predictor.runtime:
                predictor = undecided.with_options(runtime=name)
            if world.is_main:
                print(why, file=sys.stderr)
        hardware = str(world.device) if world.size == 1 else f"{world.size} x {world.device.type}"
        by = "" if predictor.runtime == "torch" else f" by {predictor.runtime}"
        if world.is_main:
            print(f"{plan} on {hardware} in {predictor.precision}{by}, into {plan.folder}", file=sys.stderr)
        work = build(predictor, plan, existing=existing, processes=world, stop=stop, progress=True, **options)
        return work.export()


def plan_clips(
    inputs: Sequence[str],
    output: Path,
    formats: Formats,
    camera: Sequence[float] | Intrinsics | Lens | None,
    existing: Existing,
    *,
    start: float | None = None,
    end: float | None = None,
    every: int | None = None,
    fps: float | None = None,
    stabilize: bool = False,
    fuse: bool | None = None,
    lookahead: int | None = None,
) -> ClipPlan:
    """Plan what to write where, checked before the model loads; see `densevit.predict`. Raises ConfigError: options
    that do not go together."""
    problems = []
    if not stabilize:
        dependent = {"fuse": fuse, "lookahead": lookahead}
        problems = [f"--{name}: belongs to --stabilize." for name, value in dependent.items() if value is not None]
    if lookahead is not None and lookahead < 0:
        problems.append(f"--lookahead: {lookahead} frames; there are 0 or more.")
    if fps is not None and not 0 < fps < 10_000:
        problems.append(f"--fps: {fps:g} frames per second make no video.")
    if problems:
        raise ConfigError(*problems)
    span = TimeSpan(start or 0.0, end, every or 1)
    steady = {"future": 6 if lookahead is None else lookahead, "fuse": fuse is not False} if stabilize else None
    clip_formats: dict[str, ClipFormat] = {}
    writers: dict[str, MapWriter] = {}
    for name, options in formats.items():
        if name in CLIP_FORMATS.components:
            clip_formats[name] = CLIP_FORMATS.check({"type": name, **options}, f"--formats {name}").build()
        else:
            writers[name] = build_writer(name, options)
    lens = Intrinsics(camera[0], camera[1], camera[2], camera[3]) if isinstance(camera, Sequence) else camera
    clips = find_clips(inputs, fps or 30.0)
    if fps is not None and not any(isinstance(clip.source, FrameFolder) for clip in clips):
        raise ConfigError("--fps: is for folders of frames; a video has times of its own.")
    plan = ClipPlan(clips, writers, clip_formats, output.absolute(), span, steady, lens)
    plan.check(existing)
    return plan
