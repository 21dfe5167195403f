"""Seconds that one image takes: our network in each number format, int8 too, beside the same network elsewhere."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import cv2
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from densevit.errors import DensevitError
from densevit.inference.backends.onednn import prepack
from densevit.inference.backends.onnx_runtimes import RUNTIMES, ExternalRuntimeModule, Run, RuntimeName
from densevit.inference.onnx import quantize
from densevit.inference.onnx.graph import NamedOutputs, save_graph
from densevit.models.dense import DenseModel
from densevit.speed import hardware, reference_models
from densevit.speed.reference_models import UNTUNED, ReferenceModel, Unavailable, our_network, require_package
from densevit.speed.report import Row, rows_by_clock, three_digits
from densevit.speed.settings import Settings
from densevit.speed.timing import Spread, Work, time_in_subprocess, time_interleaved, time_once
from densevit.utils.device import Precision, autocast
from densevit.utils.packages import is_installed

Forward = Callable[[], Tensor]


def measure(settings: Settings) -> Iterator[Row]:
    """Yield every implementation at each size and batch; then the network with patches of 16."""
    with TemporaryDirectory() as folder, torch.inference_mode():
        first = settings.try_build(lambda: reference_models.depth_anything(settings.size, settings.depth_anything))
        other = settings.try_build(lambda: reference_models.transformers(settings.size))
        references = [reference for reference in (first, other) if reference]
        for side in settings.sides:
            for batch in settings.batches:
                yield from measure_size(settings, references, side, batch, Path(folder))
        sixteen = settings.try_build(lambda: reference_models.smp(settings.size))
        if sixteen is not None:
            side = max(sixteen.patch, settings.sides[0] // sixteen.patch * sixteen.patch)
            yield from measure_size(settings, [sixteen], side, 1, Path(folder), patch=16)


def measure_size(
    settings: Settings, references: list[ReferenceModel], side: int, batch: int, folder: Path, *, patch: int = 14
) -> Iterator[Row]:
    """Yield one size and batch. The first reference in fp32 is the baseline; ours runs its weights."""
    device = settings.device
    forwards, notes, baseline, flops = prepare_size(settings, references, side, batch, folder)
    product = hardware.matrix_product_flops(device)
    formats = sorted({format_of(name) for name in forwards})
    rounds = time_interleaved(
        {**forwards, **{f"peak {p}": hardware.matrix_product(p, device) for p in formats}}, settings.rounds
    )
    names = [baseline, *(name for name in forwards if name != baseline)]
    if baseline in UNTUNED and device.type == "cpu":
        run = partial(time_in_subprocess, prepare_reference, replace(settings, absent=[]), side, batch)
        rounds.add(UNTUNED, [run() for _ in range(settings.rounds)])
        names.append(UNTUNED)

    def note(seconds: Mapping[str, list[float]], name: str) -> str:
        return "; ".join(filter(None, (notes.get(name), share_of_peak(seconds, name, flops, product))))

    case = f"{settings.network(patch)}, {side} x {side}, batch {batch}"
    yield from rows_by_clock("inference", case, rounds, names, device, images=batch, note=note)


def prepare_reference(settings: Settings, side: int, batch: int) -> Work:
    """Return Depth Anything V2's own code in fp32, warmed up, as a fresh process without our settings runs it."""
    torch.set_num_threads(settings.threads)
    reference = reference_models.depth_anything(settings.size, settings.depth_anything)
    image = torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0))

    def run() -> Tensor:
        with torch.inference_mode():
            return reference(image)

    run()
    return run


class PreparedSize(NamedTuple):
    """Implementations of one network, ready to run."""

    forwards: dict[str, Forward]
    notes: dict[str, str]  # by implementation, how far it is from the baseline
    baseline: str  # its name
    flops: float  # of one pass


