"""Objectives. Importing this registers every loss."""

from densevit.losses import depth, dice_lovasz, gradient, normals, segmentation, set_criterion, ssi, temporal
from densevit.losses.depth import DEPTH_LOSSES, DepthLoss
from densevit.losses.image_level import CLASS_LOSSES, ClassLoss
from densevit.losses.segmentation import LABEL_LOSSES, LabelLoss

__all__ = [
    "CLASS_LOSSES",
    "DEPTH_LOSSES",
    "LABEL_LOSSES",
    "ClassLoss",
    "DepthLoss",
    "LabelLoss",
    "depth",
    "dice_lovasz",
    "gradient",
    "normals",
    "segmentation",
    "set_criterion",
    "ssi",
    "temporal",
]
