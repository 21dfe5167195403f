"""Exports a checkpoint to an AOTInductor package (.pt2), and runs it: machine code and weights, for libtorch in C++.

Preprocessing and postprocessing are part of it, as in an ONNX file (inference/onnx/export.py). Loading one runs its
machine code: open only files that you trust. What the file is made for is read from it before any of its code runs, and
checked in each call: the code itself takes images of another size without a word.
"""

import json
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from densevit.errors import CheckpointError, ConfigError, DataError, first_line
from densevit.inference.onnx.constant_folding import trace
from densevit.inference.onnx.export import ExportedPipeline, check_options, example_inputs, on_cpu
from densevit.inference.onnx.graph import NamedOutputs, export_context, first_cause, quiet, traceable
from densevit.inference.onnx.metadata import ExportedModel, OnnxExportOptions, check_path, metadata
from densevit.inference.onnx.verify import TOLERANCE, check_errors, errors_against_torch, torch_predictor
from densevit.model_card import ModelCard
from densevit.utils import atomic_io
from densevit.utils.json_files import MALFORMED, checked, parse_json

COMPILERS = ("g++", "clang++", "c++")


def check_output(path: Path, *, overwrite: bool = False) -> None:
    """Raise before a checkpoint is read where the export would fail. Raises ConfigError: no C++ compiler. Raises
    ConfigError, StorageError: see `check_path`."""
    if not any(map(shutil.which, COMPILERS)):
        raise ConfigError(f"a .pt2 file is compiled C++: no compiler is installed ({', '.join(COMPILERS)}).")
    check_path(path, ".pt2", overwrite=overwrite)


def export_pt2(model: nn.Module, card: ModelCard, path: Path, options: OnnxExportOptions) -> ExportedModel:
    """Compile the file for this machine's processor, run it, and keep it only if its outputs are those of torch.
    Raises ConfigError, DataError: no such head, a size that does not fit, or a network that cannot be compiled; nothing
    is written. Raises StorageError if the disk is full."""
    card, options = check_options(card, options)
    model = on_cpu(model)
    assert options.size is not None and options.batch is not None, "the size and the number of images are fixed"
    examples = example_inputs(card, options, options.batch, options.size)
    pipeline = NamedOutputs(ExportedPipeline(model, card, options), list(card.outputs), list(examples)[1:])
    about = metadata(card, options)
    specs = {name: TensorSpec(str(x.dtype).removeprefix("torch."), tuple(x.shape)) for name, x in examples.items()}
    recorded = {**about, "inputs": specs, "outputs": list(card.outputs), "torch": torch.__version__}
    atomic_io.remove_stale_temporaries(path.parent)
    with atomic_io.temporary_folder(path) as folder:
        made = folder / path.name
        compile_package(pipeline, tuple(examples.values()), made, {KEY: json.dumps(recorded)})
        compiled, predictor = load_pt2(made), torch_predictor(model, card, options)
        errors = errors_against_torch(
            lambda *arrays: list(compiled(**dict(zip(examples, arrays, strict=True))).values()),
            predictor,
            [(options.batch, options.size)],
            options,
        )
        advice = "--no-preprocessing compiles the network without resizing."
        check_errors(errors, TOLERANCE, "compiled network", advice)
        with atomic_io.atomic_path(path) as target:
            made.replace(target)
    return ExportedModel((path,), errors, about)


def compile_package(
    module: nn.Module, examples: tuple[torch.Tensor, ...], path: Path, recorded: Mapping[str, str]
) -> None:
    """Raise ConfigError: this network cannot be compiled."""
    try:
        with export_context(), quiet():
            program = trace(traceable(module), examples)
            config: dict[str, Any] = {"aot_inductor.metadata": dict(recorded)}
            torch._inductor.aoti_compile_and_package(program, package_path=str(path), inductor_configs=config)
    except (torch._dynamo.exc.TorchDynamoException, RuntimeError) as error:
        raise ConfigError(f"this network cannot be compiled: {first_cause(error)}") from error


KEY = "densevit"  # under which the metadata of a package hold ours, as JSON

