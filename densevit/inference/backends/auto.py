"""`runtime: auto`: torch, or another runtime where the time that it saves is longer than the conversion takes.

Where the number of images is known (exports, evaluations), torch and the runtime are timed before the first image.
Elsewhere torch computes until as many images again would pay for the conversion.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from time import perf_counter
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.inference.backends.onednn import prepack
from densevit.inference.backends.onnx_runtimes import MAX_SHAPES, RUNTIMES, ExternalRuntimeModule, Sizes, call_network
from densevit.model_inputs import NO_INPUTS, ModelInputs
from densevit.structures import Size
from densevit.utils.device import Precision, choose_device, resolve
from densevit.utils.packages import is_installed, require_packages

log = logging.getLogger(__name__)


class Cost(NamedTuple):
    """What a runtime costs."""

    # its seconds for an image over torch's, by precision (benchmarks/2026-11-21-speed.md)
    share: Mapping[Precision, float]
    # seconds to convert a network for one size of images, and seconds more for each million parameters
    # (benchmarks/2026-11-22-cpu.md)
    start: tuple[float, float]


COSTS = {"openvino": Cost({"fp32": 0.80, "bf16": 0.72}, (8.6, 0.03))}
"""ONNX Runtime computes in fp32 only, in the time that torch takes: its conversion never pays."""


class Choice(NamedTuple):
    name: str  # of the runtime
    reason: str  # in one line, with the seconds that decided


def candidate(device: torch.device, precision: Precision) -> str | None:
    """Return the fastest installed runtime beside torch on this device in this precision; None where there is none."""
    usable = [
        name
        for name, cost in COSTS.items()
        if device.type == "cpu" and precision in cost.share and all(map(is_installed, RUNTIMES[name].needs))
    ]
    return min(usable, key=lambda name: COSTS[name].share[precision], default=None)


def resolve_device_and_precision(
    name: str, device: str | torch.device, precision: str, *, compiled: bool = False
) -> tuple[torch.device, Precision]:
    """Return the device and precision of a runtime, with `auto` resolved; the runtime `auto` has those of torch. Raises
    ConfigError: no such runtime, or it is not installed, or not for this device or precision."""
    if precision == "int8":
        raise ConfigError(
            "precision: int8 needs calibration and a budget, so it is a file of its own. "
            "`densevit export CHECKPOINT --precision int8 --max-drop d1=0.005 --data ... --image-size dynamic "
            "--output int8.onnx` writes it; then give int8.onnx in place of the checkpoint."
        )
    if name in ("torch", "auto", "cuda_graphs"):
        resolved_device = choose_device(device)
        if name == "cuda_graphs" and resolved_device.type != "cuda":
            raise ConfigError(f"runtime: cuda_graphs is for NVIDIA GPUs, not for '{resolved_device}'; take torch.")
        return resolved_device, resolve(precision, resolved_device)
    if name not in RUNTIMES:
        raise ConfigError(f"runtime: no '{name}'; choose one of torch, {', '.join(RUNTIMES)}, cuda_graphs, auto.")
    if compiled:
        raise ConfigError(f"runtime: {name} computes in place of torch; leave out `compile`.")
    resolved_device = choose_device("cpu" if device == "auto" else device)
    if resolved_device.type != "cpu":
        raise ConfigError(f"runtime: {name} computes on the CPU, not on '{resolved_device}'.")
    supported = RUNTIMES[name].precisions
    resolved = resolve(precision, resolved_device)
    if precision == "auto" and resolved not in supported:
        resolved = supported[0]
    if resolved not in supported:
        raise ConfigError(f"runtime: {name} computes in {', '.join(supported)}, not in {resolved}.")
    require_packages(*RUNTIMES[name].needs, extra=name)
    return resolved_device, resolved


def network_for(
    model: nn.Module, heads: list[str], runtime: str, device: torch.device, precision: Precision, *, compiled: bool
) -> tuple[nn.Module, str]:
    """Return the model as a runtime computes it, and the runtime's name: `auto` is torch if no other one is faster.
    `compiled`: by torch.compile, so that only torch computes it."""
    if runtime == "auto":
        other = None if compiled else candidate(device, precision)
        if other is not None:
            return AutoRuntimeModule(model, heads, other, precision), runtime
    elif runtime == "cuda_graphs":
        return CudaGraphs(model), runtime
    elif runtime != "torch":
        return ExternalRuntimeModule(model, heads, RUNTIMES[runtime], precision), runtime
    if device.type == "cpu" and not compiled:
        prepack(model, precision)
    return model, "torch"


def start_seconds(name: str, model: nn.Module) -> float:
    """Return about how long the conversion of a model takes for one size of images."""
    fixed, each = COSTS[name].start
    return fixed + each * sum(p.numel() for p in model.parameters()) / 1e6


def choose(name: str, sizes: Mapping[Any, int], start: float, share: float, seconds: Callable[[str], float]) -> Choice:
    """Return torch or the runtime `name`, for a number of images of each size of the network's input.

    Args:
        start, share: of the runtime; see `Cost`.
        seconds: of one image of the most frequent size, by a runtime; converts the network first where needed.
    """
    frequent = Counter(sizes).most_common(MAX_SHAPES)
    images, converted = sum(sizes.values()), len(frequent)
    by_torch = seconds("torch")
    saved = sum(count for _, count in frequent) * by_torch * (1 - share)
    noun = f"{images} image{'s' * (images != 1)} of {len(sizes)} size{'s' * (len(sizes) != 1)}"
    if saved <= converted * start:
        return Choice(
            "torch", f"{name} would save some {saved:.0f} s on {noun} and takes {converted * start:.0f} s to start"
        )
    other = seconds(name)
    what = f"{other:.3g} s an image by {name}, {by_torch:.3g} s by torch"
    return Choice(name, f"{what}; {noun}") if other < by_torch else Choice("torch", what)


def sampled_sizes(count: int, size_of: Callable[[int], Size | None], *, read: int = 32) -> Counter[Size]:
    """Return about how many of `count` images have which size, from `read` of them, evenly spaced. `size_of`: index ->
    (h, w); None where the image cannot be read."""
    picked = sorted({count * i // read for i in range(read)}) if count else []
    sizes = Counter(size for index in picked if (size := size_of(index)) is not None)
    return Counter({size: max(1, round(number * count / sizes.total())) for size, number in sizes.items()})


class AutoRuntimeModule(ExternalRuntimeModule):
    """torch, until a size of images has come so often that as many again pay for its conversion.

    Attributes:
        name: of the runtime.
        spent: by size, the images that torch has computed, and their seconds.
        slower: sizes for which the runtime turned out slower than torch.
    """

    def __init__(self, model: nn.Module, names: list[str], name: str, precision: Precision) -> None:
        super().__init__(model, names, RUNTIMES[name], precision)
        self.name = name
        self.share, self.start = COSTS[name].share[precision], start_seconds(name, model)
        self.spent: dict[Sizes, tuple[int, float]] = {}
        self.slower: set[Sizes] = set()
        self.falls_back = True
        prepack(model, precision)

    def by_torch(self, image: Tensor, inputs: ModelInputs, output_size: Size | None) -> dict[str, Tensor]:
        key = (image.shape[-2], image.shape[-1], output_size)
        begun = perf_counter()
        outputs = super().by_torch(image, inputs, output_size)
        images, seconds = self.spent.get(key, (0, 0.0))
        self.spent[key] = (images + len(image), seconds + perf_counter() - begun)
        return outputs

    def pays(self, key: Sizes) -> bool:
        """Return whether as many images again would save more than the conversion takes."""
        if len(self.networks) == MAX_SHAPES or key in self.slower:
            return False
        return self.spent.get(key, (0, 0.0))[1] * (1 - self.share) > self.start

    def prepare(self, key: Sizes, image: Tensor, inputs: ModelInputs) -> None:
        """Convert the network for this size once that pays, and keep it if it is faster than torch was."""
        if not self.pays(key):
            return
        images, seconds = self.spent[key]
        log.warning(
            "runtime auto: %d images of %dx%d took %.0f s by torch; %s computes the next ones, after a conversion of "
            "some %.0f s.", images, *key[:2], seconds, self.name, self.start,
        )  # fmt: skip
        network = self.convert(image, key[2], inputs)
        network(image, *inputs.values())
        begun = perf_counter()
        network(image, *inputs.values())
        if perf_counter() - begun < seconds / images * len(image):
            self.networks[key] = network
        else:
            log.warning("runtime auto: %s is slower here; continuing with torch.", self.name)
            self.slower.add(key)


WARM_UPS = 2  # passes before a recording, in which libraries choose their kernels and constants go up


class RecordedGraph(NamedTuple):
    """A graph, and the memory that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    outputs: dict[str, Float[Tensor, "b _ _ _"]]

    def replay(self, inputs: Sequence[Tensor]) -> dict[str, Float[Tensor, "b _ _ _"]]:
        for there, x in zip(self.inputs, inputs, strict=True):
            there.copy_(x)
        self.graph.replay()
        return {name: y.clone() for name, y in self.outputs.items()}  # the next replay writes over its own


