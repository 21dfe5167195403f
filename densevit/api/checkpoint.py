"""`load`: a checkpoint, ready to predict."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from densevit.builder.checkpoint import restore
from densevit.config import plugins as plugin_files
from densevit.errors import ConfigError
from densevit.inference.backends.onnx_runtimes import RuntimeName, resolve_device_and_precision
from densevit.inference.onnx.load import load_onnx
from densevit.inference.predictor import Predictor


def load(
    path: str | Path,
    family: str | None = None,
    *,
    device: str = "auto",
    precision: Any = "auto",
    runtime: RuntimeName = "torch",
    family_options: Mapping[str, Any] | None = None,
    plugins: Sequence[str | Path] = (),
    encoder: nn.Module | None = None,
    **options: Any,
) -> Predictor:
    """Loads a trained model, ready to predict: `depth = load("runs/nyu")("photo.jpg")`.

    Args:
        path: a run's folder (its best checkpoint), a step folder, a `model.safetensors`, or a published checkpoint; or
            an ONNX file of `export_onnx`, which OpenVINO or ONNX Runtime computes.
        family: of a published checkpoint whose tensor names fit several.
        device: auto, cpu, cuda or cuda:N.
        precision: auto, fp32, tf32 (GPUs), bf16 or fp16; int8 of an ONNX file that is.
        runtime: torch, or on a CPU openvino or onnxruntime; auto takes the fastest, once as many images of one size
            again would pay for its conversion. ONNX files take what is installed, unless one of the two is named.
        family_options: what a published file does not say, as `{"max_depth": 20}`.
        plugins: Python files that register components of your own. A checkpoint that was trained with some needs
            them named here, or in the environment variable `DENSEVIT_PLUGINS`.
        encoder: the module of a model that was trained with an object as its encoder; a copy of it takes the weights.
        options: of `Predictor`.

    Raises:
        CheckpointError: missing, damaged, of components that are not registered, or of several possible families.
        ConfigError: no such family, option, device, precision, runtime or plugin.
    """
    if str(path).lower().endswith(".onnx"):
        known = {"family": family, "family_options": family_options, "encoder": encoder}
        if given := [name for name, value in known.items() if value]:
            raise ConfigError(f"{given[0]}: of a checkpoint; {path} is an ONNX file, which says what it is.")
        return load_onnx(Path(path), runtime=runtime, device=device, precision=precision, **options)
    # Before the weights are read.
    resolve_device_and_precision(runtime, device, precision, compiled=options.get("compile", False))
    if plugins:
        plugin_files.load([Path(plugin) for plugin in plugins])
    model, card = restore(path, family, encoder, **(family_options or {}))
    return Predictor(model, card, device=device, precision=precision, runtime=runtime, **options)
