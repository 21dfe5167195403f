"""Precision (fp32, bf16, fp16): the fastest on a device, and autocast to it."""

from typing import Literal, cast

import torch

from densevit.errors import ConfigError

Precision = Literal["fp32", "bf16", "fp16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def resolve(precision: str, device: torch.device) -> Precision:
    """`auto` is bf16 where the hardware multiplies in it (CUDA GPUs from Ampere on; CPUs with AMX or AVX512-BF16).

    Raises:
        ConfigError: no such precision.
    """
    if precision != "auto":
        if precision not in DTYPES:
            raise ConfigError(f"precision: no {precision!r}; choose auto, {', '.join(DTYPES)}.")
        return cast(Precision, precision)
    if device.type == "cuda":
        # Older GPUs run bf16, too, but emulate it, slower than fp32.
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    fast = device.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return "bf16" if fast else "fp32"


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, dtype=DTYPES[precision], enabled=precision != "fp32")
