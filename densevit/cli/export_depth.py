"""Writes depth maps for images: files, folders (structure kept), globs, or a .txt or .csv list.

Each map has its image's size. One bad image costs one line in the summary and exit code 3; the others are written.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densevit.errors import ConfigError, Preempted

if TYPE_CHECKING:
    from collections.abc import Callable

    from densevit.inference.forward import Box
    from densevit.inference.plan import Existing, Plan

# Which options belong to which format.
OPTIONS = {"png16": ("scale",), "color": ("cmap", "range"), "ply": ("fov", "intrinsics")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint folder or .safetensors file")
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="image, folder, glob, or .txt/.csv list of images")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write to")
    parser.add_argument(
        "--format", default="png16", metavar="NAMES", help="comma-separated: png16,npy,npz,pfm,h5,color,ply (png16)"
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--overwrite", action="store_true", help="make all files anew")
    again.add_argument("--resume", action="store_true", help="make only the files that are missing")

    model = parser.add_argument_group("model")
    model.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps (auto)")
    model.add_argument("--precision", default="auto", choices=("auto", "fp32", "bf16", "fp16"))
    model.add_argument("--flip", action="store_true", help="average with the mirrored image's prediction")
    model.add_argument("--batch-size", type=at_least_one, default=1, metavar="N", help="neighbours of one size (1)")
    model.add_argument(
        "--window",
        choices=("kb",),
        help="the model sees only this part; kb: KITTI's 352x1216, as its protocols have it",
    )
    model.add_argument("--head", metavar="NAME", help="which head, where the model has several")

    work = parser.add_argument_group("work")
    workers = min(8, os.cpu_count() or 1)
    work.add_argument(
        "--workers", type=at_least_one, default=workers, metavar="N", help="threads to decode, and as many to encode"
    )
    work.add_argument("--max-pixels", type=at_least_one, metavar="N", help="refuse larger images")

    formats = parser.add_argument_group("formats")
    formats.add_argument("--scale", type=float, metavar="S", help="png16: stored units per metre (1000 or 256)")
    formats.add_argument("--cmap", metavar="NAME", help="color: turbo, magma, inferno, viridis, spectral (turbo)")
    formats.add_argument("--range", type=numbers(2), metavar="LOW,HIGH", help="color: values at the ends of the scale")
    formats.add_argument("--fov", type=float, metavar="DEGREES", help="ply: horizontal field of view")
    formats.add_argument("--intrinsics", type=numbers(4), metavar="FX,FY,CX,CY", help="ply: camera in pixels")


def run(args: argparse.Namespace) -> int:
    from densevit.signals import interruptible

    with interruptible() as stop:
        plan, existing = planned(args)
        from densevit.build import load
        from densevit.inference.export import export
        from densevit.inference.summary import Incomplete

        chosen = {"precision": args.precision, "flip": args.flip, "batch_size": args.batch_size}
        predictor = load(args.checkpoint, device=args.device, window=find_window(args.window), **chosen)
        if stop.is_set():
            raise Preempted("stopped before the first image; nothing was written.")
        print(f"{len(plan.items)} images on {predictor.device} in {predictor.precision}", file=sys.stderr)
        how = {"workers": args.workers, "max_pixels": args.max_pixels, "stop": stop, "progress": True}
        try:
            print(export(predictor, plan, head=args.head, existing=existing, **how))
        except Incomplete as error:
            print(error.summary)
            raise
    return 0


def find_window(name: str | None) -> "Callable[[int, int], Box] | None":
    from densevit.evaluation.regions import kb_box

    def kb(h: int, w: int) -> "Box":
        return kb_box((h, w))

    return {None: None, "kb": kb}[name]


def planned(args: argparse.Namespace) -> "tuple[Plan, Existing]":
    """What to write where, checked before the model loads."""
    chosen = requested(args)
    from densevit.inference.inputs import find_items
    from densevit.inference.outputs import OUTPUTS
    from densevit.inference.plan import Plan

    outputs = {
        name: OUTPUTS.check({"type": name, **given}, f"--format {name}").build() for name, given in chosen.items()
    }
    items = find_items(args.inputs, [output.suffix for output in outputs.values()], args.output)
    plan = Plan(items, outputs, args.output.absolute())
    existing: Existing = "resume" if args.resume else "overwrite" if args.overwrite else "refuse"
    plan.check(existing)
    return plan, existing


def requested(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The formats with their options.

    Raises:
        ConfigError: an option belongs to a format that was not asked for.
    """
    names = list(dict.fromkeys(name.strip() for name in args.format.split(",") if name.strip()))
    if not names:
        raise ConfigError("--format: names no format.")
    problems = [
        f"--{option} is for {format}, which --format does not name."
        for format, options in OPTIONS.items()
        for option in options
        if format not in names and getattr(args, option) is not None
    ]
    if problems:
        raise ConfigError(*problems)
    given = {name: {option: getattr(args, option) for option in OPTIONS.get(name, ())} for name in names}
    return {
        name: {option: value for option, value in options.items() if value is not None}
        for name, options in given.items()
    }


def numbers(count: int) -> Any:
    """An argparse type: so many numbers, comma-separated."""

    def parse(text: str) -> tuple[float, ...]:
        values = tuple(map(float, text.split(",")))
        if len(values) != count:
            raise argparse.ArgumentTypeError(f"needs {count} numbers, comma-separated, got {text!r}")
        return values

    parse.__name__ = f"{count} numbers"  # argparse names it in its messages
    return parse


def at_least_one(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return value
