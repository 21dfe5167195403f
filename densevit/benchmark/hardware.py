"""The machine that a report is of: what it is, and the floors under every time measured on it."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import torch

import densevit
from densevit.benchmark.interleaved_timing import Spread, Work, take_turns
from densevit.benchmark.report import Row
from densevit.utils.precision import DTYPES, resolve

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
    products = {name: product(name, device) for name in ("fp32", "bf16")}
    source = torch.empty(COPIED, dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    seconds = take_turns({**products, "copy": lambda: target.copy_(source)}, max(rounds, 5), warm=2)
    flops = product_flops(device)
    for name in products:
        rate = Spread.of(seconds[name]).map(lambda s: flops / s / 1e9)
        yield Row("floors", f"{side_of(device)} x {side_of(device)} matrix product", name, rate, "GFLOP/s", "higher")
    rate = Spread.of(seconds["copy"]).map(lambda s: 2 * COPIED / s / 1e9)
    yield Row("floors", "memory copy, read and written", "bytes", rate, "GB/s", better="higher")


def side_of(device: torch.device) -> int:
    return SIDE_CUDA if device.type == "cuda" else SIDE


def product_flops(device: torch.device) -> float:
    """Of one `product`, a multiplication and an addition counting two."""
    return 2.0 * side_of(device) ** 3


def product(precision: str, device: torch.device) -> Work:
    """A matrix product in a number format, ready to run."""
    side = side_of(device)
    a = torch.randn(side, side, device=device).to(DTYPES[precision])
    out = torch.empty_like(a)
    return lambda: torch.mm(a, a, out=out)
