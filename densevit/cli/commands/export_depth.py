"""Write depth maps for images (files, folders, globs, a .txt or .csv list), or for videos and cameras.

Each map has its image's size. From a model with several heads, formats for classes of pixels may be asked for as well:
each format takes the head that it is for, and one pass through the model serves all.

One bad image costs one line in the summary and exit code 3; the others are written. Under torchrun, several processes
share the list.

Videos become a colour video and a lossless 16-bit one, or the formats of images, a file a frame; --stabilize takes out
the flicker.
"""

import argparse
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densevit.cli.options import checkpoint, inference
from densevit.cli.options.types import numbers, positive_int, words
from densevit.errors import ConfigError
from densevit.utils.output import print_once

if TYPE_CHECKING:
    from densevit.inference.predict.anchors import AnchorFiles
    from densevit.inference.predict.output_plan import Existing

# Which options belong to which format.
OPTIONS = {
    "png16": ("scale",),
    "color": ("cmap", "range"),
    **dict.fromkeys(("normals", "normals_npy", "normals_exr"), ("axes",)),
    "ply": ("min_confidence", "assume_depth", "normals"),
    **dict.fromkeys(("glb", "obj"), ("min_confidence", "assume_depth", "edge")),
    "viewer": ("min_confidence", "assume_depth"),
    "labels": ("palette",),
    "overlay": ("opacity",),
    "mp4": ("cmap", "range"),
    "ffv1": ("scale",),
}
CLIP_FORMATS = ("mp4", "ffv1", "npz_clip", "h5_clip")
FORMATS = (
    "png16, npy, npz, pfm, h5, color, confidence, interval; 3D: ply, glb, obj, viewer; "
    "clips: mp4, ffv1, npz_clip, h5_clip; "
    "normals (a head's, else of its depth): normals, normals_npy, normals_exr; classes: labels, overlay, probabilities"
)


