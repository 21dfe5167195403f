"""What `export-depth` makes of its options for clips."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densevit.errors import ConfigError
from densevit.utils.output import print_once

if TYPE_CHECKING:
    from densevit.inference.camera import Lens
    from densevit.inference.predict.output_plan import Existing
    from densevit.inference.predictor import Predictor


def run_clips(
    args: argparse.Namespace,
    formats: Mapping[str, Mapping[str, Any]],
    given: "Sequence[float] | Path | Lens | None",
    existing: "Existing",
    ready: "Callable[[str], Predictor]",
) -> int:
    """
    Raises:
        ConfigError: options that do not go together.
    """
    from densevit.api.export import device_for, run_export
    from densevit.api.video import plan_clips
    from densevit.data.io.video import Span
    from densevit.inference.video.export import ClipExporter

    check(args)
    assert not isinstance(given, Path)
    lookahead = 6 if args.lookahead is None else args.lookahead
    stabilize = {"future": lookahead, "fuse": args.fuse is not False} if args.stabilize else None
    span = Span(args.start or 0.0, args.end, args.every or 1)
    plan = plan_clips(args.inputs, args.output, formats, given, existing, span, stabilize, args.fps or 30.0)
    work = {"heads": args.head, "existing": existing, "workers": args.workers}
    print_once(run_export(plan, ready, device_for(vars(args)), ClipExporter, **work))
    return 0


def check(args: argparse.Namespace) -> None:
    problems = []
    if args.stabilize is None:
        given = [name for name in ("fuse", "lookahead") if getattr(args, name) is not None]
        problems = [f"--{name}: belongs to --stabilize." for name in given]
    if args.lookahead is not None and args.lookahead < 0:
        problems.append(f"--lookahead: {args.lookahead} frames; there are 0 or more.")
    if args.fps is not None and not 0 < args.fps < 10_000:
        problems.append(f"--fps: {args.fps:g} frames per second make no video.")
    if isinstance(args.intrinsics, Path):
        problems.append("--intrinsics: a clip has one camera; give FX,FY,CX,CY.")
    if args.anchors is not None:
        problems.append("--anchors: is for images.")
    if args.max_pixels is not None:
        problems.append("--max-pixels: is for images.")
    if problems:
        raise ConfigError(*problems)
