"""The stand-in refuses what CUDA refuses, and counts what the host waits for."""

import fake_gpu
import pytest
import torch
from fake_gpu import DeviceMismatch
from torch import Tensor, nn

pytestmark = [pytest.mark.fake_cuda, pytest.mark.slow]


def test_tensors_of_two_devices_do_not_meet() -> None:
    with fake_gpu.fake_gpu():
        there = torch.ones(3, device="cuda")
        assert there.device.type == "cuda" and (there + 1).device.type == "cuda"
        with pytest.raises(DeviceMismatch, match="same device"):
            there + torch.ones(3)
        with pytest.raises(DeviceMismatch, match="numpy"):
            there.numpy()
        assert (there + torch.tensor(1.0)).cpu().tolist() == [2.0] * 3  # as CUDA takes a number of the CPU


@pytest.mark.parametrize(
    ("waiting", "count"),
    [
        (lambda x: x.sum().item(), 1),
        (lambda x: x.tolist(), 1),
        (lambda x: x.cpu(), 1),
        (lambda x: x[x > 0], 1),
        (lambda x: x.nonzero(), 1),
        (lambda x: torch.tensor([1.0, 2.0], device=x.device), 1),
        (lambda x: torch.ones(3).to(x.device), 1),
        (lambda x: bool((x > 0).all()), 1),
        (lambda x: torch.ones(3).pin_memory().to(x.device, non_blocking=True), 0),
        (lambda x: x.to("cpu", non_blocking=True), 0),
        (lambda x: torch.where(x > 0, x, 0) @ x, 0),
    ],
)
def test_waits_are_counted(waiting, count: int) -> None:
    with fake_gpu.fake_gpu() as counts:
        x = torch.rand(5, device="cuda")
        counts.reset()
        waiting(x)
        assert sum(counts.waits.values()) == count, counts.said()


def test_casts_are_counted_among_the_kernels() -> None:
    with fake_gpu.fake_gpu() as counts:
        x, low = torch.rand(5, device="cuda"), torch.rand(5, device="cuda").bfloat16()
        counts.reset()
        x.bfloat16(), x.float(), x.clone(), x.copy_(low), low.copy_(low), x + low  # of the sum no kernel is a cast
        assert (counts.kernels, counts.casts) == (5, 2)


def test_an_event_is_waited_for_unless_work_stands_behind_it() -> None:
    with fake_gpu.fake_gpu() as counts:
        x, event = torch.rand(5, device="cuda"), torch.cuda.Event()
        event.record()
        event.synchronize()
        assert sum(counts.waits.values()) == 1
        event.record()
        _ = x + 1
        event.synchronize()
        assert sum(counts.waits.values()) == 1


def test_autocast_follows_the_lists_of_cuda() -> None:
    layers = nn.ModuleDict({"linear": nn.Linear(4, 4), "norm": nn.LayerNorm(4)})
    with fake_gpu.fake_gpu():
        layers.to("cuda")
        x = torch.rand(2, 4, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert layers["linear"](x).dtype == torch.bfloat16
            assert layers["norm"](layers["linear"](x)).dtype == torch.float32  # on a CPU: bfloat16
            assert layers["linear"](x).softmax(-1).dtype == torch.float32
            assert torch.addcmul(x, x, layers["linear"](x)).dtype == torch.float32


def test_gradients_are_those_of_the_cpu() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(6, 3), torch.rand(2, 6)

    def gradient(device: str) -> Tensor:
        copy = nn.Linear(6, 3)
        copy.load_state_dict(layer.state_dict())
        copy.to(device)
        copy(x.to(device)).square().mean().backward()
        return copy.weight.grad.cpu()

    expected = gradient("cpu")
    with fake_gpu.fake_gpu():
        assert torch.equal(gradient("cuda"), expected)
