"""The machine that a report is of: what it is, its peak rates, and how long commands take to start."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import torch

import densevit
from densevit.speed.report import HARDWARE, Row
from densevit.speed.settings import Settings
from densevit.speed.timing import Spread, Work, time_interleaved
from densevit.utils.device import DTYPES, resolve

SIDE = 2048  # of the matrices: larger than any cache, and what the rate no longer grows with
SIDE_CUDA = 8192
COPY_BYTES = 2**28  # bytes


def describe(device: torch.device) -> dict[str, Any]:
    """Return what a reader needs to know to repeat a report elsewhere."""
    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "bf16": resolve("auto", device) == "bf16",
        "amx": torch.cpu._is_amx_tile_supported(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": {"densevit": densevit.__version__, "torch": torch.__version__, "opencv": cv2.__version__},
    }


def processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def peak_rates(device: torch.device, rounds: int) -> Iterator[Row]:
    """Yield what this machine can do at best: products of large square matrices, and a copy of memory. Products in bf16
    only where the hardware multiplies in it: others take a minute each."""
    formats: dict[str, None] = dict.fromkeys(("fp32", resolve("auto", device)))
    products = {name: matrix_product(name, device) for name in formats}
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    seconds = time_interleaved({**products, "copy": lambda: target.copy_(source)}, max(rounds, 5), warmup=2).wall
    flops = matrix_product_flops(device)
    for name in products:
        rate = Spread.of(seconds[name]).map(lambda s: flops / s / 1e9)
        yield Row(
            HARDWARE, f"{matrix_side(device)} x {matrix_side(device)} matrix product", name, rate, "GFLOP/s", "higher"
        )
    rate = Spread.of(seconds["copy"]).map(lambda s: 2 * COPY_BYTES / s / 1e9)
    yield Row(HARDWARE, "memory copy, read and written", "bytes", rate, "GB/s", better="higher")


def matrix_side(device: torch.device) -> int:
    return SIDE_CUDA if device.type == "cuda" else SIDE


def matrix_product_flops(device: torch.device) -> float:
    """Return the operations of one `matrix_product`, a multiplication and an addition counting two."""
    return 2.0 * matrix_side(device) ** 3


def matrix_product(precision: str, device: torch.device) -> Work:
    """Return a matrix product in a number format (fp32, bf16, fp16, int8), ready to run."""
    side = matrix_side(device)
    if precision == "int8":
        whole = torch.randint(-9, 9, (side, side), dtype=torch.int8, device=device)
        return lambda: torch._int_mm(whole, whole)
    a = torch.randn(side, side, device=device).to(DTYPES[precision])
    out = torch.empty_like(a)
    return lambda: torch.mm(a, a, out=out)


BARE = "python -c pass"
COMMANDS = {
    BARE: ["-c", "pass"],
    "densevit --help": ["-m", "densevit.cli.main", "--help"],
    "import densevit": ["-c", "import densevit"],
    "import torch": ["-c", "import torch"],
}


def measure_startup(settings: Settings) -> Iterator[Row]:
    def start(arguments: list[str]) -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    works = {name: (lambda a=arguments: start(a)) for name, arguments in COMMANDS.items()}
    seconds = time_interleaved(works, settings.rounds).wall
    for name in COMMANDS:
        over = [s - bare for s, bare in zip(seconds[name], seconds[BARE], strict=True)]
        note = "" if name == BARE else f"{Spread.of(over).middle:.2f} s over bare Python"
        yield Row("start-up", "a new process", name, Spread.of(seconds[name]), "s", note=note)