PRESENT: Mapping[str, Callable[[], bool]] = {
    "AVX2": torch.cpu._is_avx2_supported,
    "AVX512": torch.cpu._is_avx512_supported,
    "AVX512_VNNI": torch.cpu._is_vnni_supported,
    "AVX512_BF16": torch.cpu._is_avx512_bf16_supported,
    "AMX_TILE": torch.cpu._is_amx_tile_supported,
}
"""Whether the processor has the instructions that a package may be compiled for, by torch's names."""


class TensorSpec(NamedTuple):
    """The type and shape of an input."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {' x '.join(map(str, self.shape))}"


@dataclass(frozen=True)
class Recorded:
    """What running needs of our metadata."""

    inputs: Mapping[str, TensorSpec]
    outputs: list[str]
    torch: str


class Pt2Model:
    """A compiled model: images in, the outputs of all heads out, on the CPU.

    Attributes:
        inputs: by name, `image` first.
        metadata: input, outputs, licence, source and card in words and JSON, as in an ONNX file.
    """

    def __init__(
        self, run: Callable[..., tuple[Tensor, ...]], inputs: Mapping[str, TensorSpec], metadata: Mapping[str, str],
        outputs: list[str],
    ) -> None:  # fmt: skip
        self.run, self.inputs, self.metadata, self.outputs = run, inputs, metadata, outputs

    def __call__(self, image: np.ndarray, **more: np.ndarray) -> dict[str, np.ndarray]:
        """Return the outputs by head. Raises DataError: another type or shape.

        Args:
            image: of the type and shape in `inputs`: uint8 b h w 3 (RGB), or float32 b 3 h w in [0, 1].
            more: the other `inputs`, such as `focal`, b focal lengths in pixels.
        """
        arrays = {"image": image, **more}
        if arrays.keys() != self.inputs.keys():
            raise DataError(f"this package takes {', '.join(self.inputs)}; given are {', '.join(arrays)}.")
        for name, spec in self.inputs.items():
            actual = TensorSpec(str(arrays[name].dtype), arrays[name].shape)
            if actual != spec:
                raise DataError(f"{name} is {actual}; this package is compiled for {spec}.")
        tensors = (torch.from_numpy(np.ascontiguousarray(arrays[name])) for name in self.inputs)
        with torch.inference_mode():
            return {name: y.numpy() for name, y in zip(self.outputs, self.run(*tensors), strict=True)}


def load_pt2(path: str | Path) -> Pt2Model:
    """Open a package of `densevit export`; needs no compiler.

    >>> depth = densevit.load_pt2("mine.pt2")(image[None])["depth"]  # doctest: +SKIP

    Raises CheckpointError: missing, or not written by densevit. Raises ConfigError: compiled for another processor, or
    torch cannot load it.
    """
    path = Path(path)
    entries = read_metadata(path)
    about = parse_json(entries[KEY], path, CheckpointError)
    recorded = checked(Recorded, about, path, CheckpointError)
    isa = entries.get("AOTI_CPU_ISA", "")
    if missing := [name for name in isa.split() if name in PRESENT and not PRESENT[name]()]:
        raise ConfigError(
            f"{path}: compiled for a processor with {isa}; this one lacks {', '.join(missing)}. "
            "Export it on a processor like this one."
        )
    about = {name: str(text) for name, text in about.items() if name not in ("inputs", "outputs")}
    try:
        run = torch._inductor.aoti_load_package(str(path))
    except Exception as error:  # of the dynamic linker, of the archive
        reason = first_line(error)
        raise ConfigError(
            f"{path}: torch {torch.__version__} does not load it ({reason}); it was written by torch {recorded.torch}."
        ) from error
    return Pt2Model(run, recorded.inputs, about, recorded.outputs)


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a package; none of its code runs. Raises CheckpointError: missing, damaged, or not written
    by densevit."""
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file.")
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".wrapper_metadata.json")]
            entries: dict[str, str] = json.loads(archive.read(names[0])) if names else {}
            if KEY not in entries:
                raise CheckpointError(f"{path}: no package of `densevit export`.")
            return {name: str(text) for name, text in entries.items()}
    except CheckpointError:
        raise
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, *MALFORMED) as error:
        raise CheckpointError(f"{path}: cannot be read as a .pt2 package ({error!s:.300}).") from None
