"""Networks computed by OpenVINO or ONNX Runtime in place of torch, on a CPU.

A network is converted for each size of images when the first of them comes, which takes some ten seconds and the memory
of its weights; the graph is cached on disk. b images, h x w pixels, k numbers per pixel.
"""

import hashlib
import json
import logging
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Num
from torch import Tensor, nn
from torch.nn import functional as F

from densevit.errors import StorageError
from densevit.inference.backends.onednn import prepack
from densevit.inference.onnx.graph import NamedOutputs, save_graph
from densevit.model_inputs import NO_INPUTS, ModelInputs
from densevit.structures import Size
from densevit.utils.atomic_io import atomic_folder, make_folder, remove_stale_temporaries, user_cache
from densevit.utils.device import Precision
from densevit.utils.packages import refuse_telemetry
from densevit.weights.fingerprint import model_fingerprint, versions

log = logging.getLogger(__name__)

RuntimeName = Literal["torch", "openvino", "onnxruntime", "cuda_graphs", "auto"]

MAX_SHAPES = 4  # sizes that are converted; each keeps a copy of the weights

Run = Callable[..., list[np.ndarray]]
"""Images, and what else the file takes, to the outputs of every head, in the order of the file."""

Sizes = tuple[int, int, Size | None]
"""Height and width of the images, and the size of the outputs where it differs."""


class Runtime(ABC):
    """An inference runtime that reads ONNX files."""

    needs: tuple[str, ...]  # packages
    precisions: tuple[Precision, ...]  # those that it computes in, the default first

    @abstractmethod
    def open(self, path: Path, precision: Precision) -> Run:
        """Return the network as a function; the file may be deleted when this returns."""


class OpenVino(Runtime):
    """bf16 and fp16 where the processor has them, else it computes in fp32 whatever the precision is."""

    needs = ("openvino", "onnx", "onnxscript")
    precisions = ("fp32", "bf16", "fp16")

    def open(self, path: Path, precision: Precision) -> Run:
        refuse_telemetry()
        import openvino

        hints = {
            "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}[precision],
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "ENABLE_CPU_PINNING": False,  # or several processes would share the same few cores
        }
        request, lock = openvino.Core().compile_model(path, "CPU", hints).create_infer_request(), Lock()

        def run(*arrays: np.ndarray) -> list[np.ndarray]:
            with lock:  # threads share the request and the memory of its outputs
                return [np.array(output) for output in request.infer(list(arrays)).values()]

        return run


class OnnxRuntime(Runtime):
    """In fp32 only, on the CPU."""

    needs = ("onnxruntime", "onnx", "onnxscript")
    precisions = ("fp32",)

    def open(self, path: Path, precision: Precision) -> Run:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # failures are raised
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [x.name for x in session.get_inputs()]
        return lambda *arrays: list(session.run(None, dict(zip(names, arrays, strict=True))))


RUNTIMES: dict[str, Runtime] = {"openvino": OpenVino(), "onnxruntime": OnnxRuntime()}


def call_network(model: nn.Module, image: Tensor, inputs: ModelInputs, output_size: Size | None) -> dict[str, Tensor]:
    """Return the outputs of a network that need not take inputs, or a size."""
    options = {} if output_size is None else {"output_size": output_size}
    return dict(model(image, inputs, **options) if inputs else model(image, **options))


class ConvertedNetwork(NamedTuple):
    """A network for one size of images and a fixed batch size."""

    run: Run
    batch: int

    def __call__(self, *inputs: Num[Tensor, "b ..."]) -> list[Num[Tensor, "b ..."]]:
        """Return any number of images, in batches of the fixed size; the last is padded."""
        batches = []
        for chunks in zip(*(torch.split(x, self.batch) for x in inputs), strict=True):
            count = len(chunks[0])
            full = [F.pad(chunk, (0, 0) * (chunk.ndim - 1) + (0, self.batch - count)) for chunk in chunks]
            outputs = self.run(*(chunk.contiguous().numpy() for chunk in full))
            batches.append([torch.from_numpy(y[:count]) for y in outputs])
        return [torch.cat(chunks) for chunks in zip(*batches, strict=True)]


