"""The CPU table: one image and one training step by the reference code, by ours and by other runtimes, in turns.

python benchmarks/cpu.py --depth-anything CLONE [--threads 1,2] [--repeats 3]    # writes benchmarks/DATE-cpu.md

Each by the clock and by the processor's time, which other programs on the machine stretch less. Int8 needs
`densevit[int8]`. About eight minutes on two free cores; --sections leaves parts out.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
import torch

from densevit.benchmark import hardware, inference, reference_models, timing, training
from densevit.benchmark.reference_models import ReferenceModel, our_network
from densevit.benchmark.report import three_digits
from densevit.benchmark.settings import Settings
from densevit.inference.backends.graph_cache import VARIABLE
from densevit.inference.backends.onnx_runtimes import RUNTIMES, ExternalRuntimeModule
from densevit.inference.onnx import quantize
from densevit.inference.onnx.graph import NamedOutputs, save_graph
from densevit.utils.packages import is_installed
from densevit.utils.precision import resolve
from densevit.utils.tuning import tune_malloc

SIDE = 518
REFERENCE = "Depth Anything V2, reference, fp32"
UNTUNED = f"{REFERENCE}, with glibc's own settings"
Clocks = tuple[float, float]  # seconds by the clock and of the processor
Table = dict[str, dict[int, list[Clocks]]]  # implementation -> threads -> rounds

GROUPS = {
    "products of linear layers": ("aten::mm", "aten::addmm"),
    "products of attention": ("aten::bmm",),
    "convolutions": ("aten::convolution_backward", "aten::mkldnn_convolution"),
    "softmax of attention": ("aten::_softmax", "aten::_softmax_backward_data"),
    "softmax backward, scales (mul_, sub_)": ("aten::mul_", "aten::sub_"),
    "copies and casts": ("aten::copy_", "aten::_to_copy", "aten::clone", "aten::cat", "aten::fill_", "aten::zero_"),
    "GELU and ReLU": (
        "aten::gelu", "aten::gelu_backward", "aten::threshold_backward", "aten::clamp_min_", "aten::clamp_min",
    ),
    "residual sums, LayerScale, bias gradients": ("aten::add", "aten::add_", "aten::mul", "aten::sum"),
    "layer norm": ("aten::native_layer_norm", "aten::native_layer_norm_backward"),
    "interpolation": (
        "aten::upsample_bilinear2d", "aten::upsample_bilinear2d_backward", "aten::_upsample_bicubic2d_aa",
        "aten::_upsample_bicubic2d_aa_backward",
    ),
    "AdamW and clipping": ("aten::_fused_adamw_", "aten::linalg_vector_norm", "aten::_foreach_mul_"),
}  # fmt: skip


def both_clocks(work: Callable[[], object]) -> Clocks:
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


@dataclass
class Results:
    """What the report says, filled on the way."""

    settings: Settings
    passes: Table = field(default_factory=dict)
    steps: Table = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    memory: dict[str, float | None] = field(default_factory=dict)
    profile: list[tuple[str, float]] = field(default_factory=list)
    conversions: list[tuple[str, str, Clocks]] = field(default_factory=list)
    flops: float = 0.0

    def add(self, table: Table, threads: int, seconds: Mapping[str, list[Clocks]]) -> None:
        for name, values in seconds.items():
            table.setdefault(name, {})[threads] = values
            shown = ", ".join(f"{clock:.2f}/{processor:.2f}" for clock, processor in values)
            print(f"{threads} threads, {name}: {shown}", file=sys.stderr, flush=True)


def untuned(results: Results, reference: ReferenceModel, threads: Sequence[int], sections: Sequence[str]) -> None:
    """The reference before `tune_malloc`, as its users run it; not in turns with the others."""
    image = torch.rand(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    works: dict[str, tuple[Table, Callable[[], object]]] = {}
    if "inference" in sections:
        works["inference"] = (results.passes, torch.inference_mode()(lambda: reference(image)))
    if "training" in sections:
        works["training"] = (results.steps, training.prepare(results.settings, training.REFERENCE))
    for table, work in works.values():
        for count in threads:
            torch.set_num_threads(count)
            rounds = results.settings.rounds if table is results.passes else 1
            seconds = timing.time_interleaved({UNTUNED: work}, rounds, timer=both_clocks)
            results.add(table, count, seconds)


def passes(results: Results, reference: ReferenceModel, threads: Sequence[int]) -> None:
    """One image, and the matrix products of which its rate is a share."""
    settings = results.settings
    with TemporaryDirectory() as folder, torch.inference_mode():
        files = int8_files(reference, Path(folder)) if is_installed("nncf") else {}
        for count in threads:
            torch.set_num_threads(count)
            ready = inference.prepare_size(settings, [reference], SIDE, 1, Path(folder))
            forwards: dict[str, Any] = {**ready.forwards, **int8_forwards(files)}
            results.notes |= ready.notes
            results.flops = ready.flops
            products = {f"product, {name}": hardware.matrix_product(name, settings.device) for name in ("fp32", "bf16")}
            a = torch.randint(-9, 9, (hardware.SIDE, hardware.SIDE), dtype=torch.int8)
            products["product, int8"] = lambda a=a: torch._int_mm(a, a)  # type: ignore[misc]
            seconds = timing.time_interleaved({**forwards, **products}, settings.rounds, timer=both_clocks)
            results.add(results.passes, count, seconds)


def int8_files(reference: ReferenceModel, folder: Path) -> dict[str, Path]:
    """Our network as `export-onnx --precision int8` quantises it, by recipe; weights are random, so no budget."""
    ours = reference.as_densevit(folder)
    plain = folder / "fp32.onnx"
    save_graph(NamedOutputs(ours, list(ours.heads)), (torch.zeros(1, 3, SIDE, SIDE),), plain)
    random = np.random.default_rng(0)
    images = [
        cv2.resize(random.random((8, 8, 3), dtype=np.float32), (SIDE, SIDE)).transpose(2, 0, 1)[None].copy()
        for _ in range(4)
    ]
    files = {recipe: folder / f"{index}.onnx" for index, recipe in enumerate(quantize.RECIPES)}
    for recipe, path in files.items():
        quantize.quantize(plain, path, recipe, images, {})
    return files


def int8_forwards(files: Mapping[str, Path]) -> dict[str, Callable[[], object]]:
    image = np.random.default_rng(0).random((1, 3, SIDE, SIDE), dtype=np.float32)
    runs: dict[str, Callable[[], object]] = {}
    for recipe, path in files.items():
        for name, runtime, precision in (
            ("OpenVINO", "openvino", "bf16"),
            ("OpenVINO", "openvino", "fp32"),
            ("ONNX Runtime", "onnxruntime", "fp32"),
        ):
            if all(map(is_installed, RUNTIMES[runtime].needs)):
                run = RUNTIMES[runtime].open(path, precision)  # type: ignore[arg-type]
                runs[f"densevit by {name}, {recipe}, rest {precision}"] = partial(run, image)
    return runs


def steps(results: Results, threads: Sequence[int]) -> None:
    """One training step, and the memory that it takes in a fresh process."""
    settings = results.settings
    names = (training.REFERENCE, f"densevit, {settings.precision}")
    works = {name: training.prepare(settings, name) for name in names}
    for count in threads:
        torch.set_num_threads(count)
        seconds = timing.time_interleaved(works, max(1, settings.rounds - 1), timer=both_clocks)
        results.add(results.steps, count, seconds)
    works.clear()
    results.memory = {name: timing.peak_memory_growth(training.prepare, settings, name) for name in names}


def profile(results: Results) -> None:
    """Where the seconds of our training step go on one thread, by torch's profiler."""
    torch.set_num_threads(1)
    step = training.prepare(results.settings, f"densevit, {results.settings.precision}")
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        step()
    own = {event.key: event.self_cpu_time_total for event in found.key_averages()}
    total = sum(own.values())
    shares = {group: sum(own.pop(name, 0.0) for name in names) / total for group, names in GROUPS.items()}
    results.profile = sorted(shares.items(), key=lambda item: -item[1])
    largest = max(own, key=lambda name: own[name])
    results.profile.append(
        (
            f"{len(own)} others, Python among them; the largest, `{largest}`, {own[largest] / total:.1%}",
            1 - sum(shares.values()),
        )
    )


