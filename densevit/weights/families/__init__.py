"""Families of published checkpoints; importing this package registers them."""

from densevit.weights.families import (
    depth_anything,
    depth_anything_3,
    dinov2_depth,
    dinov2_segmentation,
    dinov3_depth,
    dpt,
    eomt,
    midas,
    segmenter,
    smp_dpt,
    zoedepth,
)
from densevit.weights.families.huggingface import depth_anything as hugging_face
from densevit.weights.families.huggingface import dpt as hugging_face_dpt

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
