"""Exports a checkpoint to an AOTInductor package (.pt2): machine code and weights, which C++ programs run by libtorch.

Preprocessing and postprocessing are part of it, as of an ONNX file (inference/onnx/export.py).
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from densevit.errors import ConfigError, StorageError
from densevit.inference.onnx.constant_folding import trace
from densevit.inference.onnx.export import Pipeline, check_options, example_inputs
from densevit.inference.onnx.graph import NamedOutputs, export_context, first_cause, quiet, traceable
from densevit.inference.onnx.metadata import OnnxExportOptions, describe_export, metadata
from densevit.inference.onnx.verify import TOLERANCE, check_errors, errors_against_torch, torch_predictor
from densevit.inference.pt2.load import KEY, TensorSpec, load_pt2
from densevit.model_card import ModelCard
from densevit.utils import atomic_io

COMPILERS = ("g++", "clang++", "c++")


@dataclass(frozen=True)
class ExportedPackage:
    path: Path
    errors: Mapping[str, float]  # by head, the largest difference from torch as a share of the largest value
    metadata: Mapping[str, str]  # of the file, in words

    def __str__(self) -> str:
        return describe_export([self.path], self.metadata, self.errors)


def check_output(path: Path, *, overwrite: bool = False) -> None:
    """Raises before a checkpoint is read where the export would fail. Raises ConfigError: no C++ compiler, a name that
    does not end in .pt2, or a file that exists. Raises StorageError: no such folder."""
    if not any(map(shutil.which, COMPILERS)):
        raise ConfigError(f"a .pt2 file is compiled C++: no compiler is installed ({', '.join(COMPILERS)}).")
    if path.suffix.lower() != ".pt2":
        raise ConfigError(f"--output: {path} does not end in .pt2.")
    if not path.parent.is_dir():
        raise StorageError(f"{path}: its folder does not exist.")
    if path.exists() and not overwrite:
        raise ConfigError(f"--output: {path} exists already; --overwrite replaces it.")


def export_pt2(model: nn.Module, card: ModelCard, path: Path, options: OnnxExportOptions) -> ExportedPackage:
    """Compiles the file for this machine's processor, runs it, and keeps it only if its outputs are those of torch.
    Raises ConfigError, DataError: no such head, a size that does not fit, or a network that cannot be compiled; nothing
    is written. Raises StorageError if the disk is full."""
    card, options = check_options(card, options)
    assert options.size is not None and options.batch is not None, "the size and the number of images are fixed"
    examples = example_inputs(card, options, options.batch, options.size)
    pipeline = NamedOutputs(Pipeline(model.cpu().float().eval(), card, options), list(card.outputs), list(examples)[1:])
    about = metadata(card, options)
    specs = {name: TensorSpec(str(x.dtype).removeprefix("torch."), tuple(x.shape)) for name, x in examples.items()}
    recorded = {**about, "inputs": specs, "outputs": list(card.outputs), "torch": torch.__version__}
    atomic_io.remove_stale_temporaries(path.parent)
    with atomic_io.temporary_folder(path) as folder:
        made = folder / path.name
        compile_package(pipeline, tuple(examples.values()), made, {KEY: json.dumps(recorded)})
        compiled, predictor = load_pt2(made), torch_predictor(model, card, options)
        errors = errors_against_torch(
            lambda *given: list(compiled(**dict(zip(examples, given, strict=True))).values()),
            predictor,
            [(options.batch, options.size)],
            options,
        )
        advice = "--no-preprocessing compiles the network without resizing."
        check_errors(errors, TOLERANCE, "compiled network", advice)
        with atomic_io.atomic_path(path) as place:
            made.replace(place)
    return ExportedPackage(path, errors, about)


def compile_package(
    module: nn.Module, examples: tuple[torch.Tensor, ...], path: Path, recorded: Mapping[str, str]
) -> None:
    """Raises ConfigError: this network cannot be compiled."""
    try:
        with export_context(), quiet():
            program = trace(traceable(module), examples)
            config: dict[str, Any] = {"aot_inductor.metadata": dict(recorded)}
            torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=config)
    except (torch._dynamo.exc.TorchDynamoException, RuntimeError) as error:
        raise ConfigError(f"this network cannot be compiled: {first_cause(error)}") from error
