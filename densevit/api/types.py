"""Types of arguments that a shell and Python have in common; importing them costs nothing."""

from typing import Annotated, Literal, TypeVar

Count = Annotated[int, 1]
"""A number of things; the annotation is the least."""
Precision = Literal["auto", "fp32", "tf32", "bf16", "fp16", "int8"]
Runtime = Literal["torch", "openvino", "onnxruntime", "cuda_graphs", "auto"]
ImageSize = tuple[int, int]
"""Height and width in pixels."""
EvaluationTask = Literal[
    "depth", "normals", "segmentation", "panoptic", "instances", "classification", "ordinal", "video"
]


T = TypeVar("T")


def as_names(names: str | T) -> list[str] | T:
    """Return one name that is given by itself as a list, anything else as it is."""
    return [names] if isinstance(names, str) else names
