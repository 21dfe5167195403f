"""A loss over the batch has one gradient, however a step is split over micro-batches and processes."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from densevit.losses.depth import DEPTH_LOSSES
from densevit.losses.image_level import CLASS_LOSSES, FOCAL_LOSSES
from densevit.losses.normals import NORMAL_LOSSES
from densevit.losses.reduction import StepTotals
from densevit.losses.segmentation import LABEL_LOSSES
from densevit.structures import IGNORE, NO_LABEL

IMAGES, K = 8, 3
CASES: list[tuple[Any, dict[str, Any]]] = [
    (DEPTH_LOSSES, {"type": "silog"}),
    (DEPTH_LOSSES, {"type": "silog", "unbiased": True, "eps": 1e-3}),
    (DEPTH_LOSSES, {"type": "silog", "warmup": 10}),
    (DEPTH_LOSSES, {"type": "l1"}),
    (DEPTH_LOSSES, {"type": "mse"}),
    (DEPTH_LOSSES, {"type": "log_l1"}),
    (DEPTH_LOSSES, {"type": "relative_l1"}),
    (DEPTH_LOSSES, {"type": "gradient"}),
    (DEPTH_LOSSES, {"type": "ssi", "trim": 0}),
    (DEPTH_LOSSES, {"type": "ssi_gradient"}),
    (DEPTH_LOSSES, {"type": "temporal_gradient", "threshold": 0.9}),
    (LABEL_LOSSES, {"type": "cross_entropy"}),
    (LABEL_LOSSES, {"type": "focal"}),
    (LABEL_LOSSES, {"type": "dice"}),
    (LABEL_LOSSES, {"type": "dice", "classes": "all", "exponent": 2}),
    (NORMAL_LOSSES, {"type": "angular"}),
    (NORMAL_LOSSES, {"type": "l1"}),
    (CLASS_LOSSES, {"type": "cross_entropy"}),
    (FOCAL_LOSSES, {"type": "log_l1"}),
]
# Without `pool`, every one of them is pooled over the batch.
ALWAYS = (CLASS_LOSSES, FOCAL_LOSSES)


class Processes:
    """Threads in place of processes; `all_reduce` sums over them."""

    def __init__(self, count: int) -> None:
        self.count, self.barrier, self.values = count, threading.Barrier(count), []

    def all_reduce(self, x: Tensor) -> Tensor:
        self.values.append(x)
        self.barrier.wait()
        total = torch.stack(self.values).sum(0)
        if self.barrier.wait() == 0:
            self.values.clear()
        self.barrier.wait()
        return total

    def __call__(self, function: Callable[[int], Tensor]) -> Tensor:
        with ThreadPoolExecutor(self.count) as pool:
            return torch.stack(list(pool.map(function, range(self.count)))).mean(0)


def inputs(registry: Any) -> tuple[Tensor, list[Tensor]]:
    """Predictions, and ground truth that the first images have most of and the last one has none of."""
    draw = torch.Generator().manual_seed(0)
    known = torch.rand(IMAGES, 1, 6, 8, generator=draw) > torch.linspace(0, 1, IMAGES).view(-1, 1, 1, 1)
    if registry is DEPTH_LOSSES:
        depth = 1 + torch.rand(IMAGES, 1, 6, 8, generator=draw)
        return 1 + 2 * torch.rand(IMAGES, 1, 6, 8, generator=draw), [depth.double(), known]
    if registry is NORMAL_LOSSES:
        pred, target = (torch.nn.functional.normalize(torch.randn(IMAGES, 3, 6, 8, generator=draw)) for _ in range(2))
        return pred, [target.double(), known]
    if registry is FOCAL_LOSSES:
        return 1 + torch.rand(IMAGES, generator=draw), [torch.tensor([1.0, 2, 0.5, torch.nan, 1, 3] + 2 * [torch.nan])]
    classes = torch.randint(0, K, (IMAGES, 6, 8), generator=draw)
    if registry is CLASS_LOSSES:
        return torch.randn(IMAGES, K, generator=draw), [torch.tensor([0, 1, 2, NO_LABEL, 0, 2, NO_LABEL, NO_LABEL])]
    return torch.randn(IMAGES, K, 6, 8, generator=draw), [classes.where(known[:, 0], IGNORE)]


def value_and_gradient(registry: Any, config: dict[str, Any], processes: int, micro_batches: int) -> Tensor:
    """The loss, and behind it its gradient by what all predictions are scaled with, in each channel and column."""
    pred, truth = inputs(registry)
    spec = config if registry in ALWAYS else {**config, "pool": "batch"}
    threads = Processes(processes)

    def process(rank: int) -> Tensor:
        loss = registry.check(spec, "loss").build()
        loss.clip_length = 2
        theta = torch.ones(pred.shape[1:], dtype=torch.float64, requires_grad=True)
        totals = StepTotals(micro_batches, processes, threads.all_reduce)
        own = [torch.chunk(torch.chunk(x, processes)[rank], micro_batches) for x in (pred.double(), *truth)]
        extras = [{}] if registry is LABEL_LOSSES else []

        def part(number: int) -> Tensor:
            y, *ground_truth = (x[number] for x in own)
            with totals.micro_batch():
                return loss(y * theta, *ground_truth, *extras)

        if micro_batches > 1:
            with totals.count(), torch.no_grad():
                for number in range(micro_batches):
                    part(number)
        value = torch.stack([part(number) for number in range(micro_batches)]).mean()
        return torch.cat([value.detach()[None].double(), torch.autograd.grad(value, theta)[0].flatten()])

    return threads(process)


@pytest.mark.parametrize(("registry", "config"), CASES, ids=lambda x: str(x) if isinstance(x, dict) else "")
def test_the_gradient_does_not_depend_on_the_split(registry: Any, config: dict[str, Any]) -> None:
    whole = value_and_gradient(registry, config, 1, 1)
    assert whole[1:].abs().max() > 1e-3
    # Segmentation losses compute in fp32, whatever they get.
    tolerance = 2e-6 if registry in (LABEL_LOSSES, CLASS_LOSSES, FOCAL_LOSSES) else 1e-13
    for processes, micro_batches in [(1, 2), (1, 4), (2, 1), (2, 2)]:
        torch.testing.assert_close(
            value_and_gradient(registry, config, processes, micro_batches), whole, rtol=tolerance, atol=tolerance
        )


def test_a_variance_is_exact_where_the_mean_is_large_beside_it() -> None:
    """Log errors of 7 +- 1e-4: squares of sums in fp32 would give a variance of nothing but rounding."""
    loss = DEPTH_LOSSES.check({"type": "silog", "variance_focus": 1.0, "pool": "batch"}, "loss").build()
    target = torch.ones(4, 1, 8, 8)
    pred = (7 + 1e-4 * torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))).exp()
    valid = torch.ones_like(target, dtype=torch.bool)
    totals = StepTotals(2, 1, lambda x: x)
    parts = list(zip(pred.split(2), target.split(2), valid.split(2), strict=True))
    with totals.count():
        for part in parts:
            with totals.micro_batch():
                loss(*part)
    with totals.micro_batch():
        split = loss(*parts[0])
    assert split.item() == pytest.approx(pred.double().log().std(correction=0).item(), rel=1e-3)