class CudaGraphs(nn.Module):
    """The outputs of `model`, replayed; sizes beyond the first few are computed without a graph."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.input_names: tuple[str, ...] = getattr(model, "input_names", ())
        self.recordings: dict[tuple[Any, ...], RecordedGraph] = {}
        self.pool: Any = None
        self.lock = Lock()  # threads share the memory of a recording

    def forward(
        self,
        image: Float[Tensor, "b 3 h w"],
        inputs: ModelInputs = NO_INPUTS,
        *,
        output_size: Size | None = None,
    ) -> dict[str, Float[Tensor, "b _ _ _"]]:
        """See `DenseModel.forward`. Raises ConfigError: this network cannot be recorded."""
        names = [name for name in self.input_names if name in inputs]
        tensors = [image, *(inputs[name] for name in names)]
        low = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        key = (*names, *((tuple(x.shape), x.dtype) for x in tensors), output_size, low)
        with self.lock:
            if key not in self.recordings:
                if len(self.recordings) == MAX_SHAPES:
                    return self.compute(names, tensors, output_size)
                self.recordings[key] = self.record(names, [x.clone() for x in tensors], output_size)
            return self.recordings[key].replay(tensors)

    def compute(self, names: list[str], tensors: list[Tensor], size: Size | None) -> dict[str, Tensor]:
        return call_network(self.model, tensors[0], dict(zip(names, tensors[1:], strict=True)), size)

    def record(self, names: list[str], tensors: list[Tensor], size: Size | None) -> RecordedGraph:
        with without_autocast_cache():
            stream, current = torch.cuda.Stream(), torch.cuda.current_stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                for _ in range(WARM_UPS):
                    self.compute(names, tensors, size)
            current.wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, pool=self.pool):
                    outputs = self.compute(names, tensors, size)
            except RuntimeError as error:
                raise ConfigError(f"runtime: cuda_graphs cannot record this network ({error}); take torch.") from error
        self.pool = graph.pool()  # for all graphs, which never run at the same time
        return RecordedGraph(graph, tensors, outputs)


@contextmanager
def without_autocast_cache() -> Iterator[None]:
    """Turn the cache off: weights that autocast cast before are not in the graph, and would be gone when it is
    replayed."""
    before = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
