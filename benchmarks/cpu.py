"""The CPU table on a machine that other programs use, too: processor seconds of one thread, which they do not stretch.

python benchmarks/cpu.py --depth-anything CLONE [--repeats 3]    # writes benchmarks/DATE-cpu.md and .json

As `densevit benchmark`, with the processor's clock in place of the wall's; then the seconds that a conversion takes,
which `runtime: auto` reckons with (densevit/inference/backends/auto.py).
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import torch

from densevit.benchmark import hardware, inference, timing, training
from densevit.benchmark.reference_models import our_network
from densevit.benchmark.report import Report, Row, three_digits
from densevit.benchmark.settings import Settings
from densevit.benchmark.timing import Spread
from densevit.inference.backends.graph_cache import VARIABLE
from densevit.inference.backends.onnx_runtimes import RUNTIMES, ExternalRuntimeModule
from densevit.utils.malloc import tune_malloc
from densevit.utils.precision import resolve

SIDE = 518
REFERENCE, OURS = "Depth Anything V2, reference, fp32", "densevit"
CASE, STEP = f"{SIDE} x {SIDE}, batch 1", f"step of {training.BATCH} x {training.HEIGHT} x {training.WIDTH}"


def conversions(sizes: tuple[str, ...]) -> Iterator[Row]:
    """A network for one size of images by OpenVINO: converted, and opened again from the cache on disk."""
    image = torch.zeros(1, 3, SIDE, SIDE)
    for size in sizes:
        model, _ = our_network(size)
        parameters = sum(p.numel() for p in model.parameters()) / 1e6
        with TemporaryDirectory() as folder:
            os.environ[VARIABLE] = folder
            for who in ("converted", "from the cache"):
                module = ExternalRuntimeModule(model, ["depth"], RUNTIMES["openvino"], "fp32")
                seconds = timing.time_once(partial(module.convert, image, None))
                case = f"ViT and DPT of {parameters:.0f} M parameters, {SIDE} x {SIDE}"
                yield Row("start by OpenVINO", case, who, Spread.of([seconds]), "s")


GROUPS = {
    "matrix products of linear layers": ("aten::mm", "aten::addmm"),
    "matrix products of attention": ("aten::bmm",),
    "convolutions": ("aten::convolution_backward", "aten::mkldnn_convolution"),
    "softmax of attention": ("aten::_softmax", "aten::_softmax_backward_data"),
    "copies and casts": ("aten::copy_", "aten::_to_copy", "aten::clone"),
    "AdamW and clipping": ("aten::_fused_adamw_", "aten::linalg_vector_norm", "aten::_foreach_mul_"),
}


def profile_step(settings: Settings) -> Iterator[Row]:
    """Where the seconds of our training step go, by torch's profiler."""
    step = training.prepare(settings, f"{OURS}, {settings.precision}")
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    own = {event.key: event.self_cpu_time_total for event in profile.key_averages()}
    total = sum(own.values())
    shares = {group: sum(own.get(name, 0.0) for name in names) / total for group, names in GROUPS.items()}
    for group, share in {**shares, "everything else": 1 - sum(shares.values())}.items():
        yield Row("profile of the training step", STEP, group, Spread.of([100 * share]), "%")


def goals(rows: list[Row]) -> list[str]:
    """What was aimed at, beside what was measured."""
    times = {(row.case, row.who): row.faster.middle for row in rows if row.faster is not None}
    memory = {row.who: row.note for row in rows if row.unit == "MB"}

    def ratio(case: str, who: str, over: str = REFERENCE) -> str:
        if {(case, who), (case, over)} <= times.keys():
            return f"{times[case, who] / times[case, over]:.2f} x"
        return "not run"

    table = [
        ("inference in bf16 by torch", "7 x with AMX, which this machine lacks", ratio(CASE, f"{OURS}, bf16")),
        ("inference in bf16 by OpenVINO", "", ratio(CASE, f"{OURS} by OpenVINO, bf16")),
        ("inference in fp32 by torch", "2.1 x", ratio(CASE, f"{OURS}, fp32")),
        ("the same, against ONNX Runtime", "1 x", ratio(CASE, f"{OURS}, fp32", "ONNX Runtime, fp32")),
        ("inference in fp32 by OpenVINO", "", ratio(CASE, f"{OURS} by OpenVINO, fp32")),
        ("training step in bf16", "3.5 x", ratio(STEP, f"{OURS}, bf16")),
        ("its memory", "half", memory.get(f"{OURS}, bf16", "not run")),
    ]
    lines = ["## Goals", "", "| what | goal | measured |", "|---|---|---|"]
    return [*lines, *(f"| {what} | {goal} | {found} |" for what, goal, found in table), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth-anything", type=Path, metavar="DIR", help="a clone of Depth-Anything-V2")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sections", default="inference,training,profile,conversion", metavar="A,B")
    parser.add_argument("--sizes", default="small,base", metavar="A,B", help="of the networks that are converted")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, metavar="DIR")
    args = parser.parse_args()
    timing.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[attr-defined]
    torch.set_num_threads(1)
    tune_malloc()
    device = torch.device("cpu")
    settings = Settings(
        device, resolve("auto", device), rounds=args.repeats, depth_anything=args.depth_anything, sides=(SIDE,)
    )
    sections = {
        "inference": partial(inference.measure, settings),
        "training": partial(training.measure, settings),
        "profile": partial(profile_step, settings),
        "conversion": partial(conversions, tuple(args.sizes.split(","))),
    }
    rows = list(hardware.peak_rates(device, args.repeats))
    for name in args.sections.split(","):
        for row in sections[name]():
            rows.append(row)
            print(row.case, row.who, three_digits(row.value.middle), row.unit, row.note, file=sys.stderr, flush=True)
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    command = f"python benchmarks/cpu.py {' '.join(sys.argv[1:])}"
    report = Report(date, command, hardware.describe(device), rows, settings.absent)
    markdown, _ = report.write(args.output / f"{date}-cpu")
    note = "Seconds are those of the processor, of one thread (`time.process_time`).\n\n"
    markdown.write_text(report.markdown().replace("\n## ", f"\n{note}## ", 1) + "\n" + "\n".join(goals(rows)))
    print(markdown.read_text())


if __name__ == "__main__":
    main()
