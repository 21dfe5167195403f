"""The machine that a report is of: what it is, and the floors under every time measured on it."""

import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import torch

import densevit
from densevit.benchmarking.report import Row
from densevit.benchmarking.turns import Spread, take_turns
from densevit.ops.precision import DTYPES, resolve

SIDE = 2048  # of the matrices: larger than any cache, and what the rate no longer grows with
SIDE_CUDA = 8192
COPIED = 2**28  # bytes


def describe(device: torch.device) -> dict[str, Any]:
    """What a reader needs to know to repeat a report elsewhere."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "bf16": resolve("auto", device) == "bf16",
        "amx": torch.cpu._is_amx_tile_supported(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": {"densevit": densevit.__version__, "torch": torch.__version__, "opencv": cv2.__version__},
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def floors(device: torch.device, rounds: int) -> Iterator[Row]:
    """What this machine can do at best: products of large square matrices, and a copy of memory."""
    side = SIDE_CUDA if device.type == "cuda" else SIDE
    products = {name: product(side, name, device) for name in ("fp32", "bf16")}
    source = torch.empty(COPIED, dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    seconds = take_turns({**products, "copy": lambda: target.copy_(source)}, max(rounds, 5), warm=2)
    for name in products:
        rate = Spread.of([2 * side**3 / s / 1e9 for s in seconds[name]])
        yield Row("floors", f"{side} x {side} matrix product", name, rate, "GFLOP/s", better="higher")
    rate = Spread.of([2 * COPIED / s / 1e9 for s in seconds["copy"]])
    yield Row("floors", "memory copy, read and written", "bytes", rate, "GB/s", better="higher")


def product(side: int, precision: str, device: torch.device) -> Callable[[], object]:
    a = torch.randn(side, side, device=device).to(DTYPES[precision])  # type: ignore[index]
    out = torch.empty_like(a)
    return lambda: torch.mm(a, a, out=out)


def peaks(rows: list[Row]) -> dict[str, float]:
    """The matrix-product rate of each number format, in GFLOP/s."""
    return {row.who: row.value.middle for row in rows if row.section == "floors" and row.unit == "GFLOP/s"}
