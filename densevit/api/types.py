"""Types of arguments that a shell and Python have in common; importing them costs nothing."""

from collections.abc import Sequence
from typing import Annotated, Literal

Count = Annotated[int, 1]
"""A number of things; the annotation is the least."""
Precision = Literal["auto", "fp32", "tf32", "bf16", "fp16", "int8"]
Runtime = Literal["torch", "openvino", "onnxruntime", "cuda_graphs", "auto"]
ImageSize = tuple[int, int]
"""Height and width in pixels."""
EvaluationTask = Literal[
    "depth", "normals", "segmentation", "panoptic", "instances", "classification", "ordinal", "video"
]


def as_names(names: str | Sequence[str]) -> Sequence[str]:
    """Return several names, or one that is given by itself, as a sequence."""
    return [names] if isinstance(names, str) else names
