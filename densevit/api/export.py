"""`export`: maps of many images as files."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from densevit.api.checkpoint import load
from densevit.data.io.readers import image_size
from densevit.engine import distributed
from densevit.errors import ConfigError, DataError, Preempted
from densevit.inference.backends.auto import sampled_sizes
from densevit.inference.camera import Lens
from densevit.inference.choose_runtime import choose_runtime
from densevit.inference.predict.anchors import AnchorFiles
from densevit.inference.predict.cameras import plan_cameras, resolve_cameras
from densevit.inference.predict.inputs import Item, find_items
from densevit.inference.predict.output_plan import Existing, ExportPlan, OutputPlan
from densevit.inference.predict.pipeline import Exporter, ImageExporter
from densevit.inference.predict.summary import Summary
from densevit.inference.predictor import Predictor
from densevit.inference.writers import DEPTH_FORMATS, LABEL_FORMATS, MapWriter
from densevit.structures import Size
from densevit.utils.signals import interruptible

PATIENCE = timedelta(days=7)  # what one process of several may wait for the slowest at the end

Formats = Mapping[str, Mapping[str, Any]]
"""Format -> its options."""


def export(
    model: Predictor | str | Path,
    images: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    formats: str | Sequence[str] | Formats = "png16",
    heads: Sequence[str] = (),
    existing: Existing = "refuse",
    intrinsics: Sequence[float] | str | Path | None = None,
    fov: float | None = None,
    anchors: str | Path | AnchorFiles | None = None,
    workers: int = 2,
    max_pixels: int | None = None,
    **options: Any,
) -> Summary:
    """Writes the maps of many images, as `densevit export-depth` and `export-seg` do: the same files, byte by byte.

    >>> densevit.export("runs/mine", "photos/", "maps", formats=["png16", "color"])  # doctest: +SKIP

    Args:
        model: a checkpoint's path, or a `Predictor`.
        images: files, folders (structure kept), globs, .tar archives, or a .txt or .csv list.
        output: the folder to write to.
        formats: of depth png16, npy, npz, pfm, h5, color, ply; of classes labels, overlay, probabilities; a dict gives
            options: `{"png16": {"scale": 256}, "ply": {"normals": True}}`.
        heads: which to write, where the model has several that a format is for.
        existing: what to do where outputs are there: refuse, overwrite, or resume (make only what is missing).
        intrinsics: fx, fy, cx, cy in pixels of images that all have the first one's size; or a CSV or JSON with the
            camera of each. Point clouds and models whose metres depend on the focal length take it; without, EXIF.
        fov: horizontal field of view in degrees, in place of `intrinsics`.
        anchors: measured points, which bring depth of any kind to metres: CSV (u, v, depth), PNG of LiDAR depth or PLY.
        workers: threads that decode, and as many that encode.
        max_pixels: larger images fail.
        options: of `densevit.load`, for a path: family, device, precision, batch_size, tiling, flip, ...

    Returns:
        counts of images and values; `print` shows them.

    Raises:
        ConfigError, DataError, StorageError: before anything is written.
        PartialError: some images failed; the others are written, and `failed.json` names the failed ones.
        Preempted: Ctrl-C or SIGTERM; what is written is whole, and existing="resume" goes on.
    """
    given = [images] if isinstance(images, str | Path) else list(images)
    camera = Lens(fov=fov) if fov is not None else Path(intrinsics) if isinstance(intrinsics, str) else intrinsics
    points = AnchorFiles(Path(anchors)) if isinstance(anchors, str | Path) else anchors
    plan = plan_export(given, Path(output), with_options(formats), camera, existing, points)
    ready, device = find_model(model, options)
    work: dict[str, Any] = {"heads": heads, "workers": workers, "max_pixels": max_pixels}
    return run_export(plan, ready, device, ImageExporter, existing=existing, **work)


def with_options(formats: str | Sequence[str] | Formats) -> Formats:
    """Names of formats, with no options where none are given."""
    names = [formats] if isinstance(formats, str) else formats
    return names if isinstance(names, Mapping) else {name: {} for name in names}


def find_model(model: Predictor | str | Path, options: Mapping[str, Any]) -> tuple[Callable[[str], Predictor], str]:
    """What makes the predictor of a process from its device, and the device that they ask for.

    Raises:
        ConfigError: options, and the model is loaded already.
    """
    if isinstance(model, Predictor):
        if options:
            raise ConfigError(f"export: {', '.join(options)}: options of a checkpoint's path; this is a Predictor.")
        return lambda device: model, str(model.device)
    return lambda device: load(model, **{**options, "device": device}), device_for(options)


def device_for(options: Mapping[str, Any]) -> str:
    """Of those that compute, only torch takes another device than the CPU by itself."""
    device = str(options.get("device", "auto"))
    return "cpu" if options.get("runtime", "torch") not in ("torch", "auto") and device == "auto" else device


def plan_export(
    images: Sequence[str | os.PathLike[str]],
    output: Path,
    formats: Formats,
    intrinsics: Sequence[float] | Path | Lens | None = None,
    existing: Existing = "refuse",
    anchors: AnchorFiles | None = None,
) -> OutputPlan:
    """What to write where, checked before the model loads; see `export`."""
    writers = {name: build_writer(name, options) for name, options in formats.items()}
    found = find_items(images, [writer.suffix for writer in writers.values()], output)
    exif = any(writer.needs_intrinsics for writer in writers.values()) or anchors is not None
    items = found.items if intrinsics is None and not exif else plan_cameras(found.items, intrinsics)
    plan = OutputPlan(items, writers, output.absolute(), found.unsupported, anchors)
    plan.check(existing)
    if anchors is not None:
        anchors.check(items)
    return plan


def build_writer(format: str, options: Mapping[str, Any]) -> MapWriter:
    registry = LABEL_FORMATS if format in LABEL_FORMATS.components else DEPTH_FORMATS
    return registry.check({"type": format, **options}, f"--format {format}").build()


def run_export(
    plan: ExportPlan,
    ready: Callable[[str], Predictor],
    device: str,
    build: type[Exporter],
    *,
    existing: Existing = "refuse",
    **options: Any,
) -> Summary:
    """Writes a plan, alone or as one of torchrun's processes.

    Args:
        ready: the device of this process -> the model on it.
        build: the exporter, of images or of clips.
        options: of the exporter.
    """
    with interruptible() as stop, distributed.process_group(device, patience=PATIENCE) as world:
        predictor = ready(str(world.device))
        if isinstance(plan, OutputPlan) and (predictor.card.needs_camera or predictor.card.fov is not None):
            plan = replace(plan, items=resolve_cameras(plan.items, predictor.cameras))
        if stop.is_set():
            raise Preempted("stopped before anything was written.")
        if predictor.runtime == "auto" and isinstance(plan, OutputPlan):
            before = plan.recorded("runtime", "torch") if existing == "resume" else None
            undecided = predictor

            def choose() -> tuple[str, str]:
                nonlocal predictor
                predictor, why = choose_for_images(undecided, plan.items, before)
                return predictor.runtime, why

            name, why = world.on_main(choose)
            if name != predictor.runtime:
                predictor = undecided.with_runtime(name)
            if world.is_main:
                print(why, file=sys.stderr)
        where = str(world.device) if world.size == 1 else f"{world.size} x {world.device.type}"
        by = "" if predictor.runtime == "torch" else f" by {predictor.runtime}"
        if world.is_main:
            print(f"{plan} on {where} in {predictor.precision}{by}", file=sys.stderr)
        work = build(predictor, plan, existing=existing, processes=world, stop=stop, progress=True, **options)
        return work.export()


def choose_for_images(predictor: Predictor, items: Sequence[Item], before: str | None) -> tuple[Predictor, str]:
    """Return the predictor with the runtime that `auto` takes for these images, and why.

    Args:
        before: what computed the export that is resumed.
    """
    if before is not None:
        return predictor.with_runtime(before), f"runtime auto: {before}, as before"

    def size_of(index: int) -> Size | None:
        try:
            with items[index].file() as path:
                return image_size(path)
        except (DataError, OSError):
            return None

    return choose_runtime(predictor, sampled_sizes(len(items), size_of))
