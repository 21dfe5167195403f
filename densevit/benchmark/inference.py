"""How long one image takes in a model: ours in each number format beside the same network elsewhere."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from densevit.benchmark import hardware, reference_models
from densevit.benchmark.interleaved_timing import Spread, clock, take_turns, times_faster
from densevit.benchmark.reference_models import Absent, Peer
from densevit.benchmark.reference_network import network
from densevit.benchmark.report import Row, number
from densevit.benchmark.settings import Settings
from densevit.errors import DensevitError
from densevit.inference.backends.onednn import prepack_linears
from densevit.inference.backends.onnx_runtimes import ExternalRuntimeModule
from densevit.models.dense import DenseModel
from densevit.utils.precision import Precision, autocast

Answer = Callable[[], Tensor]


def measure(settings: Settings) -> Iterator[Row]:
    """Every contestant at each size and batch, then the network of patches of 16."""
    with TemporaryDirectory() as folder, torch.inference_mode():
        found = settings.able(lambda: reference_models.depth_anything(settings.size, settings.depth_anything))
        other = settings.able(lambda: reference_models.transformers(settings.size))
        for side in settings.sides:
            for batch in settings.batches:
                yield from at(settings, [peer for peer in (found, other) if peer], side, batch, Path(folder))
        sixteen = settings.able(lambda: reference_models.smp(settings.size))
        if sixteen is not None:
            side = max(sixteen.patch, settings.sides[0] // sixteen.patch * sixteen.patch)
            yield from at(settings, [sixteen], side, 1, Path(folder))


def at(settings: Settings, present: list[Peer], side: int, batch: int, folder: Path) -> Iterator[Row]:
    """One size and batch. The first peer in fp32 is the baseline, and its weights are what ours runs."""
    device = settings.device
    image = torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0)).to(device)
    answers: dict[str, Answer] = {}
    shown: dict[str, str] = {}
    for peer in present:
        answers |= theirs(peer, peer.twin(folder), image, settings)
    if present and device.type == "cpu" and batch == 1:
        add_onnx(answers, present[0], image, folder, settings)
    ours: DenseModel = (present[0].twin(folder) if present else network(settings.size)[0]).to(device)
    baseline = f"{present[0].name if present else 'densevit'}, fp32"
    flops = count_flops(ours, image)
    answers |= own(ours, image, settings, shown)
    expected = answers[baseline]().float()
    for name, answer in answers.items():
        if agrees(name, present) and name != baseline:
            shown[name] = f"{shown.get(name, '')}{difference(answer(), expected)}"
    formats = sorted({format_of(name) for name in answers})
    seconds = take_turns({**answers, **{f"peak {p}": hardware.product(p, device) for p in formats}}, settings.rounds)
    for name in answers:
        share = share_of_peak(seconds, name, flops, hardware.product_flops(device))
        yield Row(
            "inference", f"{side} x {side}, batch {batch}", name, Spread.of(seconds[name]).map(lambda s: s / batch),
            "s an image", faster=times_faster(seconds, name, baseline),
            note="; ".join(filter(None, (shown.get(name), share))),
        )  # fmt: skip


def format_of(name: str) -> str:
    return next((precision for precision in ("bf16", "fp16") if precision in name), "fp32")


def share_of_peak(seconds: Mapping[str, list[float]], name: str, flops: float, product: float) -> str:
    """How much of the rate of a matrix product, timed in the same turns and the same number format."""
    peak = f"peak {format_of(name)}"
    shares = [flops / own / (product / best) for own, best in zip(seconds[name], seconds[peak], strict=True)]
    return f"{Spread.of(shares).middle:.0%} of the {peak.removeprefix('peak ')} peak"


def agrees(name: str, present: list[Peer]) -> bool:
    """Whether a contestant runs the baseline's weights: the others bring their own, and were checked with those."""
    return not any(name.startswith(peer.name) for peer in present[1:])


def theirs(peer: Peer, twin: nn.Module, image: Tensor, settings: Settings) -> dict[str, Answer]:
    """A peer as its users run it, in fp32, and where that is faster in bf16.

    Raises:
        DensevitError: its twin with us does not give its numbers; then nothing here would mean anything.
    """
    mean, std = (getattr(twin.encoder, name) for name in ("mean", "std"))
    peer.module.to(settings.device)
    normalised = ((image.cpu() - mean) / std).to(settings.device)
    a, b = peer(normalised), reference_models.only(twin.to(settings.device)(image))
    if (a - b).abs().max() > 1e-4 * a.abs().max():
        raise DensevitError(f"{peer.name}: our network with its weights is {difference(b, a)}.")
    found: dict[str, Answer] = {f"{peer.name}, fp32": lambda: peer(normalised)}
    if settings.precision != "fp32":

        def lower() -> Tensor:
            with autocast(settings.precision, settings.device):
                return peer(normalised)

        found[f"{peer.name}, {settings.precision}"] = lower
    return found


def add_onnx(answers: dict[str, Answer], peer: Peer, image: Tensor, folder: Path, settings: Settings) -> None:
    twin = peer.twin(folder)
    normalised = ((image - twin.encoder.mean) / twin.encoder.std).clone()
    try:
        with torch.inference_mode(mode=False), torch.no_grad():
            run = reference_models.onnx_runtime(peer, normalised.clone(), folder)
    except Absent as reason:
        settings.absent.append(f"ONNX Runtime: {reason}")
    else:
        answers["ONNX Runtime, fp32"] = lambda: run(normalised)


def own(
    model: DenseModel, image: Float[Tensor, "b 3 h w"], settings: Settings, shown: dict[str, str]
) -> dict[str, Answer]:
    """Ours in fp32 and in the number format that `auto` takes, by OpenVINO too, and compiled where asked for."""
    seen = image.contiguous(memory_format=torch.channels_last)

    def answer(module: nn.Module, precision: Precision) -> Answer:
        def run() -> Tensor:
            with autocast(precision, settings.device):
                return reference_models.only(module(seen))

        return run

    formats: list[Precision] = list(dict.fromkeys(("fp32", settings.precision)))
    found = {f"densevit, {precision}": answer(readied(model, precision), precision) for precision in formats}
    for precision in formats:
        runtime = settings.able(partial(reference_models.openvino, settings.device, precision))
        if runtime is not None:
            elsewhere = ExternalRuntimeModule(model, list(model.heads), runtime, precision)
            found[f"densevit by OpenVINO, {precision}"] = answer(elsewhere, precision)
    if settings.compile:
        compiled = answer(torch.compile(model), settings.precision)  # type: ignore[arg-type]
        name = f"densevit, {settings.precision}, compiled"
        found[name] = compiled
        shown[name] = f"compiled in {clock(compiled):.0f} s; "
    return found


def readied(model: nn.Module, precision: Precision) -> nn.Module:
    """A copy, made ready as `Predictor` does."""
    twin = deepcopy(model)
    if next(twin.parameters()).device.type == "cpu":
        prepack_linears(twin, precision)
    return twin


def count_flops(model: nn.Module, image: Tensor) -> float:
    """Of one pass in fp32, a multiplication and an addition counting two."""
    with FlopCounterMode(display=False) as counter:
        model(image)
    return float(counter.get_total_flops())


def difference(answer: Tensor, expected: Tensor) -> str:
    """How far two answers are apart, as a share of the answer."""
    apart = (answer.float().cpu() - expected.cpu()).abs()
    scale = expected.abs().mean().item()
    return f"off by {number(apart.mean().item() / scale)} in the mean, {number(apart.max().item() / scale)} at most"