def add_arguments(parser: argparse.ArgumentParser, usual: str = "png16") -> None:
    checkpoint.add_checkpoint_argument(parser)
    parser.add_argument(
        "inputs", metavar="INPUT", nargs="+", help="image, folder, .tar, glob, list; or videos, camera:0"
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write to")
    parser.add_argument(
        "--format",
        type=words,
        metavar="NAMES",
        help=f"comma-separated, of depth: {FORMATS} (default {usual}; of videos mp4,ffv1)",
    )
    parser.set_defaults(usual=usual)
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--overwrite", action="store_true", help="make all files anew")
    again.add_argument("--resume", action="store_true", help="make only the files that are missing")

    model = parser.add_argument_group("model")
    checkpoint.add_compute_options(model, precision="auto")
    inference.add_inference_options(model, focal=False)
    inference.add_tiling_options(model)
    model.add_argument("--compile", action="store_true", help="pays on many images of one size; half a minute first")
    model.add_argument("--batch-size", type=positive_int, default=1, metavar="N", help="neighbours of one size (1)")
    inference.add_crop_option(model)
    model.add_argument("--head", metavar="NAMES", type=words, default=(), help="which, where several fit a format")
    checkpoint.add_checkpoint_options(model)

    work = parser.add_argument_group("work")
    workers = min(8, os.cpu_count() or 1)
    work.add_argument(
        "--workers", type=positive_int, default=workers, metavar="N", help="threads to decode, and as many to encode"
    )
    work.add_argument("--max-pixels", type=positive_int, metavar="N", help="refuse larger images")

    inference.add_video_options(parser.add_argument_group("videos"))

    formats = parser.add_argument_group("formats")
    formats.add_argument("--scale", type=float, metavar="S", help="png16, ffv1: stored units per metre (1000 or 256)")
    formats.add_argument("--cmap", metavar="NAME", help="color, mp4: turbo, magma, inferno, viridis, spectral (turbo)")
    formats.add_argument("--range", type=numbers(2), metavar="LOW,HIGH", help="color, mp4: values at the scale's ends")
    formats.add_argument(
        "--axes", metavar="NAME", help="normals: opencv (default), opengl (Marigold, Hypersim) or dsine"
    )
    formats.add_argument("--viewer", action="store_true", help="also one HTML page an image that shows its point cloud")
    formats.add_argument("--normals", action="store_const", const=True, help="ply: normals of the points, too")
    formats.add_argument(
        "--min-confidence",
        type=float,
        metavar="SHARE",
        help="3D: leave out points that lie within a factor of 1.25 with a lower probability",
    )
    formats.add_argument(
        "--assume-depth",
        type=numbers(2),
        metavar="NEAR,FAR",
        help="3D: metres that the ends of a map without unit are taken for; what comes out is an assumption",
    )
    formats.add_argument("--edge", type=float, metavar="SHARE", help="glb, obj: jump of depth to cut at (0.05)")
    formats.add_argument(
        "--palette", action="store_const", const=True, help="labels: a PNG with colours, which Pillow reads as ids"
    )
    formats.add_argument("--opacity", type=float, metavar="SHARE", help="overlay: of the colours (0.6)")
    points = parser.add_argument_group("measured points", "bring depth of any kind to metres")
    points.add_argument(
        "--anchors",
        type=Path,
        metavar="FILE|DIR",
        help="CSV of u, v, depth (for several images with a column image or name), PNG of LiDAR depth, PLY; or a "
        "folder with NAME.csv, .png or .ply for each image",
    )
    points.add_argument("--anchor-scale", type=float, metavar="S", help="png: stored units per metre")
    points.add_argument(
        "--anchor-pose", type=Path, metavar="FILE", help="ply: 4x4 matrix from its frame to the camera's"
    )
    lens = parser.add_argument_group("camera", "for point clouds and models that know the lens; default: as EXIF says")
    inference.add_focal_option(lens)
    lens.add_argument("--fov", type=float, metavar="DEGREES", help="horizontal field of view")
    lens.add_argument(
        "--intrinsics",
        type=camera,
        metavar="FX,FY,CX,CY|FILE",
        help="in pixels, of images that all have the first one's size; or a CSV or JSON with a row for each image: "
        "image (or name) and fx, fy, cx, cy, or focal, or fov; and where given width, height",
    )


def run(args: argparse.Namespace) -> int:
    tiling = inference.tiling(args)
    clips = wants_clips(args)
    if args.format is None:
        args.format = CLIP_FORMATS[:2] if clips and args.usual == "png16" else words(args.usual)
    formats = requested(args)
    from densevit.api.export import device_for, plan_export, run_export
    from densevit.inference.predict.pipeline import ImageExporter
    from densevit.inference.predictor import Predictor

    existing: Existing = "resume" if args.resume else "overwrite" if args.overwrite else "refuse"
    given = args.intrinsics if args.focal is None and args.fov is None else inference.lens(args)

    def ready(device: str) -> Predictor:
        window = inference.find_crop(args.crop)
        return inference.load(
            args, device=device, batch_size=args.batch_size, compile=args.compile, window=window, tiling=tiling
        )

    if clips:
        from densevit.cli.options.video import run_clips

        return run_clips(args, formats, given, existing, ready)
    plan = plan_export(args.inputs, args.output, formats, given, existing, anchor_files(args))
    work = {"heads": args.head, "existing": existing, "workers": args.workers, "max_pixels": args.max_pixels}
    print_once(run_export(plan, ready, device_for(vars(args)), ImageExporter, **work))
    return 0


def anchor_files(args: argparse.Namespace) -> "AnchorFiles | None":
    """
    Raises:
        ConfigError: options of anchors without any.
        DataError: no such file.
    """
    from densevit.errors import DataError
    from densevit.inference.predict.anchors import AnchorFiles

    if args.anchors is None:
        if args.anchor_scale is not None or args.anchor_pose is not None:
            raise ConfigError("--anchor-scale and --anchor-pose belong to --anchors.")
        return None
    for path in (args.anchors, args.anchor_pose):
        if path is not None and not path.exists():
            raise DataError(f"--anchors: {path}: no such file or folder.")
    return AnchorFiles(args.anchors, args.anchor_scale, args.anchor_pose)


def wants_clips(args: argparse.Namespace) -> bool:
    """Whether the inputs are clips: they can be nothing else, or an option or format that only clips have is given."""
    given = any(getattr(args, name) is not None for name in inference.VIDEO_OPTIONS)
    if given or set(args.format or ()) & set(CLIP_FORMATS):
        return True
    from densevit.inference.predict.inputs import is_video

    return any(map(is_video, args.inputs))


def requested(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The formats with their options.

    Raises:
        ConfigError: an option belongs to a format that was not asked for.
    """
    names = list(dict.fromkeys([*args.format, *["viewer"] * args.viewer]))
    if not names:
        raise ConfigError("--format: names no format.")
    problems = [
        f"--{option.replace('_', '-')} is for {' or '.join(formats)}, which --format does not name."
        for option, formats in formats_of_options().items()
        if not set(formats) & set(names) and getattr(args, option) is not None
    ]
    if [args.intrinsics, args.focal, args.fov].count(None) < 2:
        problems.append("--intrinsics: give the camera as one of --focal, --fov and --intrinsics.")
    if problems:
        raise ConfigError(*problems)
    given = {name: {option: getattr(args, option) for option in OPTIONS.get(name, ())} for name in names}
    return {
        name: {option: value for option, value in options.items() if value is not None}
        for name, options in given.items()
    }


def formats_of_options() -> dict[str, list[str]]:
    """Option -> the formats that it is for."""
    options = dict.fromkeys(option for options in OPTIONS.values() for option in options)
    return {option: [format for format, has in OPTIONS.items() if option in has] for option in options}


def camera(text: str) -> "tuple[float, ...] | Path":
    """An argparse type: fx, fy, cx, cy, or a file of them."""
    try:
        values = tuple(map(float, text.split(",")))
    except ValueError:
        return Path(text)
    if len(values) != 4 or not all(0 < value < math.inf for value in values):
        raise argparse.ArgumentTypeError(f"needs fx, fy, cx, cy in pixels above 0, or a CSV file; got {text!r}")
    return values
