"""Precision (fp32, tf32, bf16, fp16): the fastest on a device, autocast to it, and how a GPU multiplies fp32."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, cast

import torch
from torch import nn

from densevit.errors import ConfigError

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve(precision: str, device: torch.device) -> Precision:
    """`auto` is bf16 where the hardware multiplies in it (CUDA GPUs from Ampere on; CPUs with AMX or AVX512-BF16).
    Raises ConfigError: no such precision, or not on this device."""
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
    """Keeps linear and convolutional layers in the type to which autocast casts them in each call, in place.

    The numbers stay the same; memory of the weights is halved, and the casts are saved. Not for training.
    """
    for module in model.modules():
        if type(module) in (nn.Linear, nn.Conv2d, nn.ConvTranspose2d):
            module.to(DTYPES[precision])


@contextmanager
def gpu_products(*, tf32: bool, benchmark: bool = False) -> Iterator[None]:
    """How a GPU multiplies fp32 numbers inside: in TF32, with 10 bits of mantissa, or exactly (IEEE).

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
        """Whether a batch has the size of the one before, as random crops have."""
        before, self.last = self.last, images.shape
        return before == self.last
