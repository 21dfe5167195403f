"""Types of arguments that a shell and Python have in common; importing them costs nothing."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

Count = Annotated[int, 1]
"""A number of things; the annotation is the least."""
Precision = Literal["auto", "fp32", "tf32", "bf16", "fp16", "int8"]
Runtime = Literal["torch", "openvino", "onnxruntime", "auto"]
ImageSize = tuple[int, int]
"""Height and width in pixels."""
EvaluationTask = Literal["depth", "normals", "segmentation", "classification", "ordinal", "video"]


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Return parameter -> default of a function."""
    return {p.name: p.default for p in inspect.signature(function).parameters.values() if p.default is not p.empty}