class ExternalRuntimeModule(nn.Module):
    """The outputs of `model`, computed by another runtime; sizes beyond the first few are left to torch.

    Attributes:
        model: unchanged; its weights are copied when an image of a new size comes.
    """

    def __init__(self, model: nn.Module, names: list[str], runtime: Runtime, precision: Precision) -> None:
        """
        Args:
            names: of the heads.
        """
        super().__init__()
        self.model, self.names, self.runtime, self.precision = model, names, runtime, precision
        self.input_names: tuple[str, ...] = getattr(model, "input_names", ())
        self.networks: dict[Sizes, ConvertedNetwork] = {}
        self.falls_back = False

    def forward(
        self,
        image: Float[Tensor, "b 3 h w"],
        inputs: ModelInputs = NO_INPUTS,
        *,
        output_size: Size | None = None,
    ) -> dict[str, Float[Tensor, "b _ _ _"]]:
        """See `DenseModel.forward`. Raises ConfigError: this network cannot be converted."""
        key = (image.shape[-2], image.shape[-1], output_size)
        used = {name: inputs[name].float() for name in self.input_names if name in inputs}
        if key not in self.networks:
            self.prepare(key, image.float(), used)
        if key not in self.networks:
            return self.by_torch(image, used, output_size)
        return dict(zip(self.names, self.networks[key](image.float(), *used.values()), strict=True))

    def prepare(self, key: Sizes, image: Tensor, inputs: ModelInputs) -> None:
        """Convert the network for images of a new size, unless torch shall compute them."""
        if len(self.networks) < MAX_SHAPES:
            self.networks[key] = self.convert(image, key[2], inputs)

    def by_torch(self, image: Tensor, inputs: ModelInputs, output_size: Size | None) -> dict[str, Tensor]:
        if not self.falls_back:
            self.falls_back = True
            log.warning("more than %d sizes of images: torch computes the others.", MAX_SHAPES)
            prepack(self.model, self.precision)  # nothing will be converted any more
        return call_network(self.model, image, inputs, output_size)

    def convert(
        self, image: Float[Tensor, "b 3 h w"], size: Size | None, inputs: ModelInputs = NO_INPUTS
    ) -> ConvertedNetwork:
        network = NamedOutputs(self.model, self.names, list(inputs), **({} if size is None else {"output_size": size}))
        more = () if size is None else (size,)
        packages = versions("torch", "timm", "onnx", "onnxscript")
        about = [model_fingerprint(self.model), self.names, list(image.shape), more, len(inputs), packages]
        key = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]

        def save(path: Path) -> None:
            save_graph(network, (torch.zeros(image.shape), *(torch.ones(x.shape) for x in inputs.values())), path)

        with cached_graph(key, save) as path:
            try:
                return ConvertedNetwork(self.runtime.open(path, self.precision), len(image))
            except Exception as error:  # each runtime has its own classes
                log.warning("the converted network in %s is damaged and made anew: %s", path.parent, error)
                shutil.rmtree(path.parent, ignore_errors=True)
        with cached_graph(key, save) as path:
            return ConvertedNetwork(self.runtime.open(path, self.precision), len(image))


KIND = "onnx"
MAX_BYTES = 4 * 2**30
GRAPH = "network.onnx"


@contextmanager
def cached_graph(key: str, save: Callable[[Path], None]) -> Iterator[Path]:
    """Give the path of the graph with this key, saved first where it is not there; it may vanish after the block."""
    folder = user_cache(KIND)
    if folder is not None and add(folder / key, save):
        yield folder / key / GRAPH
        return
    with TemporaryDirectory(prefix="densevit-") as temporary:
        path = Path(temporary) / GRAPH
        save(path)
        yield path


def add(entry: Path, save: Callable[[Path], None]) -> bool:
    """Return whether the graph is in the cache now."""
    graph = entry / GRAPH
    try:
        if not graph.is_file():
            make_folder(entry.parent)
            remove_stale_temporaries(entry.parent)
            with atomic_folder(entry) as folder:
                save(folder / GRAPH)
            delete_least_recent(entry.parent, keep=entry)
        os.utime(entry)  # used now
    except (StorageError, OSError) as error:
        if not graph.is_file():  # another process may have saved it in the meantime
            log.warning("the converted network is not cached: %s", error)
            return False
    return True


def delete_least_recent(folder: Path, keep: Path) -> None:
    entries = sorted((path for path in folder.iterdir() if path.is_dir() and path != keep), key=last_used)
    total = sum(size(entry) for entry in (*entries, keep))
    for entry in entries:
        if total <= MAX_BYTES:
            return
        total -= size(entry)
        shutil.rmtree(entry, ignore_errors=True)


def last_used(entry: Path) -> float:
    with suppress(OSError):
        return entry.stat().st_mtime
    return 0.0


def size(entry: Path) -> int:
    with suppress(OSError):
        return sum(path.stat().st_size for path in entry.iterdir())
    return 0
