"""What a report says of the day and the machine on which it was made."""

import os
from datetime import date

import torch


def made_on() -> str:
    amx, bf16 = torch.cpu._is_amx_tile_supported(), torch.cpu._is_avx512_bf16_supported()
    kind = "AMX" if amx else "AVX512-BF16" if bf16 else torch.backends.cpu.get_cpu_capability()
    return f"{date.today()}, {os.cpu_count()} CPU cores ({kind}), torch {torch.__version__}"
