"""A training in progress: its speed; warnings of loss spikes, outputs at an end or off by a factor, low memory."""

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.flop_counter import FlopCounterMode

from densevit.config.schema import TrainConfig
from densevit.engine.distributed import transformer_blocks
from densevit.engine.objective import Batches
from densevit.errors import ConfigError, Diverged
from densevit.structures import Batch, Row
from densevit.utils import atomic_io
from densevit.utils.device import Precision, is_out_of_memory
from densevit.utils.output import tqdm
from densevit.utils.process import peak_memory, print_once
from densevit.utils.process_group import ProcessGroup


class LossSpikeMonitor:
    """Warns of a loss that lies further over the median of the last ones than `factor` times any of them.

    Attributes:
        count: spikes so far.
    """

    def __init__(self, factor: float = 5.0, window: int = 50, least: int = 10) -> None:
        self.factor, self.least = factor, least
        self.recent: deque[float] = deque(maxlen=window)
        self.count = 0
        self.in_row = 0

    def __call__(self, loss: float) -> str | None:
        """Return the warning about this loss, if any."""
        usual = median(self.recent) if self.recent else 0.0
        reach = max([x - usual for x in self.recent] + [abs(usual) / 10])
        if len(self.recent) < self.least or loss <= usual + self.factor * reach or self.in_row >= self.least:
            self.recent.append(loss)
            self.in_row = 0
            return None
        self.count += 1
        self.in_row += 1
        return f"the loss is {loss:.4g}, where {usual:.4g} was usual"


class OutputSaturationMonitor:
    """Warns once of a head whose output lies at one end of its range, several times in a row.

    Args:
        ranges: the values that each head can give; None where they are not limited.
    """

    def __init__(self, ranges: Mapping[str, tuple[float, float] | None], share: float = 0.99, times: int = 3) -> None:
        self.ranges = {head: limits for head, limits in ranges.items() if limits is not None}
        self.share, self.times = share, times
        self.in_row = dict.fromkeys(self.ranges, 0)

    def __call__(self, predictions: Mapping[str, Tensor]) -> Iterator[str]:
        """Yield the warnings about these predictions."""
        for head in self.ranges.keys() & predictions.keys():
            if warning := self._check(head, predictions[head].detach().float()):
                yield warning

    def _check(self, head: str, values: Float[Tensor, "b ..."]) -> str | None:
        lower, upper = self.ranges[head]
        margin = 1e-3 * (upper - lower)
        ends = torch.stack([(values < lower + margin).float().mean(), (values > upper - margin).float().mean()])
        low, high = ends.tolist()
        self.in_row[head] = self.in_row[head] + 1 if max(low, high) >= self.share else 0
        if self.in_row[head] != self.times:
            return None
        end, share = ("lower", low) if low > high else ("upper", high)
        return (
            f"{share:.1%} of the predictions lie at the {end} end of the head's range ({lower:g} to {upper:g}): "
            "it has saturated and learns no more. Is the ground truth in the range's unit, and optim.lr low enough?"
        )


Map = Float[np.ndarray, "h w"]
SCALE = ("median ratio", "relative error", "relative error at that ratio")  # of an image's row, beside its scores