def prepare_size(
    settings: Settings, references: list[ReferenceModel], side: int, batch: int, folder: Path
) -> PreparedSize:
    """Return all implementations for one size and batch, their outputs compared with the baseline's; see
    `measure_size`."""
    device = settings.device
    image = torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0)).to(device)
    forwards: dict[str, Forward] = {}
    notes: dict[str, str] = {}
    for reference in references:
        forwards |= reference_forwards(reference, reference.as_densevit(folder), image, settings)
    if references and device.type == "cpu" and batch == 1:
        add_onnx(forwards, references[0], image, folder, settings)
    ours: DenseModel = (references[0].as_densevit(folder) if references else our_network(settings.size)[0]).to(device)
    baseline = f"{references[0].name if references else 'densevit'}, fp32"
    flops = count_flops(ours, image)
    forwards |= our_forwards(ours, image, settings, notes)
    if device.type == "cpu" and batch == 1 and settings.try_build(partial(require_package, "nncf")) is not None:
        forwards |= int8_forwards(ours, image, folder, settings.absent)
    expected = forwards[baseline]().float()
    for name, forward in forwards.items():
        if has_baseline_weights(name, references) and name != baseline:
            notes[name] = f"{notes.get(name, '')}{difference(forward(), expected)}"
    return PreparedSize(forwards, notes, baseline, flops)


def format_of(name: str) -> str:
    return next((precision for precision in ("int8", "bf16", "fp16") if precision in name), "fp32")


def share_of_peak(seconds: Mapping[str, list[float]], name: str, flops: float, product: float) -> str:
    """Return its rate as a share of that of a matrix product, timed in the same rounds and number format."""
    peak = f"peak {format_of(name)}"
    shares = [flops / elapsed / (product / best) for elapsed, best in zip(seconds[name], seconds[peak], strict=True)]
    return f"{Spread.of(shares).middle:.0%} of the {peak.removeprefix('peak ')} peak"


def has_baseline_weights(name: str, references: list[ReferenceModel]) -> bool:
    """Return whether it runs the baseline's weights; further references have their own, with which ours was
    compared."""
    return not any(name.startswith(reference.name) for reference in references[1:])


def reference_forwards(
    reference: ReferenceModel, ours: nn.Module, image: Tensor, settings: Settings
) -> dict[str, Forward]:
    """Return a reference as its users run it: in fp32, and where that is faster in bf16. Raises DensevitError: our
    network with its weights gives other numbers; then no time could be compared."""
    mean, std = (getattr(ours.encoder, name) for name in ("mean", "std"))
    reference.module.to(settings.device)
    normalised = ((image.cpu() - mean) / std).to(settings.device)
    a, b = reference(normalised), reference_models.single_output(ours.to(settings.device)(image))
    if (a - b).abs().max() > 1e-4 * a.abs().max():
        raise DensevitError(f"{reference.name}: our network with its weights is {difference(b, a)}.")
    forwards: dict[str, Forward] = {f"{reference.name}, fp32": lambda: reference(normalised)}
    if settings.precision != "fp32":

        def lower() -> Tensor:
            with autocast(settings.precision, settings.device):
                return reference(normalised)

        forwards[f"{reference.name}, {settings.precision}"] = lower
    return forwards


def add_onnx(
    forwards: dict[str, Forward], reference: ReferenceModel, image: Tensor, folder: Path, settings: Settings
) -> None:
    ours = reference.as_densevit(folder)
    normalised = ((image - ours.encoder.mean) / ours.encoder.std).clone()
    try:
        with torch.inference_mode(mode=False), torch.no_grad():
            run = reference_models.onnx_runtime(reference, normalised.clone(), folder)
    except Unavailable as reason:
        settings.absent.append(f"ONNX Runtime: {reason}")
    else:
        forwards["ONNX Runtime, fp32"] = lambda: run(normalised)


