"""Types of arguments that a shell and Python have in common; importing them costs nothing."""

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