def with_scale(score: Callable[..., Row]) -> Callable[..., Row]:
    """Return scores of an image in metres: prediction, depth, valid -> row; with what `report_scale` needs."""

    def scored(prediction: Map, depth: Map, valid: Bool[np.ndarray, "h w"]) -> Row:
        row = score(prediction, depth, valid)
        usable: Bool[np.ndarray, "h w"] = valid & (prediction > 0) & np.isfinite(prediction)
        if not row or not usable.any():
            return row
        p, d = (values[usable][:: max(1, usable.sum() // 5000)] for values in (prediction, depth))
        ratio = float(np.median(p) / np.median(d))
        errors = (float(np.mean(np.abs(scaled - d) / d)) for scaled in (p, p / ratio))
        return row | dict(zip(SCALE, (ratio, *errors), strict=True))

    return scored


def report_scale(head: str, rows: Sequence[Row]) -> list[Row]:
    """Return the rows without what `with_scale` added; print a warning where the predictions of all images are off by
    one factor."""
    if scales := [[row[key] for key in SCALE] for row in rows if SCALE[0] in row]:
        ratios, before, after = np.array(scales).T
        ratio, spread = float(np.median(ratios)), float(np.std(np.log(ratios)))
        explained = before.mean() >= 2 * after.mean() and after.mean() <= 0.25 and spread <= 0.25
        if explained and abs(np.log(ratio)) >= np.log(1.2):
            print_once(
                f"warning: {head}: predictions are {ratio:.3g} times the ground truth: AbsRel {before.mean():.3f}, "
                f"and {after.mean():.3f} after median scaling. Look for another depth_scale in data.train than in "
                "data.val, a transform that zooms, or focal lengths (model.camera) of another image size."
            )
    return [{key: value for key, value in row.items() if key not in SCALE} for row in rows]


MAX_SKIPPED = {"fp16": 12, "bf16": 3, "tf32": 3, "fp32": 3}
"""Skipped steps in a row before a run ends. Under fp16 a few are normal: they find the scale of the loss."""
HINTS = {"fp16": "try precision=bf16"}


def check_max_skipped(in_row: int, limit: int | None, step: int, precision: str) -> None:
    """Raise Diverged: more skipped steps in a row than the limit."""
    if in_row > (limit or MAX_SKIPPED[precision]):
        hint = HINTS.get(precision, "try a lower optim.lr or a longer schedule.warmup")
        raise Diverged(
            f"{in_row} steps in a row were not finite, the last at step {step}; {hint}, "
            "and look at the images named above. The last good checkpoint is kept."
        )


def first_names(names: Sequence[str]) -> str:
    """Return the first eight of them."""
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")


GB = 2**30
SPARE = 0.9  # share of the memory that tensors can fill before fragments of it are of no use


@contextmanager
def explain_step_errors(run: TrainConfig, world: ProcessGroup) -> Iterator[None]:
    """Raise ConfigError: the step inside does not fit into memory, or has too few images for batch norm; which options
    to change, and to what."""
    cuda = world.device.type == "cuda"
    fixed = 0
    if cuda:
        torch.cuda.reset_peak_memory_stats(world.device)
        fixed = torch.cuda.memory_allocated(world.device)
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        total = used = 0
        if cuda:
            total = torch.cuda.get_device_properties(world.device).total_memory
            used = torch.cuda.max_memory_allocated(world.device)
        raise ConfigError(memory_advice(run, world.size, total=total, fixed=fixed, used=used)) from error
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ConfigError(
            f"batch_size: batch norm needs two images at once, and {run.batch_size} over {world.size} processes x "
            f"{run.grad_accum_steps} micro-batches are one. Raise it, lower grad_accum_steps, or take a decoder with "
            "another norm."
        ) from error


def memory_advice(run: TrainConfig, processes: int, *, total: int, fixed: int, used: int) -> str:
    """Return what to change so that a step fits.

    Args:
        total: bytes of the device; 0 where they are not known.
        fixed: bytes before the step: weights, moments of the optimiser.
        used: most bytes in the step, up to where it failed.
    """
    share, clip = run.batch_size // processes, run.data.clip
    images = share // run.grad_accum_steps
    said = f"a step of {images} images at once does not fit into memory"
    if total:
        said += f" ({total / GB:.1f} GB; {fixed / GB:.1f} before the step, {used / GB:.1f} when it ran out)"
    options = []
    if images > clip:
        # The step may have needed far more than it got to, so at most half as many.
        each = max(1, used - fixed) / images
        fitting = min(images // 2, int((SPARE * total - fixed) / each)) if total else images // 2
        fewer = max(n for n in range(clip, max(clip, fitting) + 1, clip) if share % n == 0)
        options.append(
            f"grad_accum_steps={share // fewer} ({fewer} images at once, the same step but for batch norm and what "
            "docs/scale.md lists)"
        )
    if not run.model.grad_checkpointing:
        options.append("model.grad_checkpointing=true (the encoder's blocks twice: about a third more time)")
    if images > clip:
        options.append(f"batch_size={processes * run.grad_accum_steps * fewer} (another training)")
    if processes > 1 and run.parallel == "ddp":
        options.append("parallel=fsdp (weights and moments shared out over the processes)")
    tried = "; or ".join(options) or "a smaller model, or smaller crops in data.transforms"
    return f"{said}. Take {tried}."


MOST_GRAPHS = 64  # of one function: each rate of stochastic depth, one a block, has its own


def compile_blocks(model: nn.Module, mode: bool | str = True) -> None:
    """Compile each repeated block in place, or a whole model that has none; before DDP or FSDP wrap it.

    The gradients of one block are then averaged while those of the next are computed. Blocks that are alike share one
    graph. `mode`: of torch.compile; True: its default.
    """
    # Not dynamic: torch 2.10 fails on symbolic sizes where images are padded.
    options: dict[str, Any] = {"dynamic": False, "recompile_limit": MOST_GRAPHS}
    options["mode"] = mode if isinstance(mode, str) else None
    for block in list(transformer_blocks(model)) or [model]:
        # Module.compile would take FSDP's hooks into the graph of an nn.Sequential, and break it at each.
        block.forward = torch.compile(block.forward, **options)


WARMUP = 2  # steps
COLUMNS = ("images_per_s", "data_wait", "mfu", "peak_memory_gb")

PEAKS = {
    "A10": 125, "A30": 165, "A40": 149.7, "A100": 312, "A6000": 154.8, "L4": 121, "L40": 181, "L40S": 362, "H20": 148,
    "H100": 989, "H100 PCIe": 756, "H100 NVL": 835, "H200": 989, "B200": 2250, "RTX 3090": 71, "RTX 4090": 165,
}  # fmt: skip
"""Words of a device's name -> TFLOP/s of dense products in bf16 and fp16 with sums in fp32, by NVIDIA's data sheets."""


def peak_flops(device_name: str, precision: Precision) -> float | None:
    """Return the operations a second of a device; None where they are not known. TF32 has half the rate of bf16."""
    named = set(re.findall(r"\w+", device_name))
    known = [words for words in PEAKS if named.issuperset(words.split())]
    if not known or "Laptop" in named or precision == "fp32":
        return None
    return PEAKS[max(known, key=len)] * 1e12 * (0.5 if precision == "tf32" else 1)


@dataclass
class TimedSteps:
    """Some steps, and their seconds with those of them in which the host waited for data."""

    steps: int = 0
    seconds: float = 0.0
    waited: float = 0.0

    def add(self, seconds: float, waited: float) -> None:
        self.steps, self.seconds, self.waited = self.steps + 1, self.seconds + seconds, self.waited + waited


class Throughput:
    """The batches of a training, and the speed of the steps that take them.

    The first two steps, which compile and choose algorithms, count only until there is a third. On devices of `PEAKS`
    the operations of the first, which is not compiled, are counted, with those that `grad_checkpointing` repeats.
    """

    def __init__(self, run: TrainConfig, device: torch.device, precision: Precision, batches: Batches) -> None:
        self.images, self.device, self.batches = run.batch_size, device, batches
        self.peak = peak_flops(torch.cuda.get_device_name(device), precision) if device.type == "cuda" else None
        self.flops, self.waited, self.warming_up = 0, 0.0, True
        self.recent, self.whole = TimedSteps(), TimedSteps()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        began = time.perf_counter()
        batch = next(self.batches)
        self.waited += time.perf_counter() - began
        return batch

    def close(self) -> None:
        self.batches.close()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Time a step; validation and saving lie outside."""
        if self.warming_up and self.whole.steps == WARMUP:
            self.recent, self.whole, self.warming_up = TimedSteps(), TimedSteps(), False
        counts = self.peak and not self.flops
        waited, began = self.waited, time.perf_counter()
        with FlopCounterMode(display=False) if counts else nullcontext() as counter:
            yield
        seconds = time.perf_counter() - began
        if counter is not None:
            self.flops = counter.get_total_flops()
        for interval in (self.recent, self.whole):
            interval.add(seconds, self.waited - waited)

    def row(self) -> dict[str, float]:
        """Return columns of `train.csv` for the steps since the last call."""
        recent, self.recent = self.recent, TimedSteps()
        return self._values(recent)

    def summary(self) -> str:
        """Return the speed of the whole run as a line."""
        return f"speed       {format_speed(self._values(self.whole))}"

    def _values(self, part: TimedSteps) -> dict[str, float]:
        seconds = max(part.seconds, 1e-9)
        values = {"images_per_s": self.images * part.steps / seconds, "data_wait": part.waited / seconds}
        if self.peak:
            values["mfu"] = self.flops * part.steps / seconds / self.peak
        cuda = self.device.type == "cuda"
        peak = torch.cuda.max_memory_allocated(self.device) if cuda else peak_memory()
        return values if peak is None else values | {"peak_memory_gb": peak / 2**30}


def format_speed(values: Mapping[str, float | None]) -> str:
    """Return the columns of a row that are there as a short text."""
    forms = {
        "images_per_s": "{:.3g} images/s", "mfu": "MFU {:.0%}", "data_wait": "{:.0%} waiting for data",
        "peak_memory_gb": "{:.2g} GB",
    }  # fmt: skip
    return ", ".join(form.format(value) for name, form in forms.items() if (value := values.get(name)) is not None)


BEFORE, WARMUP, STEPS = 3, 2, 5


@contextmanager
def profiled(run: TrainConfig, world: ProcessGroup, start: int) -> Iterator[Callable[[], object]]:
    """Yield what is called after each step. The first process writes five steps, after five others, to
    `profile/from-step-6.json` in the run's folder. `start`: steps that were taken before."""
    if not world.is_main:
        yield lambda: None
        return
    first = start + BEFORE + WARMUP + 1
    path = run.output / "profile" / f"from-step-{first}.json"
    path.unlink(missing_ok=True)

    def write(trace: profile) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_io.atomic_path(path) as unfinished:
            trace.export_chrome_trace(str(unfinished))

    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if world.device.type == "cuda" else [])]
    when = schedule(wait=BEFORE, warmup=WARMUP, active=STEPS, repeat=1)
    with profile(activities=kinds, schedule=when, on_trace_ready=write) as trace:
        yield trace.step
    written = f"{path}  (open in https://ui.perfetto.dev)"
    tqdm.write(f"profile     {written if path.exists() else f'none: the run ended before step {first}'}")