def conversions(results: Results, sizes: Sequence[str]) -> None:
    """A network for one size of images by OpenVINO: converted, and opened again from the cache on disk."""
    torch.set_num_threads(1)
    image = torch.zeros(1, 3, SIDE, SIDE)
    for size in sizes:
        model, _ = our_network(size)
        parameters = sum(p.numel() for p in model.parameters()) / 1e6
        with TemporaryDirectory() as folder:
            os.environ[VARIABLE] = folder
            for who in ("converted", "from the cache"):
                module = ExternalRuntimeModule(model, ["depth"], RUNTIMES["openvino"], "fp32")
                seconds = both_clocks(partial(module.convert, image, None))
                results.conversions.append((f"{parameters:.0f} M parameters", who, seconds))


def middle(values: Sequence[Clocks], clock: int) -> float:
    return median(value[clock] for value in values)


def times_faster(table: Table, name: str, threads: int, clock: int, over: str = REFERENCE) -> float | None:
    """The median of the ratios round by round; the ratio of the medians, where the rounds are not the same."""
    a, b = table.get(over, {}).get(threads), table.get(name, {}).get(threads)
    if not a or not b:
        return None
    if over == UNTUNED or len(a) != len(b):
        return middle(a, clock) / middle(b, clock)
    return median(x[clock] / y[clock] for x, y in zip(a, b, strict=True))


