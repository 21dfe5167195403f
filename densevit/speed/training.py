"""One training step (forward, backward, AdamW): its time interleaved, its peak memory in a fresh process.

The reference steps as its training program does (fp32, torch's AdamW with its defaults); ours as the trainer does, with
gradient clipping. Both have the same loss on the same random batch. b images, h x w pixels.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from densevit.config.schema import Optim
from densevit.engine.monitors import compile_blocks
from densevit.engine.optim import build_optimizer, parameter_groups
from densevit.losses.depth import silog
from densevit.models.dense import DenseModel
from densevit.speed import reference_models
from densevit.speed.reference_models import UNTUNED, our_network, single_output
from densevit.speed.report import Row, rows_by_clock
from densevit.speed.settings import Settings
from densevit.speed.timing import Spread, Work, peak_memory_growth, time_in_subprocess, time_interleaved
from densevit.utils.device import Precision, autocast

BATCH, HEIGHT, WIDTH = 2, 392, 518  # an NYU crop, as multiples of 14
RATE = 1e-6
REFERENCE = "Depth Anything V2, reference, fp32"


def measure(settings: Settings) -> Iterator[Row]:
    reference = settings.try_build(lambda: reference_models.depth_anything(settings.size, settings.depth_anything))
    names = [f"densevit, {precision}" for precision in dict.fromkeys(("fp32", settings.precision))]
    names = names if reference is None else [REFERENCE, *names]
    plain = replace(settings, absent=[])  # arguments of a fresh process are pickled
    case = f"{settings.network()}, {BATCH} x {HEIGHT} x {WIDTH}"
    memory = {name: peak_memory_growth(prepare, plain, name) for name in names} if settings.device.type == "cpu" else {}
    works = {name: prepare(settings, name) for name in names}
    if settings.compile:
        names.append(f"densevit, {settings.precision}, compiled")
        works[names[-1]] = prepare(settings, names[-1])
    rounds = time_interleaved(works, settings.rounds, warmup=2 if settings.compile else 1)
    if reference is not None and settings.device.type == "cpu":
        rounds.add(UNTUNED, [time_in_subprocess(prepare, plain, REFERENCE) for _ in range(settings.rounds)])
    yield from rows_by_clock("training", f"step of {case}", rounds, list(rounds.wall), settings.device)
    for name, grown in memory.items():
        base = memory[names[0]]
        if grown is not None and base:
            share = f"{grown / base:.2f} of the first row"
            yield Row("training", f"peak memory of {case}", name, Spread.of([grown]), "MB", note=share)


def prepare(settings: Settings, name: str) -> Work:
    """Return the training step of one implementation."""
    torch.set_num_threads(settings.threads)
    if name == REFERENCE:
        return reference_step(
            reference_models.depth_anything(settings.size, settings.depth_anything), *random_batch(settings.device)
        )
    model, _ = our_network(settings.size)
    precision: Precision = settings.precision if settings.precision in name else "fp32"
    if "compiled" in name:
        compile_blocks(model)
    return our_step(model, precision, *random_batch(settings.device))


def random_batch(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the images b 3 h w in [0, 1], depth b 1 h w in metres, and where it is valid."""
    random = torch.Generator().manual_seed(0)
    image = torch.rand(BATCH, 3, HEIGHT, WIDTH, generator=random)
    depth = 1 + 9 * torch.rand(BATCH, 1, HEIGHT, WIDTH, generator=random)
    valid = torch.rand(BATCH, 1, HEIGHT, WIDTH, generator=random) > 0.3
    return image.to(device), depth.to(device), valid.to(device)


def reference_step(reference: reference_models.ReferenceModel, image: Tensor, depth: Tensor, valid: Tensor) -> Work:
    module = reference.module.to(image.device).train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE)
    return training_step(lambda: reference(image), optimizer, depth, valid, lambda: None)


def our_step(model: DenseModel, precision: Precision, image: Tensor, depth: Tensor, valid: Tensor) -> Work:
    model.to(image.device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    optim = Optim(lr=RATE)
    optimizer = build_optimizer(parameter_groups(model, model.encoder, optim), optim)
    seen = image.contiguous(memory_format=torch.channels_last)

    def predict() -> Tensor:
        with autocast(precision, image.device):
            return single_output(model(seen))

    return training_step(predict, optimizer, depth, valid, lambda: nn.utils.clip_grad_norm_(model.parameters(), 1.0))


def training_step(
    predict: Callable[[], Tensor],
    optimizer: torch.optim.Optimizer,
    depth: Tensor,
    valid: Tensor,
    clip: Callable[[], object],
) -> Work:
    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        # Random weights give a disparity around 0, where a logarithm has no value.
        loss = silog(predict().float() + 1, depth, valid, variance_focus=0.5)
        torch.autograd.backward(loss)
        clip()
        optimizer.step()

    return step
