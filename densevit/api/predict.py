"""Prediction: `predict` writes the maps of many images or videos, `pseudo_label` labels images with a teacher model."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densevit.api.types import Count

if TYPE_CHECKING:
    from densevit.inference.predict.summary import Summary
    from densevit.inference.predictor import Predictor


def predict(
    model: "Predictor | str | Path",
    inputs: Sequence[str | Path] | str | Path = (),
    /,
    output: str | Path = "predictions",
    *,
    formats: Sequence[str] | Mapping[str, Mapping[str, Any]] = (),
    heads: Sequence[str] = (),
    overwrite: bool = False,
    resume: bool = False,
    scale: float | None = None,
    cmap: str | None = None,
    range: tuple[float, float] | None = None,
    axes: str | None = None,
    normals: bool | None = None,
    min_confidence: float | None = None,
    assume_depth: tuple[float, float] | None = None,
    edge: float | None = None,
    palette: bool | None = None,
    opacity: float | None = None,
    annotations: Path | str | None = None,
    threshold: float | None = None,
    intrinsics: tuple[float, float, float, float] | list[float] | Path | str | None = None,
    points: Path | str | None = None,
    points_scale: float | None = None,
    points_pose: Path | str | None = None,
    start: float | None = None,
    end: float | None = None,
    every: Count | None = None,
    fps: float | None = None,
    stabilize: bool = False,
    fuse: bool | None = None,
    lookahead: int | None = None,
    workers: Count | None = None,
    max_pixels: Count | None = None,
    **options: Any,
) -> "Summary":
    """Write what a model predicts for images, videos or cameras: depth, classes of pixels, normals, point clouds.

    Each map has its image's size. One bad image costs one line in the summary and exit code 3; the others are written.
    Under torchrun, several processes share the list. Videos become a colour video and a lossless 16-bit one, or the
    formats of images, a file per frame. With classes of pixels come `classes.json` and `legend.png`; with
    segments panoptic.json or instances.json for all images, as COCO's tools read them.

    >>> densevit.predict("runs/mine", "photos/", "maps", formats=["png16", "color"])  # doctest: +SKIP

    Without a model (`densevit predict photo.jpg`) the small one that comes with the package predicts, and colour images
    are written, too.

    Args:
        model: a checkpoint's path; in Python also a `Predictor`. Default: the small model of the package, if this is an
            image or video, or all there is.
        inputs: images, folders (structure kept), globs, .tar archives, a .txt or .csv list; or videos, folders of
            frames and camera:0.
        output: folder to write to.
        formats: depth: png16, npy, npz, pfm, h5, color, confidence, interval; 3D: ply, glb, obj, viewer; videos: mp4,
            ffv1, npz_clip, h5_clip; normals (a head's, else of its depth): normals, normals_npy, normals_exr; classes:
            labels, overlay, probabilities; segments: panoptic, coco, yolo, segments, segment_cloud, crops, objects; in
            Python also name -> options. Default: of depth png16, of classes labels and overlay, of normals normals, of
            panoptic segments panoptic and segments, of instances coco and segments, of videos mp4 and ffv1.
        heads: heads to write, where several fit a format.
        overwrite: write all files anew.
        resume: write only the files that are missing.
        scale: png16, ffv1: stored units per metre; default: 1000 or 256.
        cmap: color, mp4: turbo, magma, inferno, viridis or spectral; default: turbo.
        range: color, mp4: values at the ends of the colour scale.
        axes: normals: opencv, opengl (Marigold, Hypersim) or dsine; default: opencv.
        normals: ply: normals of the points, too.
        min_confidence: 3D: leave out points that lie within a factor of 1.25 with a lower probability.
        assume_depth: 3D: metres near,far that the ends of a map without unit stand for; the result is an assumption.
        edge: glb, obj: relative jump of depth to cut at; default: 0.05.
        palette: labels: a PNG with colours, which Pillow reads as class indices.
        opacity: overlay, segments: opacity of the colours; default: 0.6, of segments 0.55.
        annotations: panoptic, coco: the data set's JSON in COCO's format, whose ids of images and categories are taken.
        threshold: yolo, crops: score of instances below which they are left out; default: 0.5.
        intrinsics: fx,fy,cx,cy in pixels of images that all have the first one's size; or the file of a calibration
            (YAML of OpenCV, ROS or Kalibr, XML of OpenCV, JSON, COLMAP's cameras.txt), by which images are undistorted
            first; or a CSV or JSON with a row for each image: image (or name) and fx, fy, cx, cy, or focal, or fov; and
            where known width, height. For point clouds and models whose metres depend on the camera; default: as EXIF
            says.
        points: measured points, which bring depth of any kind to metres: a CSV of u, v, depth (for several images with
            a column image or name), a PNG of LiDAR depth or a PLY; or a folder with NAME.csv, .png or .ply per image.
        points_scale: stored units per metre of a PNG of `points`.
        points_pose: file of the 4x4 matrix from the frame of a PLY of `points` to the camera's.
        start: videos: seconds to begin at.
        end: videos: seconds to end at.
        every: videos: take every n-th frame.
        fps: videos: frames per second of folders of frames; default: 30.
        stabilize: videos: bring each map to the running scale of its neighbours, which removes flicker.
        fuse: videos: with `stabilize`, average static parts per pixel, too; default: yes.
        lookahead: videos: later frames that `stabilize` uses; default: 6; 0 for a camera.
        workers: threads that decode, and as many that encode; default: one per core, at most 8.
        max_pixels: refuse larger images.
        options: of `densevit.load`, for a path.

    Returns:
        counts of images and values; `print` shows them.

    Raises:
        ConfigError, DataError, StorageError: before anything is written.
        PartialError: some images failed; the others are written, and `failed.json` names the failed ones.
        Preempted: Ctrl-C or SIGTERM; what is written is whole, and `resume` writes the rest.
    """
    arguments = dict(locals())
    from densevit.api import prediction

    return prediction.predict(**arguments)


def pseudo_label(
    teacher: str | Path,
    inputs: Sequence[str | Path] | str | Path,
    /,
    output: str | Path,
    *,
    shard_size: Count | None = None,
    heads: Sequence[str] = (),
    flip: bool = True,
    overwrite: bool = False,
    resume: bool = False,
    workers: Count | None = None,
    max_pixels: Count | None = None,
    **options: Any,
) -> "Summary":
    """Label images with a teacher model, to train a student: maps with confidence, in folders or tar shards.

    The teacher is any checkpoint that densevit loads, or an ONNX file of `export`; heads for depth and for classes of
    pixels are written. Its name and licence go into the manifest, and from there into the student's card. The data set
    `pseudo_labels` reads the result. Under torchrun, several processes share the images, or the shards.

    Args:
        teacher: a checkpoint, or an ONNX file.
        inputs: images, folders, globs, .tar archives, or a .txt or .csv list.
        output: folder to write to.
        shard_size: pack this number of images with their maps into each tar archive; default: images stay where they
            are.
        heads: heads to write, where several fit.
        flip: average with the mirrored image's prediction.
        overwrite: write all files anew.
        resume: write only what is missing.
        workers: threads; default: one per core, at most 8.
        max_pixels: refuse larger images.
        options: of `densevit.load`.
    """
    from densevit import api
    from densevit.api.checkpoint import as_names
    from densevit.api.prediction import PATIENCE, camera_of, device_for, existing_rule
    from densevit.inference.predict.cameras import plan_cameras, resolve_cameras, with_exif
    from densevit.inference.predict.inputs import find_items, paths_of
    from densevit.inference.predict.pseudo_labels import WRITERS, LabelPlan, write_pseudo_labels
    from densevit.utils.process import interruptible
    from densevit.utils.process_group import process_group

    existing = existing_rule(overwrite=overwrite, resume=resume)
    items = find_items(paths_of(inputs), [writer.suffix for writer in WRITERS.values()], Path(output)).items
    plan = LabelPlan(items, WRITERS, Path(output).absolute(), shard_size=shard_size)
    plan.check(existing)
    with interruptible() as stop, process_group(device_for(options), patience=PATIENCE) as world:
        predictor = api.load(teacher, **{**options, "flip": flip, "device": str(world.device)})
        camera = camera_of(None, options.get("focal"), options.get("fov"))
        items = resolve_cameras(plan.items, predictor.cameras)
        items = with_exif(items, needed=False) if camera is None else plan_cameras(items, camera)
        plan = replace(plan, items=items)
        return write_pseudo_labels(
            predictor, plan, Path(teacher).name, as_names(heads), existing,
            workers=workers or min(8, os.cpu_count() or 1), max_pixels=max_pixels,
            stop=stop, processes=world, progress=True,
        )  # fmt: skip
