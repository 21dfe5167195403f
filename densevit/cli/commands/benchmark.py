"""Measure the speed of densevit on this machine, beside other implementations that can be imported here.

Writes a dated report as Markdown and JSON. Nothing is downloaded; weights are random, and the same for all.
"""

import argparse
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options.types import positive_int, positive_ints, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from densevit.speed.report import Report, Row
    from densevit.speed.settings import Settings

SECTIONS = ("inference", "training", "loader", "export", "scoring", "start-up")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sections", type=words, default=SECTIONS, metavar="A,B", help=f"{', '.join(SECTIONS)} (all)")
    parser.add_argument("--output", type=Path, default=Path("runs/benchmarks"), metavar="DIR", help="for the report")
    parser.add_argument("--name", default="benchmark", help="of the report, behind the date (benchmark)")
    parser.add_argument("--baseline", type=Path, metavar="JSON", help="an earlier report: say what became slower")
    parser.add_argument(
        "--depth-anything", type=Path, metavar="DIR", help="a clone of Depth-Anything-V2: the reference to run beside"
    )
    parser.add_argument("--size", default="small", choices=("small", "base", "large"), help="of the ViT (small)")
    parser.add_argument(
        "--image-sizes", type=positive_ints, default=(518,), metavar="N,N", help="of square images (518)"
    )
    parser.add_argument("--batches", type=positive_ints, default=(1,), metavar="N,N", help="images at once (1)")
    parser.add_argument("--repeats", type=positive_int, default=5, metavar="N", help="timed rounds of each (5)")
    parser.add_argument("--images", type=positive_int, default=40, metavar="N", help="of the export (40)")
    parser.add_argument(
        "--workers", type=positive_int, default=2, metavar="N", help="of loader, export and scoring (2)"
    )
    parser.add_argument("--threads", type=positive_int, metavar="N", help="of torch; default: its own choice")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (auto)")
    parser.add_argument("--precision", default="auto", choices=("auto", "fp32", "tf32", "bf16", "fp16"))
    parser.add_argument("--compile", action="store_true", help="run our network compiled, too")


def run(args: argparse.Namespace) -> int:
    check_options(args)
    from densevit.speed.report import HARDWARE, Report, regressions, summarize_overlap
    from densevit.utils.atomic_io import check_can_create

    check_can_create(args.output)
    before = Report.read(args.baseline) if args.baseline else None
    settings = make_settings(args)
    rows: list[Row] = []
    try:
        for row in measure(settings, args.sections):
            rows.append(row)
    except BaseException as error:  # a signal, too: what was measured so far took minutes
        if any(row.section != HARDWARE for row in rows):
            settings.absent.append(f"all further sections: {type(error).__name__} ended the run.")
            write_report(args, settings, rows)
        raise
    report = write_report(args, settings, rows)
    if before is None:
        return 0
    worse = list(regressions(before, report))
    print(*[f"slower: {line}" for line in worse], sep="\n", end="\n" if worse else "")
    print(f"against {args.baseline}: {summarize_overlap(before, report)}.")
    return 1 if worse else 0


def check_options(args: argparse.Namespace) -> None:
    """Checks all that can be wrong before the first section is timed.

    Raises:
        ConfigError: no such section, or no such size, name or folder.
    """
    from densevit.errors import ConfigError

    if unknown := [name for name in args.sections if name not in SECTIONS]:
        raise ConfigError(f"--sections: {', '.join(unknown)}; there are {', '.join(SECTIONS)}.")
    if not args.sections:
        raise ConfigError(f"--sections: names none; there are {', '.join(SECTIONS)}.")
    if odd := [side for side in args.image_sizes if side % 14]:
        raise ConfigError(f"--image-sizes: {odd[0]} is no multiple of 14, the patch; {max(1, odd[0] // 14) * 14} fits.")
    if not args.name or Path(args.name).name != args.name:
        raise ConfigError(f"--name: {args.name!r} is no name of a file; --output is for the folder.")
    if args.depth_anything and not args.depth_anything.is_dir():
        raise ConfigError(f"--depth-anything: {args.depth_anything} is no folder.")


def make_settings(args: argparse.Namespace) -> "Settings":
    import torch

    from densevit.speed.settings import Settings
    from densevit.utils.device import choose_device
    from densevit.utils.precision import resolve

    if args.threads:
        torch.set_num_threads(args.threads)
    device = choose_device(args.device)
    return Settings(
        device=device, precision=resolve(args.precision, device), size=args.size, sides=args.image_sizes,
        batches=args.batches, rounds=args.repeats, images=args.images, workers=args.workers,
        threads=torch.get_num_threads(), compile=args.compile, depth_anything=args.depth_anything,
    )  # fmt: skip


def measure(settings: "Settings", sections: "Sequence[str]") -> "Iterator[Row]":
    import sys

    from densevit.speed import dataloader, evaluation, export, hardware, inference, startup, training

    measures = {
        "inference": inference.measure,
        "training": training.measure,
        "loader": dataloader.measure,
        "export": export.measure,
        "scoring": evaluation.measure,
        "start-up": startup.measure,
    }
    yield from hardware.peak_rates(settings.device, settings.rounds)
    for name in sections:
        print(f"{name} ...", file=sys.stderr, flush=True)
        yield from measures[name](settings)


def write_report(args: argparse.Namespace, settings: "Settings", rows: "Sequence[Row]") -> "Report":
    """Prints and writes the report of what was measured."""
    import sys
    from datetime import UTC, datetime

    from densevit.speed import hardware
    from densevit.speed.report import Report
    from densevit.utils.atomic_io import make_folder

    report = Report(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        command=f"densevit benchmark {' '.join(sys.argv[1:]).removeprefix('benchmark').strip()}",
        machine=hardware.describe(settings.device),
        rows=rows,
        absent=settings.absent,
    )
    print(report.markdown())
    stem = make_folder(args.output) / f"{report.date}-{args.name}"
    stems = (Path(f"{stem}-{i}" if i > 1 else stem) for i in count(1))  # an earlier report of the day stays
    stem = next(path for path in stems if not Path(f"{path}.json").exists())
    print("written: " + ", ".join(map(str, report.write(stem))))
    return report
