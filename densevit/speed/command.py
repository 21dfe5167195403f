"""`densevit benchmark`: measure speed, and write a report."""

import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from densevit.api.types import Count

if TYPE_CHECKING:
    from densevit.speed.report import Report, Row
    from densevit.speed.settings import Settings

SECTIONS = ("inference", "training", "loader", "export", "scoring", "start-up")


def benchmark(
    *,
    sections: Sequence[str] = SECTIONS,
    output: str | Path = "runs/benchmarks",
    name: str = "benchmark",
    baseline: str | Path | None = None,
    depth_anything: str | Path | None = None,
    size: Literal["small", "base", "large"] = "small",
    image_sizes: Sequence[Count] = (518,),
    batch_sizes: Sequence[Count] = (1,),
    repeats: Count = 5,
    images: Count = 40,
    workers: Count = 2,
    threads: Count | None = None,
    device: str = "auto",
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto",
    compile: bool = False,
) -> str | None:
    """Measure the speed of densevit on this machine.

    Other implementations that can be imported here are measured as well. Writes a dated report as Markdown and JSON.
    Nothing is downloaded; weights are random, and the same for all.

    Args:
        sections: what to measure.
        output: folder for the report.
        name: name of the report, after the date.
        baseline: an earlier report (JSON): say what became slower.
        depth_anything: a clone of Depth-Anything-V2: the reference to run beside.
        size: size of the ViT.
        image_sizes: sides of square images.
        batch_sizes: images at once.
        repeats: timed rounds of each.
        images: number of images of the export.
        workers: workers of loader, export and scoring.
        threads: threads of torch; default: its own choice.
        device: auto, cpu, cuda or cuda:1.
        precision: precision of the models.
        compile: run densevit's network compiled, too.
    """
    clone, folder = None if depth_anything is None else Path(depth_anything), Path(output)
    check_options(sections, image_sizes, name, clone)
    import torch

    from densevit.speed.report import HARDWARE, Report, regressions, summarize_overlap
    from densevit.speed.settings import Settings
    from densevit.utils.atomic_io import check_can_create
    from densevit.utils.device import choose_device, resolve
    from densevit.utils.output import Outcome

    check_can_create(folder)
    before = Report.read(Path(baseline)) if baseline else None
    if threads:
        torch.set_num_threads(threads)
    resolved = choose_device(device)
    settings = Settings(
        device=resolved, precision=resolve(precision, resolved), size=size, sides=tuple(image_sizes),
        batches=tuple(batch_sizes), rounds=repeats, images=images, workers=workers, threads=torch.get_num_threads(),
        compile=compile, depth_anything=clone,
    )  # fmt: skip
    rows: list[Row] = []
    try:
        for row in measure(settings, sections):
            rows.append(row)
    except BaseException as error:  # a signal, too: what was measured so far took minutes
        if any(row.section != HARDWARE for row in rows):
            settings.absent.append(f"all further sections: {type(error).__name__} ended the run.")
            write_report(folder, name, settings, rows)
        raise
    report = write_report(folder, name, settings, rows)
    if before is None:
        return None
    worse = [f"slower: {line}" for line in regressions(before, report)]
    text = "\n".join([*worse, f"against {baseline}: {summarize_overlap(before, report)}."])
    return Outcome(text, 1 if worse else 0)


def check_options(sections: Sequence[str], image_sizes: Sequence[int], name: str, clone: Path | None) -> None:
    """Check all that can be wrong before the first section is timed. Raises ConfigError: no such section, or no such
    size, name or folder."""
    from densevit.errors import ConfigError

    if unknown := [section for section in sections if section not in SECTIONS]:
        raise ConfigError(f"--sections: {', '.join(unknown)}; there are {', '.join(SECTIONS)}.")
    if not sections:
        raise ConfigError(f"--sections: names none; there are {', '.join(SECTIONS)}.")
    if odd := [side for side in image_sizes if side % 14]:
        raise ConfigError(f"--image-sizes: {odd[0]} is no multiple of 14, the patch; {max(1, odd[0] // 14) * 14} fits.")
    if not name or Path(name).name != name:
        raise ConfigError(f"--name: {name!r} is no name of a file; --output is for the folder.")
    if clone is not None and not clone.is_dir():
        raise ConfigError(f"--depth-anything: {clone} is no folder.")


def measure(settings: "Settings", sections: "Sequence[str]") -> "Iterator[Row]":
    from densevit.speed import dataloader, export, hardware, inference, training

    measures = {
        "inference": inference.measure,
        "training": training.measure,
        "loader": dataloader.measure,
        "export": export.measure,
        "scoring": dataloader.measure_scoring,
        "start-up": hardware.measure_startup,
    }
    yield from hardware.peak_rates(settings.device, settings.rounds)
    for name in sections:
        print(f"{name} ...", file=sys.stderr, flush=True)
        yield from measures[name](settings)


def write_report(folder: Path, name: str, settings: "Settings", rows: "Sequence[Row]") -> "Report":
    """Print and write the report of what was measured."""
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
    stem = make_folder(folder) / f"{report.date}-{name}"
    stems = (Path(f"{stem}-{i}" if i > 1 else stem) for i in count(1))  # an earlier report of the day stays
    stem = next(path for path in stems if not Path(f"{path}.json").exists())
    print("written: " + ", ".join(map(str, report.write(stem))))
    return report
