"""Exports a network to an ONNX graph for one shape of images."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from densevit.errors import ConfigError
from densevit.inference.onnx.constant_folding import trace
from densevit.version import __version__

INPUT, BATCH = "image", "batch"
MAX_WEIGHTS = 2**31 - 2**24  # bytes: one file ends at 2 GB, and the graph takes some of it


class NamedOutputs(nn.Module):
    """A model with a dictionary of outputs, as one that returns them as a tuple, in the order of `names`."""

    def __init__(self, model: nn.Module, names: Sequence[str], second: str = "", **constants: object) -> None:
        """
        Args:
            second: the model's name of a second input, where it takes one.
            constants: further arguments of the model.
        """
        super().__init__()
        self.model, self.names, self.second, self.constants = model, list(names), second, constants

    def forward(self, image: Tensor, more: Tensor | None = None) -> tuple[Tensor, ...]:
        inputs = {} if more is None else {self.second: more}
        outputs = self.model(image, **inputs, **self.constants)
        return tuple(outputs[name] for name in self.names)


def save_graph(
    module: NamedOutputs,
    examples: tuple[Tensor, ...],
    path: Path,
    *,
    any_batch: bool = False,
    metadata: Mapping[str, str] | None = None,
    text: str = "",
) -> None:
    """Writes the graph; weights of over 2 GB go into a second file beside it, named `.data` in addition.

    Constants that do not depend on the image (positions on this grid, tables of offsets) are computed here and stored.

    Args:
        examples: images of the size that all will have, and the second input of a network that takes one; two of each
            where `any_batch`, because torch.export specialises a dimension of 1.
        any_batch: the graph takes any number of images at once.
        metadata, text: of the file, for programs and for people.

    Raises:
        ConfigError: this network uses operations that ONNX cannot express.
    """
    shapes: dict[str, Any] = {"dynamic_shapes": ({0: Dim(BATCH)},) * len(examples)} if any_batch else {}
    given = [INPUT, module.second][: len(examples)]
    names: dict[str, Any] = {"input_names": given, "output_names": module.names, **shapes}
    try:
        with export_context(), quiet():
            graph = trace(traceable(module), examples, **shapes)
            program = torch.onnx.export(graph, examples, dynamo=True, verbose=False, **names)
            assert program is not None
            program.model.producer_name, program.model.producer_version = "densevit", __version__
            program.model.doc_string = text
            program.model.metadata_props.update(metadata or {})
            program.save(path, external_data=sum(tensor.nbytes for tensor in graph.buffers()) > MAX_WEIGHTS)
    except (torch.onnx.errors.OnnxExporterError, torch._dynamo.exc.TorchDynamoException, RuntimeError) as error:
        raise ConfigError(f"this network cannot be written as ONNX: {first_cause(error)}") from error


def first_cause(error: BaseException) -> str:
    """The innermost error, in one line; the exporter's own message is about how to report it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def traceable(module: nn.Module) -> nn.Module:
    """The module, or a copy where it was built in inference mode: inference tensors cannot be traced."""
    tensors = (*module.parameters(), *module.buffers())
    return deepcopy(module) if any(tensor.is_inference() for tensor in tensors) else module


@contextmanager
def export_context() -> Iterator[None]:
    """In fp32, whatever precision the caller computes in, and by operators that other runtimes have, too.

    Inference tensors cannot be traced.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        with torch.inference_mode(mode=False), torch.no_grad(), torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the exporters' messages, which do not concern the result."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings(), redirect_stderr(StringIO()):  # torch prints progress there
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
