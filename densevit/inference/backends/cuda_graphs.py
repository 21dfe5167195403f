"""Networks whose kernels are recorded as a CUDA graph for each size of images, and replayed: one launch in place of
hundreds, which is what a small model on a fast GPU waits for. b images, h x w pixels, k numbers per pixel.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.inference.backends.onnx_runtimes import MAX_SHAPES, call_network
from densevit.model_inputs import NO_INPUTS, ModelInputs
from densevit.structures import Size

WARM_UPS = 2  # passes before a recording, in which libraries choose their kernels and constants go up


class Recording(NamedTuple):
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
        self.recordings: dict[tuple[Any, ...], Recording] = {}
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

    def record(self, names: list[str], tensors: list[Tensor], size: Size | None) -> Recording:
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
        return Recording(graph, tensors, outputs)


@contextmanager
def without_autocast_cache() -> Iterator[None]:
    """Weights that autocast has cast before are not in the graph, and would be gone when it is replayed."""
    before = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