def our_forwards(
    model: DenseModel, image: Float[Tensor, "b 3 h w"], settings: Settings, notes: dict[str, str]
) -> dict[str, Forward]:
    """Return ours in fp32 and in the number format that `auto` takes, by OpenVINO too, and compiled where asked for."""
    image = image.contiguous(memory_format=torch.channels_last)

    def forward(module: nn.Module, precision: Precision) -> Forward:
        def run() -> Tensor:
            with autocast(precision, settings.device):
                return reference_models.single_output(module(image))

        return run

    formats: list[Precision] = list(dict.fromkeys(("fp32", settings.precision)))
    forwards = {f"densevit, {precision}": forward(prepare_copy(model, precision), precision) for precision in formats}
    for precision in formats:
        runtime = settings.try_build(partial(reference_models.openvino, settings.device, precision))
        if runtime is not None:
            elsewhere = ExternalRuntimeModule(model, list(model.heads), runtime, precision)
            forwards[f"densevit by OpenVINO, {precision}"] = forward(elsewhere, precision)
    if settings.compile:
        compiled = forward(torch.compile(model, dynamic=False), settings.precision)  # type: ignore[arg-type]
        name = f"densevit, {settings.precision}, compiled"
        forwards[name] = compiled
        notes[name] = f"compiled in {time_once(compiled).wall:.0f} s; "
    return forwards


def prepare_copy(model: nn.Module, precision: Precision) -> nn.Module:
    """Return a copy, made ready as `Predictor` does."""
    ours: nn.Module = deepcopy(model).to(memory_format=torch.channels_last)
    if next(ours.parameters()).device.type == "cpu":
        prepack(ours, precision)
    return ours


def count_flops(model: nn.Module, image: Tensor) -> float:
    """Return the operations of one pass in fp32, a multiplication and an addition counting two."""
    with FlopCounterMode(display=False) as counter:
        model(image)
    return float(counter.get_total_flops())


def difference(output: Tensor, expected: Tensor) -> str:
    """Return how far two outputs are apart, as a share of the expected one."""
    apart = (output.float().cpu() - expected.cpu()).abs()
    scale = expected.abs().mean().item()
    mean, largest = (three_digits(value.item() / scale) for value in (apart.mean(), apart.max()))
    return f"off by {mean} in the mean, {largest} at most"


def int8_forwards(
    model: DenseModel, image: Float[Tensor, "1 3 h w"], folder: Path, absent: list[str]
) -> dict[str, Callable[[], Tensor]]:
    """Return ours as `export --precision int8` quantises it, by recipe and runtime; random weights need no budget. What
    a runtime refuses is named in `absent`."""
    plain, random = folder / "fp32.onnx", np.random.default_rng(0)
    with torch.inference_mode(mode=False), torch.no_grad():
        save_graph(NamedOutputs(model, list(model.heads)), (image.clone(),), plain)
    smooth = [cv2.resize(random.random((8, 8, 3), dtype=np.float32), image.shape[:1:-1]) for _ in range(4)]
    images = [each.transpose(2, 0, 1)[None].copy() for each in smooth]
    ways: tuple[tuple[str, RuntimeName, Precision], ...] = (
        ("OpenVINO", "openvino", "bf16"),
        ("OpenVINO", "openvino", "fp32"),
        ("ONNX Runtime", "onnxruntime", "fp32"),
    )
    forwards: dict[str, Callable[[], Tensor]] = {}
    for index, recipe in enumerate(quantize.RECIPES):
        path = folder / f"{index}.onnx"
        quantize.quantize(plain, path, recipe, images, {})
        for name, runtime, rest in ways:
            if all(map(is_installed, RUNTIMES[runtime].needs)):
                title = f"densevit by {name}, {recipe}, rest {rest}"
                try:
                    run = partial(run_session, RUNTIMES[runtime].open(path, rest), image.numpy())
                    run()
                except Exception as error:  # each runtime has its own classes
                    absent.append(f"{title}: {str(error).strip().splitlines()[-1]}")
                else:
                    forwards[title] = run
    return forwards


def run_session(session: Run, image: np.ndarray) -> Tensor:
    return torch.from_numpy(session(image)[0])
