"""Exports a checkpoint to an AOTInductor package (.pt2): machine code and weights, which C++ programs run by libtorch.

Preprocessing and postprocessing are part of it, as of an ONNX file (inference/onnx/export.py).
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from densevit.errors import ConfigError, StorageError
from densevit.inference.onnx.constant_folding import trace
from densevit.inference.onnx.export import Pipeline, check_options, focal_is_input
from densevit.inference.onnx.graph import NamedOutputs, export_context, first_cause, quiet, traceable
from densevit.inference.onnx.metadata import OnnxExportOptions, metadata
from densevit.inference.onnx.verify import TOLERANCE, error_of_ids, error_of_values, predict_each, test_images
from densevit.inference.predictor import Predictor
from densevit.inference.pt2.load import KEY, Pt2Model, TensorSpec, load_pt2
from densevit.model_card import ModelCard
from densevit.utils import atomic_io

COMPILERS = ("g++", "clang++", "c++")


@dataclass(frozen=True)
class ExportedPackage:
    """
    Attributes:
        errors: by head, the largest difference from torch as a share of the largest value.
        metadata: of the file, in words.
    """

    path: Path
    errors: Mapping[str, float]
    metadata: Mapping[str, str]


def check_output(path: Path, *, overwrite: bool = False) -> None:
    """Raises before a checkpoint is read where the export would fail.

    Raises:
        ConfigError: no C++ compiler, a name that does not end in .pt2, or a file that exists.
        StorageError: no such folder.
    """
    if not any(map(shutil.which, COMPILERS)):
        raise ConfigError(f"export-pt2 compiles C++: no compiler is installed ({', '.join(COMPILERS)}).")
    if path.suffix.lower() != ".pt2":
        raise ConfigError(f"--output: {path} does not end in .pt2.")
    if not path.parent.is_dir():
        raise StorageError(f"{path}: its folder does not exist.")
    if path.exists() and not overwrite:
        raise ConfigError(f"--output: {path} exists already; --overwrite replaces it.")


def export_pt2(model: nn.Module, card: ModelCard, path: Path, options: OnnxExportOptions) -> ExportedPackage:
    """Compiles the file for this machine's processor, runs it, and keeps it only if its outputs are those of torch.

    Raises:
        ConfigError, DataError: no such head, a size that does not fit, or a network that cannot be compiled; nothing is
            written.
        StorageError: the disk is full.
    """
    card, options = check_options(card, options)
    assert options.size is not None and options.batch is not None, "the size and the number of images are fixed"
    count, (h, w), box = options.batch, options.size, options.box
    image = torch.zeros(count, 3, h, w) if options.floats else torch.zeros(count, h, w, 3, dtype=torch.uint8)
    examples = {"image": image}
    if focal_is_input(card, options):
        examples["focal"] = torch.full((count,), float(w))
    pipeline = NamedOutputs(Pipeline(model.cpu().float().eval(), card, options), list(card.outputs), list(examples)[1:])
    about = metadata(card, options)
    specs = {name: TensorSpec(str(x.dtype).removeprefix("torch."), tuple(x.shape)) for name, x in examples.items()}
    recorded = {**about, "inputs": specs, "outputs": list(card.outputs), "torch": torch.__version__}
    atomic_io.remove_stale_temporaries(path.parent)
    with atomic_io.temporary_folder(path) as folder:
        made = folder / path.name
        compile_package(pipeline, tuple(examples.values()), made, {KEY: json.dumps(recorded)})
        predictor = Predictor(
            model,
            card,
            device="cpu",
            precision="fp32",
            flip=options.flip,
            focal=options.focal,
            window=None if box is None else lambda h, w: box,
        )
        errors = verify(load_pt2(made), predictor, options)
        worst = max(errors, key=lambda name: errors[name])
        if not errors[worst] <= TOLERANCE:
            raise ConfigError(
                f"{worst}: the compiled network differs from torch by {errors[worst]:.1e} of the largest value, over "
                f"{TOLERANCE:g}, so it is not kept. --no-preprocessing compiles the network without resizing."
            )
        with atomic_io.atomic_path(path) as place:
            made.replace(place)
    return ExportedPackage(path, errors, about)


def compile_package(
    module: nn.Module, examples: tuple[torch.Tensor, ...], path: Path, recorded: Mapping[str, str]
) -> None:
    """
    Raises:
        ConfigError: this network cannot be compiled.
    """
    try:
        with export_context(), quiet():
            program = trace(traceable(module), examples)
            config: dict[str, Any] = {"aot_inductor.metadata": dict(recorded)}
            torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=config)
    except (torch._dynamo.exc.TorchDynamoException, RuntimeError) as error:
        raise ConfigError(f"this network cannot be compiled: {first_cause(error)}") from error


def verify(compiled: Pt2Model, predictor: Predictor, options: OnnxExportOptions) -> dict[str, float]:
    """The largest difference of each head from torch, as a share of the largest value."""
    assert options.size is not None and options.batch is not None
    images, focals = test_images(options.size, options.batch), []
    if "focal" in compiled.inputs:
        focals = [np.linspace(0.6, 1.2, options.batch, dtype=np.float32) * options.size[1]]
    expected = predict_each(predictor, images, *focals)
    given = images.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255) if options.floats else images
    ours, errors = compiled(given, *focals), {}
    for name, spec in predictor.card.outputs.items():
        error = error_of_ids if options.labels and spec.kind == "labels" else error_of_values
        errors[name] = error(ours[name], expected[name][..., 0, 0] if spec.kind == "class" else expected[name])
    return errors
