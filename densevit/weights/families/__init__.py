"""The families of published checkpoints; importing this registers them."""

from densevit.weights.families import (
    depth_anything,
    depth_anything_3,
    dinov2_depth,
    dinov2_segmentation,
    dinov3_depth,
    dpt,
    eomt,
    hugging_face,
    hugging_face_dpt,
    midas,
    segmenter,
    smp_dpt,
    zoedepth,
)

__all__ = [
    "depth_anything",
    "depth_anything_3",
    "dinov2_depth",
    "dinov2_segmentation",
    "dinov3_depth",
    "dpt",
    "eomt",
    "hugging_face",
    "hugging_face_dpt",
    "midas",
    "segmenter",
    "smp_dpt",
    "zoedepth",
]
