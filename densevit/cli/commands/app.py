"""Serve a local page: drop an image or a clip, and see what one or several checkpoints predict, side by side.

Depth with metres under the pointer, classes, point clouds, attention, and every file format. Images stay on this
machine, which needs no network. Needs densevit[app].
"""

import argparse
from pathlib import Path

from densevit.cli.options import checkpoint
from densevit.cli.options.types import positive_int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoints", metavar="CHECKPOINT", nargs="+", help="folders or files, ours or published")
    parser.add_argument("--host", default="127.0.0.1", help="127.0.0.1 (default): this machine; 0.0.0.0: the network")
    parser.add_argument("--port", type=positive_int, help="the first free one from 7860 on, unless given")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-pixels", type=positive_int, default=24_000_000, metavar="N", help="of an image (24e6)")
    limits.add_argument("--max-megabytes", type=positive_int, default=200, metavar="N", help="of a file (200)")
    limits.add_argument(
        "--time-limit", type=positive_int, default=120, metavar="SECONDS", help="for a clip, by each checkpoint (120)"
    )
    model = parser.add_argument_group("model")
    checkpoint.add_compute_options(model, precision="auto")
    checkpoint.add_checkpoint_options(model)


def run(args: argparse.Namespace) -> int:
    from densevit.utils.packages import require_packages

    require_packages("gradio", extra="app")
    from densevit.app.inputs import Limits
    from densevit.app.models import AppModel
    from densevit.app.server import serving
    from densevit.utils.signals import interruptible

    models = []
    for name, path in zip(names_of(args.checkpoints), args.checkpoints, strict=True):
        models.append(AppModel(name, checkpoint.load(argparse.Namespace(**{**vars(args), "checkpoint": path}))))
        print(f"{name}: {models[-1].predictor!r}")
    limits = Limits(args.max_pixels, args.max_megabytes, args.time_limit)
    with interruptible() as stop, serving(models, limits, host=args.host, port=args.port) as address:
        print(f"{address} (Ctrl-C ends)", flush=True)
        stop.wait()
    return 0


def names_of(checkpoints: list[str]) -> list[str]:
    """The last part of each path; of those that share it, as much as tells them apart."""
    paths = [Path(path).absolute().parts for path in checkpoints]
    for length in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-length:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {path}" for number, path in enumerate(checkpoints, 1)]