def cell(table: Table, name: str, threads: int, clock: int) -> str:
    values, ratio = table[name].get(threads), times_faster(table, name, threads, clock)
    if not values:
        return ""
    return f"{three_digits(middle(values, clock))} s" + ("" if ratio is None else f", {ratio:.2f} x")


def table_lines(table: Table, threads: Sequence[int], notes: Mapping[str, str]) -> Iterator[str]:
    columns = [(count, clock) for count in threads for clock in (0, 1)]
    heads = [f"{count} thread{'s' * (count > 1)}, {('by the clock', 'processor')[clock]}" for count, clock in columns]
    yield f"| | {' | '.join(heads)} | |"
    yield "|" + "---|" * (len(columns) + 2)
    for name in table:
        if not name.startswith("product"):
            cells = " | ".join(cell(table, name, *column) for column in columns)
            yield f"| {name} | {cells} | {notes.get(name, '')} |"


def rates(results: Results, threads: int) -> Iterator[str]:
    """The rates of large products, and how long one image takes at them: a bound for any implementation."""
    yield f"| 2048 x 2048 product, {threads} thread{'s' * (threads > 1)}, processor | rate | an image at that rate |"
    yield "|---|---|---|"
    for name in results.passes:
        if name.startswith("product"):
            seconds = middle(results.passes[name][threads], 1)
            bound = results.flops * seconds / hardware.matrix_product_flops(results.settings.device)
            faster = [middle(results.passes[over][threads], 1) / bound for over in (REFERENCE, UNTUNED)]
            rate = results.flops / bound / 1e9
            yield (
                f"| {name.removeprefix('product, ')} | {rate:.0f} GFLOP/s | {three_digits(bound)} s: "
                f"{faster[0]:.1f} x the reference, {faster[1]:.1f} x with glibc's own settings |"
            )


def goals(results: Results, threads: Sequence[int]) -> Iterator[str]:
    columns = [(count, clock) for count in threads for clock in (0, 1)]
    heads = [f"{count} thread{'s' * (count > 1)}, {('by the clock', 'processor')[clock]}" for count, clock in columns]
    int8 = [name for name in results.passes if "int8, rest" in name]
    fastest = min(int8, key=lambda name: middle(results.passes[name][threads[-1]], 0), default="")
    asked = [
        ("an image in int8, the fastest way", "7 x", results.passes, fastest, UNTUNED),
        ("", "", results.passes, fastest, REFERENCE),
        ("in bf16 by OpenVINO", "", results.passes, "densevit by OpenVINO, bf16", UNTUNED),
        ("", "", results.passes, "densevit by OpenVINO, bf16", REFERENCE),
        ("in bf16 by torch", "7 x with AMX", results.passes, "densevit, bf16", UNTUNED),
        ("", "", results.passes, "densevit, bf16", REFERENCE),
        ("in fp32 by torch", "2.1 x", results.passes, "densevit, fp32", UNTUNED),
        ("", "", results.passes, "densevit, fp32", REFERENCE),
        ("", "1 x", results.passes, "densevit, fp32", "ONNX Runtime, fp32"),
        ("a training step in bf16", "3.5 x", results.steps, "densevit, bf16", UNTUNED),
        ("", "", results.steps, "densevit, bf16", REFERENCE),
    ]
    yield f"| what | goal | against | {' | '.join(heads)} |"
    yield "|" + "---|" * (len(columns) + 3)
    for what, goal, table, name, over in asked:
        ratios = [times_faster(table, name, *column, over) for column in columns]
        yield f"| {what} | {goal} | {over} | {' | '.join('not run' if r is None else f'{r:.2f} x' for r in ratios)} |"
    a, b = (results.memory.get(name) for name in (training.REFERENCE, f"densevit, {results.settings.precision}"))
    if a and b:
        yield f"| memory of the step | half | {REFERENCE} | {b / a:.2f}: {b:.0f} of {a:.0f} MB |" + " |" * (
            len(columns) - 1
        )


