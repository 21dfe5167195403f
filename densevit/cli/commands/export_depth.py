"""Writes depth maps for images: files, folders (structure kept), globs, or a .txt or .csv list.

Each map has its image's size. From a model with several heads, formats for classes of pixels may be asked for as well:
each format takes the head that it is for, and one pass through the model serves all.

One bad image costs one line in the summary and exit code 3; the others are written. Under torchrun, several processes
share the list.
"""

import argparse
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densevit.cli.options import checkpoint, inference
from densevit.errors import ConfigError, Preempted

if TYPE_CHECKING:
    from collections.abc import Callable

    from densevit.engine.distributed import DistributedContext
    from densevit.inference.forward import Box
    from densevit.inference.predict.output_plan import Existing, Plan
    from densevit.inference.predictor import Predictor

PATIENCE = timedelta(days=7)  # what one process of several may wait for the slowest at the end
# Which options belong to which format.
OPTIONS = {
    "png16": ("scale",),
    "color": ("cmap", "range"),
    "ply": ("fov", "intrinsics"),
    "labels": ("palette",),
    "overlay": ("opacity",),
}
FORMATS = "png16, npy, npz, pfm, h5, color, ply; of classes: labels, overlay, probabilities"


def add_arguments(parser: argparse.ArgumentParser, usual: str = "png16") -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint folder or .safetensors file")
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="image, folder, .tar, glob, .txt or .csv list")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write to")
    parser.add_argument(
        "--format", default=usual, metavar="NAMES", help=f"comma-separated, of depth: {FORMATS} (default {usual})"
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--overwrite", action="store_true", help="make all files anew")
    again.add_argument("--resume", action="store_true", help="make only the files that are missing")

    model = parser.add_argument_group("model")
    model.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps (auto)")
    model.add_argument("--precision", default="auto", choices=("auto", "fp32", "bf16", "fp16"))
    inference.add_inference_options(model)
    inference.add_tiling_options(model)
    checkpoint.add_runtime(model)
    model.add_argument("--compile", action="store_true", help="pays on many images of one size; half a minute first")
    model.add_argument("--batch-size", type=at_least_one, default=1, metavar="N", help="neighbours of one size (1)")
    model.add_argument(
        "--crop",
        choices=("kb",),
        help="the model sees only this part; kb: KITTI's 352x1216, as its protocols have it",
    )
    model.add_argument("--head", metavar="NAMES", help="which heads, where several are of a format's kind")

    checkpoint.add_format_options(model)

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
    formats.add_argument(
        "--palette", action="store_const", const=True, help="labels: a PNG with colours, which Pillow reads as ids"
    )
    formats.add_argument("--opacity", type=float, metavar="SHARE", help="overlay: of the colours (0.6)")
    formats.add_argument("--intrinsics", type=numbers(4), metavar="FX,FY,CX,CY", help="ply: camera in pixels")


def run(args: argparse.Namespace) -> int:
    from densevit.utils.signals import interruptible

    with interruptible() as stop:
        tiling = inference.tiling(args)
        plan, existing = planned(args)
        from densevit.api import load
        from densevit.engine import distributed
        from densevit.inference.predict.pipeline import export
        from densevit.inference.predict.summary import Incomplete

        whose = checkpoint.format_kwargs(args)
        with distributed.session(checkpoint.device(args), timeout=PATIENCE) as world:
            chosen = {name: getattr(args, name) for name in ("precision", "batch_size", "compile", "runtime")}
            window = find_window(args.crop)
            predictor = load(args.checkpoint, device=str(world.device), window=window, tiling=tiling, **chosen, **whose)
            inference.apply(args, predictor)
            if stop.is_set():
                raise Preempted("stopped before the first image; nothing was written.")
            heads = [] if args.head is None else args.head.split(",")
            how = {"workers": args.workers, "max_pixels": args.max_pixels, "stop": stop, "progress": True}
            say(
                world,
                f"{len(plan.items)} images on {device_of(world)} in {predictor.precision}{by(predictor)}",
                file=sys.stderr,
            )
            try:
                summary = export(predictor, plan, heads=heads, existing=existing, team=world, **how)
            except Incomplete as error:
                say(world, error.summary)
                raise
            say(world, summary)
    return 0


def say(world: "DistributedContext", text: object, **how: Any) -> None:
    """Prints once, whatever the number of processes."""
    if world.is_main:
        print(text, **how)


def by(predictor: "Predictor") -> str:
    return "" if predictor.runtime == "torch" else f" by {predictor.runtime}"


def device_of(world: "DistributedContext") -> str:
    return str(world.device) if world.size == 1 else f"{world.size} x {world.device.type}"


def find_window(name: str | None) -> "Callable[[int, int], Box] | None":
    from densevit.evaluation.depth.crops import kb_box

    def kb(h: int, w: int) -> "Box":
        return kb_box((h, w))

    return {None: None, "kb": kb}[name]


def planned(args: argparse.Namespace) -> "tuple[Plan, Existing]":
    """What to write where, checked before the model loads."""
    chosen = requested(args)
    from densevit.inference.predict.inputs import find_items
    from densevit.inference.predict.output_plan import Plan
    from densevit.inference.writers import LABEL_OUTPUTS, OUTPUTS

    outputs = {}
    for name, given in chosen.items():
        registry = LABEL_OUTPUTS if name in LABEL_OUTPUTS.parts else OUTPUTS
        outputs[name] = registry.check({"type": name, **given}, f"--format {name}").build()
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
