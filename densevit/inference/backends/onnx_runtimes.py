"""Networks that another program than torch computes, on a CPU: OpenVINO, ONNX Runtime.

A network is converted for each size of images when the first of them comes, which takes some ten seconds and the memory
of its weights; so it is for many images of few sizes. b images, h x w pixels, k numbers per pixel.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from densevit.errors import ConfigError
from densevit.inference.backends.onednn import prepack_linears
from densevit.inference.onnx.graph import NamedOutputs, demand, save_graph
from densevit.structures import Size
from densevit.utils.device import choose_device
from densevit.utils.precision import Precision, resolve

log = logging.getLogger(__name__)

RuntimeName = Literal["torch", "openvino", "onnxruntime"]

MAX_SHAPES = 4  # sizes that are converted; each keeps a copy of the weights

Run = Callable[[np.ndarray], list[np.ndarray]]
"""Images to the answers of every head, as the file has them."""


class Runtime(ABC):
    """A program that reads ONNX files.

    Attributes:
        needs: packages.
        precisions: the number formats that it may be asked for, the usual one first.
    """

    needs: tuple[str, ...]
    precisions: tuple[Precision, ...]

    @abstractmethod
    def open(self, path: Path, precision: Precision) -> Run:
        """The file may go when this returns."""


class OpenVino(Runtime):
    """bf16 and fp16 where the processor has them, else it computes in fp32 whatever is asked for."""

    needs = ("openvino", "onnx", "onnxscript")
    precisions = ("fp32", "bf16", "fp16")

    def open(self, path: Path, precision: Precision) -> Run:
        import openvino

        hints = {
            "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}[precision],
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "ENABLE_CPU_PINNING": False,  # or several processes would share the same few cores
        }
        request = openvino.Core().compile_model(path, "CPU", hints).create_infer_request()
        return lambda images: [np.array(answer) for answer in request.infer([images]).values()]


class OnnxRuntime(Runtime):
    """In fp32 only, on the CPU."""

    needs = ("onnxruntime", "onnx", "onnxscript")
    precisions = ("fp32",)

    def open(self, path: Path, precision: Precision) -> Run:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # what fails is raised
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        return lambda images: list(session.run(None, {given.name: images}))


RUNTIMES: dict[str, Runtime] = {"openvino": OpenVino(), "onnxruntime": OnnxRuntime()}


def resolve_device_and_precision(
    name: str, device: str | torch.device, precision: str, *, compiled: bool = False
) -> tuple[torch.device, Precision]:
    """Where and in which numbers to compute, with what `auto` means there.

    Raises:
        ConfigError: no such program, or it is not installed, or does not compute there, or so.
    """
    if name == "torch":
        place = choose_device(device)
        return place, resolve(precision, place)
    if name not in RUNTIMES:
        raise ConfigError(f"runtime: no '{name}'; torch, {', '.join(RUNTIMES)} may be asked for.")
    if compiled:
        raise ConfigError(f"runtime: {name} computes in torch's place; leave out `compile`.")
    place = choose_device("cpu" if device == "auto" else device)
    if place.type != "cpu":
        raise ConfigError(f"runtime: {name} computes on the CPU, and the device is to be '{place}'.")
    numbers = RUNTIMES[name].precisions
    usual = resolve("auto", place)
    chosen = resolve(precision, place) if precision != "auto" else usual if usual in numbers else numbers[0]
    if chosen not in numbers:
        raise ConfigError(f"runtime: {name} computes in {', '.join(numbers)}, not in {chosen}.")
    demand(*RUNTIMES[name].needs, extra=name)
    return place, chosen


class Program(NamedTuple):
    """A network for one size of images, so many at a time."""

    run: Run
    batch: int

    def answer(self, images: Float[Tensor, "b 3 h w"]) -> list[Float[Tensor, "b _ _ _"]]:
        """In portions of our batch, the last of them filled up."""
        found = []
        for portion in torch.split(images, self.batch):
            full = F.pad(portion, (0, 0, 0, 0, 0, 0, 0, self.batch - len(portion)))
            answers = self.run(full.float().contiguous().numpy())
            found.append([torch.from_numpy(answer[: len(portion)]) for answer in answers])
        return [torch.cat(parts) for parts in zip(*found, strict=True)]


class ExternalRuntimeModule(nn.Module):
    """Answers as `model` would, by another program; sizes beyond the first few are left to torch.

    Attributes:
        model: as it is; its weights are copied when a size is first met.
    """

    def __init__(self, model: nn.Module, names: list[str], runtime: Runtime, precision: Precision) -> None:
        """
        Args:
            names: of the heads.
        """
        super().__init__()
        self.model, self.names, self.runtime, self.precision = model, names, runtime, precision
        self.programs: dict[tuple[Any, ...], Program] = {}
        self.overflown = False

    def forward(
        self, image: Float[Tensor, "b 3 h w"], answer_size: Size | None = None
    ) -> dict[str, Float[Tensor, "b _ _ _"]]:
        """See `DenseModel.forward`.

        Raises:
            ConfigError: this network cannot be converted.
        """
        more = () if answer_size is None else (answer_size,)
        key = (*image.shape[-2:], *more)
        if key not in self.programs:
            if len(self.programs) == MAX_SHAPES:
                return self.by_torch(image, *more)
            self.programs[key] = self.convert(image, more)
        return dict(zip(self.names, self.programs[key].answer(image), strict=True))

    def by_torch(self, image: Float[Tensor, "b 3 h w"], *more: Size) -> dict[str, Tensor]:
        if not self.overflown:
            self.overflown = True
            log.warning("more than %d sizes of images: torch computes the others.", MAX_SHAPES)
            prepack_linears(self.model, self.precision)  # nothing will be converted any more
        return dict(self.model(image, *more))

    def convert(self, image: Float[Tensor, "b 3 h w"], more: tuple[Size, ...]) -> Program:
        with TemporaryDirectory(prefix="densevit-") as folder:
            path = Path(folder) / "network.onnx"
            save_graph(NamedOutputs(self.model, self.names, *more), torch.zeros(image.shape), path)
            return Program(self.runtime.open(path, self.precision), len(image))