def report(results: Results, threads: Sequence[int]) -> str:
    machine = hardware.describe(results.settings.device)
    about = ", ".join(
        f"{key} {value}" for key, value in {**machine, **machine["versions"]}.items() if key != "versions"
    )
    lines = [
        f"# A CPU with AVX512-BF16, {datetime.now(UTC):%Y-%m-%d}", "",
        f"`python benchmarks/cpu.py {' '.join(sys.argv[1:])}`", "", f"Machine: {about.replace('threads 1, ', '')}.", "",
        f"ViT-S/14 and DPT with Depth Anything V2's widths and random weights, {SIDE} x {SIDE}. Implementations run in "
        f"turns; a cell is the median of {results.settings.rounds} rounds (of training steps one less), and how many "
        "times as fast as the reference in fp32, round by round. All share one process and our setting of the "
        "allocator (`tune_malloc`), but for the row that says otherwise, which ran before.", "",
    ]  # fmt: skip
    lines += [f"Not run: {reason}" for reason in results.settings.absent] + [""] * bool(results.settings.absent)
    sections: list[tuple[str, Sequence[str]]] = [("Goals", list(goals(results, threads)))]
    if results.passes:
        sections.append(("One image", list(table_lines(results.passes, threads, results.notes))))
        sections.append(("Bounds", list(rates(results, threads[0]))))
    if results.steps:
        size = f"{training.BATCH} x {training.HEIGHT} x {training.WIDTH}"
        sections.append((f"One training step of {size}", list(table_lines(results.steps, threads, {}))))
    if results.profile:
        rows = [f"| {name} | {share:.1%} |" for name, share in results.profile]
        sections.append(("Profile of our training step in bf16, one thread", ["| what | share |", "|---|---|", *rows]))
    if results.conversions:
        rows = [f"| {case} | {who} | {clock:.2f} s | {cpu:.2f} s |" for case, who, (clock, cpu) in results.conversions]
        head = ["| network | start by OpenVINO | by the clock | processor |", "|---|---|---|---|"]
        sections.append(("Start by OpenVINO, one thread", [*head, *rows]))
    for title, body in sections:
        lines += [f"## {title}", "", *body, ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--depth-anything", type=Path, required=True, metavar="DIR", help="a clone of Depth-Anything-V2"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", default="1,2", metavar="N,N")
    parser.add_argument("--sections", default="inference,training,profile,conversion", metavar="A,B")
    parser.add_argument("--sizes", default="small,base", metavar="A,B", help="of the networks that are converted")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, metavar="DIR")
    args = parser.parse_args()
    threads, sections = [int(count) for count in args.threads.split(",")], args.sections.split(",")
    device = torch.device("cpu")
    settings = Settings(device, resolve("auto", device), rounds=args.repeats, depth_anything=args.depth_anything)
    results = Results(settings)
    reference = reference_models.depth_anything(settings.size, settings.depth_anything)
    if not is_installed("nncf"):
        settings.absent.append("int8: pip install 'densevit[int8]'")
    began = time.perf_counter()
    untuned(results, reference, threads, sections)
    tune_malloc()
    for name, work in {
        "inference": partial(passes, results, reference, threads),
        "training": partial(steps, results, threads),
        "profile": partial(profile, results),
        "conversion": partial(conversions, results, args.sizes.split(",")),
    }.items():
        if name in sections:
            work()
            print(f"{name}: after {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    text = report(results, threads)
    (args.output / f"{datetime.now(UTC):%Y-%m-%d}-cpu.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
