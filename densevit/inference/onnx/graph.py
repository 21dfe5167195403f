"""Exports a network to an ONNX graph for images of one size, or of any."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from densevit.errors import ConfigError
from densevit.inference.onnx.constant_folding import trace
from densevit.inference.onnx.dynamic_size import NetworkSizes, compute_sizes
from densevit.version import __version__

if TYPE_CHECKING:
    import onnx_ir

INPUT, BATCH = "image", "batch"
MAX_WEIGHTS = 2**31 - 2**24  # bytes: one file ends at 2 GB, and the graph takes some of it


class NamedOutputs(nn.Module):
    """A model with a dictionary of outputs, as one that returns them as a tuple, in the order of `names`."""

    def __init__(self, model: nn.Module, names: Sequence[str], more: Sequence[str] = (), **constants: object) -> None:
        """
        Args:
            more: the names of the inputs beside the image, which the model takes as a mapping.
            constants: further arguments of the model.
        """
        super().__init__()
        self.model, self.names, self.more, self.constants = model, list(names), list(more), constants

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        image, *more = inputs
        inputs_by_name = [dict(zip(self.more, more, strict=True))] if self.more else []
        outputs = self.model(image, *inputs_by_name, **self.constants)
        return tuple(outputs[name] for name in self.names)


def save_graph(
    module: NamedOutputs,
    examples: tuple[Tensor, ...],
    path: Path,
    *,
    any_batch: bool = False,
    sizes: NetworkSizes | None = None,
    metadata: Mapping[str, str] | None = None,
    text: str = "",
) -> None:
    """Write the graph; weights of over 2 GB go into a second file beside it, named `.data` in addition.

    Constants that do not depend on the image (positions on this grid, tables of offsets) are computed here and stored.
    Raises ConfigError: this network uses operations that ONNX cannot express.

    Args:
        examples: images of the size that all will have, and what else the module takes; two of each where `any_batch`,
            because torch.export specialises a dimension of 1.
        any_batch: the graph takes any number of images at once.
        sizes: the graph takes images of any size; the last of the module's inputs are `sizes.names`.
        metadata, text: of the file, for programs and for people.
    """
    shapes = dynamic_shapes(examples, any_batch, sizes)
    names: dict[str, Any] = {"input_names": [INPUT, *module.more], "output_names": module.names}
    try:
        with export_context(), quiet():
            graph = trace(traceable(module), examples, dynamic_shapes=(shapes,))
            program = torch.onnx.export(graph, examples, dynamo=True, verbose=False, **names)
            assert program is not None
            if sizes is not None:
                sizes_program = torch.onnx.export(
                    torch.export.export(sizes, examples[:1], dynamic_shapes=shapes[:1]), dynamo=True, verbose=False
                )
                assert sizes_program is not None
                compute_sizes(program.model, sizes_program.model)
            name_dimensions(program.model, any_batch, sizes)
            make_reproducible(program.model)
            program.model.producer_name, program.model.producer_version = "densevit", __version__
            program.model.doc_string = text
            program.model.metadata_props.update(metadata or {})
            program.save(path, external_data=sum(tensor.nbytes for tensor in graph.buffers()) > MAX_WEIGHTS)
    except (torch.onnx.errors.OnnxExporterError, torch._dynamo.exc.TorchDynamoException, RuntimeError) as error:
        raise ConfigError(f"this network cannot be written as ONNX: {first_cause(error)}") from error


def dynamic_shapes(
    examples: tuple[Tensor, ...], any_batch: bool, sizes: NetworkSizes | None
) -> tuple[dict[int, Any], ...]:
    """Return which dimensions of each input vary."""
    batch = {0: Dim(BATCH)} if any_batch else {}
    if sizes is None:
        return (batch,) * len(examples)
    sides = {sizes.rows + i: Dim.AUTO for i in (0, 1)}
    more = (batch,) * (len(examples) - 1 - len(sizes.names))
    return ({**batch, **sides}, *more, *({0: Dim.AUTO, 1: Dim.AUTO},) * len(sizes.names))


def name_dimensions(model: "onnx_ir.Model", any_batch: bool, sizes: NetworkSizes | None) -> None:
    """Call the dimensions that vary `batch`, `height` and `width`, in place of the tracer's names."""
    names = ({0: BATCH} if any_batch else {}) | (
        {} if sizes is None else {sizes.rows: "height", sizes.rows + 1: "width"}
    )
    image = model.graph.inputs[0].shape
    assert image is not None
    named = {str(image[i]): name for i, name in names.items()}
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.shape is not None:
            for i, side in enumerate(value.shape):
                value.shape[i] = named.get(str(side), side)


def make_reproducible(model: "onnx_ir.Model") -> None:
    """Sort the weights, whose order depends on the process, and drop notes of the tracer, which hold paths."""
    model.graph.metadata_props.clear()
    for node in model.graph.all_nodes():
        node.metadata_props.clear()
    weights = sorted(model.graph.initializers.items())
    model.graph.initializers.clear()
    model.graph.initializers.update(weights)


def first_cause(error: BaseException) -> str:
    """Return the innermost error, in one line; the exporter's own message is about how to report it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def traceable(module: nn.Module) -> nn.Module:
    """Return the module, or a copy where it was built in inference mode: inference tensors cannot be traced."""
    tensors = (*module.parameters(), *module.buffers())
    return deepcopy(module) if any(tensor.is_inference() for tensor in tensors) else module


@contextmanager
def export_context() -> Iterator[None]:
    """Export in fp32, whatever precision the caller computes in, and by operators that other runtimes have, too.

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
    """Silence the exporters' messages, which do not concern the result."""
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
