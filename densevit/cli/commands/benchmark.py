"""Measure how fast densevit is on this machine, beside the other implementations that can be imported here.

Writes a dated report as Markdown and JSON. Nothing is downloaded; weights are random, and the same for all.
"""

import argparse
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from densevit.cli.options.types import positive_int, positive_ints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from densevit.benchmark.report import Report, Row
    from densevit.benchmark.settings import Settings

SECTIONS = ("inference", "training", "loader", "export", "scoring", "start-up")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sections", default=",".join(SECTIONS), metavar="A,B", help=f"of {', '.join(SECTIONS)} (all)")
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
    parser.add_argument("--repeats", type=positive_int, default=5, metavar="N", help="turns of each contestant (5)")
    parser.add_argument("--images", type=positive_int, default=40, metavar="N", help="of the export (40)")
    parser.add_argument(
        "--workers", type=positive_int, default=2, metavar="N", help="of loader, export and scoring (2)"
    )
    parser.add_argument("--threads", type=positive_int, metavar="N", help="of torch; default: its own choice")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 (auto)")
    parser.add_argument("--precision", default="auto", choices=("auto", "fp32", "bf16", "fp16"))
    parser.add_argument("--compile", action="store_true", help="run our network compiled, too")


def run(args: argparse.Namespace) -> int:
    wanted = sections_of(args)
    from densevit.benchmark.report import Report, compared, regressions
    from densevit.utils.atomic_io import check_can_create

    check_can_create(args.output)
    before = Report.read(args.baseline) if args.baseline else None
    settings = chosen(args)
    rows: list[Row] = []
    try:
        for row in measured(settings, wanted):
            rows.append(row)
    except BaseException as error:  # a signal, too: what was measured until then took minutes
        if any(row.section != "floors" for row in rows):
            settings.absent.append(f"what was to follow, {type(error).__name__} ended this run.")
            keep(args, settings, rows)
        raise
    report = keep(args, settings, rows)
    if before is None:
        return 0
    worse = list(regressions(before, report))
    print(*[f"slower: {line}" for line in worse], sep="\n", end="\n" if worse else "")
    print(f"against {args.baseline}: {compared(before, report)}.")
    return 1 if worse else 0


def sections_of(args: argparse.Namespace) -> list[str]:
    """The sections that are wanted; all that can be wrong is told before the first is timed.

    Raises:
        ConfigError: no such section, or no such size, name or folder.
    """
    from densevit.errors import ConfigError

    wanted = list(dict.fromkeys(name.strip() for name in args.sections.split(",") if name.strip()))
    if unknown := [name for name in wanted if name not in SECTIONS]:
        raise ConfigError(f"--sections: {', '.join(unknown)}; there are {', '.join(SECTIONS)}.")
    if not wanted:
        raise ConfigError(f"--sections: names none; there are {', '.join(SECTIONS)}.")
    if odd := [side for side in args.image_sizes if side % 14]:
        raise ConfigError(f"--sides: {odd[0]} is no multiple of 14, the patch; {max(1, odd[0] // 14) * 14} fits.")
    if not args.name or Path(args.name).name != args.name:
        raise ConfigError(f"--name: {args.name!r} is no name of a file; --output is for the folder.")
    if args.depth_anything and not args.depth_anything.is_dir():
        raise ConfigError(f"--depth-anything: {args.depth_anything} is no folder.")
    return wanted


def chosen(args: argparse.Namespace) -> "Settings":
    import torch

    from densevit.benchmark.settings import Settings
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


def measured(settings: "Settings", wanted: list[str]) -> "Iterator[Row]":
    import sys

    from densevit.benchmark import hardware

    yield from hardware.floors(settings.device, settings.rounds)
    for name in wanted:
        print(f"{name} ...", file=sys.stderr, flush=True)
        yield from sections(settings)[name]()


def keep(args: argparse.Namespace, settings: "Settings", rows: "Sequence[Row]") -> "Report":
    """Prints and writes what was measured."""
    import sys
    from datetime import UTC, datetime

    from densevit.benchmark import hardware
    from densevit.benchmark.report import Report
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
    free = (Path(f"{stem}-{i}" if i > 1 else stem) for i in count(1))  # the one before took minutes, too
    stem = next(place for place in free if not Path(f"{place}.json").exists())
    print("written: " + ", ".join(map(str, report.write(stem))))
    return report


def sections(settings: "Settings") -> "dict[str, Callable[[], Iterator[Row]]]":
    from densevit.benchmark import dataloader, evaluation, export, inference, startup, training

    return {
        "inference": lambda: inference.measure(settings),
        "training": lambda: training.measure(settings),
        "loader": lambda: dataloader.measure(settings),
        "export": lambda: export.measure(settings),
        "scoring": lambda: evaluation.measure(settings),
        "start-up": lambda: startup.measure(settings),
    }
