"""`auto` asks the hardware, and takes the format that it multiplies in."""

import pytest
import torch

from densevit.errors import ConfigError
from densevit.utils.device import autocast, gpu_products, resolve

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(("amx", "avx", "chosen"), [(1, 0, "bf16"), (0, 1, "bf16"), (0, 0, "fp32")])
def test_auto_on_a_cpu_is_bf16_where_it_has_instructions_for_it(
    amx: int, avx: int, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: bool(amx))
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bool(avx))
    assert resolve("auto", CPU) == chosen


@pytest.mark.parametrize(("native", "chosen"), [(True, "bf16"), (False, "fp16")])
def test_auto_on_a_gpu_is_bf16_only_where_it_is_not_emulated(
    native: bool, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or native)
    assert resolve("auto", CUDA) == chosen


def test_what_is_named_is_taken_and_fp32_computes_in_fp32() -> None:
    assert resolve("fp16", CPU) == "fp16"
    x = torch.ones(2, 2)
    with autocast("fp32", CPU):
        assert (x @ x).dtype == torch.float32
    with autocast("bf16", CPU):
        assert (x @ x).dtype == torch.bfloat16


def test_products_of_fp32_on_a_gpu_are_exact_or_tf32_in_matrices_and_convolutions_alike() -> None:
    def state() -> tuple[object, ...]:
        backends = torch.backends
        return backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32, backends.cudnn.benchmark

    before = state()
    with gpu_products(tf32=True, benchmark=True):
        assert state() == (True, True, True)
        with gpu_products(tf32=False):
            assert state() == (False, False, False)
        assert state() == (True, True, True)
    assert state() == before


def test_tf32_is_for_gpus() -> None:
    assert resolve("tf32", CUDA) == "tf32"
    with pytest.raises(ConfigError, match="tf32 is how NVIDIA GPUs multiply; on 'cpu' take fp32, bf16 or auto"):
        resolve("tf32", CPU)
