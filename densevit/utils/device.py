"""The choice of device and precision, and copies to and from a GPU that do not hold up its queue."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.structures import Batch

T = TypeVar("T")
Arrays = dict[str, np.ndarray]

KINDS = ("cpu", "cuda", "mps", "xpu")


def choose_device(name: str | torch.device) -> torch.device:
    """Resolve `auto` to CUDA, else MPS, else the CPU. Raises ConfigError: no such device here."""
    name = available_kind() if name == "auto" else name
    kind = torch.device(name).type if isinstance(name, torch.device) else str(name).partition(":")[0]
    if kind not in KINDS:
        kinds = ", ".join(KINDS)
        raise ConfigError(f"device: '{name}' cannot be used here; choose auto, {kinds}, or cuda:1 for a second GPU.")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts where it was built without CUDA
        reason = str(error).splitlines()[0].split(". ")[0].rstrip(".")
        raise ConfigError(f"device: '{name}' cannot be used here ({reason}). `auto` takes what is available.") from None
    return device


def available_kind() -> str:
    """Return the kind that `auto` stands for; touches no device."""
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"


def device_of_process(device: str, local_rank: int, local_size: int) -> str:
    """Return the name of the device of one of several processes: each has a GPU of its own. Touches no device. Raises
    ConfigError: one GPU is named for several processes."""
    name = available_kind() if device == "auto" else device
    if name == "cuda":
        one_visible = "SLURM_PROCID" in os.environ and torch.cuda.device_count() == 1  # srun --gpus-per-task=1
        return "cuda:0" if one_visible else f"cuda:{local_rank}"
    if name.startswith("cuda:") and local_size > 1:
        raise ConfigError(
            f"device: '{name}' is one GPU, where the {local_size} processes of this machine need one each. Take "
            "device=cuda, and choose GPUs by CUDA_VISIBLE_DEVICES."
        )
    return name


class BatchUpload:
    """Copies batches to a device: to a GPU on a stream of its own, beside the step in progress."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def __call__(self, batch: Batch) -> Batch:
        if self.stream is None:
            return batch.to(self.device)
        with torch.cuda.stream(self.stream):
            there = batch.to(self.device)
        current = torch.cuda.current_stream(self.device)
        current.wait_stream(self.stream)
        there.record_stream(current)
        return there


class Download:
    """Tensors on their way from one device: the copies are queued at once, and `read` waits for them.

    Attributes:
        copied: marks the end of copies that are under way; None where they are complete.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        on_gpu = any(x.device.type == "cuda" for x in tensors)
        self.tensors = [x.detach().to("cpu", non_blocking=on_gpu) for x in tensors]
        self.copied = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
        if self.copied is not None:
            self.copied.record()

    def read(self) -> list[Tensor]:
        if self.copied is not None:
            self.copied.synchronize()
        return self.tensors


class DeviceNumbers:
    """Numbers on their way from a device."""

    def __init__(self, numbers: Tensor) -> None:
        self.download = Download([numbers])

    def read(self) -> list[float]:
        values: list[float] = self.download.read()[0].tolist()
        return values


@dataclass(frozen=True)
class Pending:
    """Arrays that are computed or on their way from a device.

    Attributes:
        read: wait for them and return them.
        is_complete: whether `read` will not wait.
    """

    read: Callable[[], Arrays]
    is_complete: bool = True


def download(tensors: Mapping[str, Tensor]) -> Pending:
    """Queue the copies of tensors to the host, in fp32."""
    names, copies = list(tensors), Download([x.float() for x in tensors.values()])

    def read() -> Arrays:
        arrays = [x.numpy() for x in copies.read()]
        # Copies, because pinned memory is scarce and users keep maps.
        return dict(zip(names, map(np.array, arrays) if copies.copied else arrays, strict=True))

    return Pending(read, copies.copied is None)


def read_pending(started: Iterable[tuple[Pending, T]], *, ahead: bool = True) -> Iterator[tuple[Arrays, T]]:
    """Read the arrays of each batch after the next batch was started, so that a GPU always has work; those that are
    complete at once. The error of a batch is raised after those before it. `ahead`: False reads each batch before the
    next is started."""
    before: tuple[Pending, T] | None = None
    batches = iter(started)
    while True:
        try:
            following, failure = next(batches, None), None
        except Exception as error:
            following, failure = None, error
        if before is not None:
            yield before[0].read(), before[1]
        if failure is not None:
            raise failure
        if following is None:
            return
        before = following
        if before[0].is_complete or not ahead:
            yield before[0].read(), before[1]
            before = None


def upload(x: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the CPU on a device, without waiting for what is queued there."""
    pinned = device.type == "cuda" and x.device.type == "cpu"
    return x.pin_memory().to(device, non_blocking=True) if pinned else x.to(device)


def is_out_of_memory(error: BaseException) -> bool:
    # Torch has a class for this error on GPUs only; on the CPU only the message of its allocator tells.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


Precision = Literal["fp32", "tf32", "bf16", "fp16"]
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve(precision: str, device: torch.device) -> Precision:
    """Return `auto` is bf16 where the hardware multiplies in it (CUDA GPUs from Ampere on; CPUs with AMX or
    AVX512-BF16). Raises ConfigError: no such precision, or not on this device."""
    if precision != "auto":
        if precision not in DTYPES:
            raise ConfigError(f"precision: no {precision!r}; choose auto, {', '.join(DTYPES)}.")
        if precision == "tf32" and device.type != "cuda":
            raise ConfigError(f"precision: tf32 is how NVIDIA GPUs multiply; on '{device}' take fp32, bf16 or auto.")
        return cast(Precision, precision)
    if device.type == "cuda":
        # Older GPUs run bf16, too, but emulate it, slower than fp32.
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    fast = device.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return "bf16" if fast else "fp32"


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, dtype=DTYPES[precision], enabled=DTYPES[precision] != torch.float32)


def cast_weights(model: nn.Module, precision: Precision) -> None:
    """Keep linear and convolutional layers in the type to which autocast casts them in each call, in place.

    The numbers stay the same; memory of the weights is halved, and the casts are saved. Not for training.
    """
    for module in model.modules():
        if type(module) in (nn.Linear, nn.Conv2d, nn.ConvTranspose2d):
            module.to(DTYPES[precision])


@contextmanager
def gpu_products(*, tf32: bool, benchmark: bool = False) -> Iterator[None]:
    """Set how a GPU multiplies fp32 numbers inside: in TF32, with 10 bits of mantissa, or exactly (IEEE).

    torch's own defaults are TF32 in convolutions and IEEE in matrix products. `benchmark`: cuDNN times its algorithms
    for each new size, which pays where sizes stay.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    # Not the newer `fp32_precision`: set for single operations, it makes torch's own readers of `allow_tf32` raise.
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    matmul.allow_tf32 = cudnn.allow_tf32 = tf32
    cudnn.benchmark = benchmark
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before


class Sizes:
    """The size of the last batch."""

    last: torch.Size | None = None

    def repeat(self, images: torch.Tensor) -> bool:
        """Return whether a batch has the size of the one before, as random crops have."""
        before, self.last = self.last, images.shape
        return before == self.last
