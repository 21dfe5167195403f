"""What `import densevit` gives."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from densevit.builder.checkpoint import restore
from densevit.inference.backends.onnx_runtimes import RuntimeName, resolve_device_and_precision
from densevit.inference.predictor import Predictor


def load(
    path: str | Path,
    family: str | None = None,
    *,
    device: str = "auto",
    precision: Any = "auto",
    runtime: RuntimeName = "torch",
    family_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Predictor:
    """A trained model, ready to predict: `depth = load("runs/nyu")("photo.jpg")`.

    Args:
        path: a run's folder (its best checkpoint), a step folder, a `model.safetensors`, or a published checkpoint.
        family: whose published checkpoint it is, where its keys cannot tell.
        device: auto, cpu, cuda or cuda:N.
        precision: auto, fp32, bf16 or fp16.
        runtime: torch, or on a CPU openvino or onnxruntime.
        family_options: what a published file cannot say, as `{"max_depth": 20}`.
        options: of `Predictor`.

    Raises:
        CheckpointError: missing, damaged, of unknown parts, or of several possible families.
        ConfigError: no such family, or no such option of it; no such device, number format or runtime here.
    """
    resolve_device_and_precision(
        runtime, device, precision, compiled=options.get("compile", False)
    )  # before the weights are read
    model, card = restore(path, family, **(family_options or {}))
    return Predictor(model, card, device=device, precision=precision, runtime=runtime, **options)
