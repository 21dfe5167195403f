"""Objectives. Importing this registers every loss."""

from densevit.losses import (
    dice_lovasz,
    gradient,
    laplace,
    normals,
    ohem_focal,
    pixelwise,
    segmentation,
    set_criterion,
    silog,
    ssi,
    temporal,
)
from densevit.losses.base import DEPTH_LOSSES, DepthLoss
from densevit.losses.image_level import CLASS_LOSSES, ClassLoss
from densevit.losses.segmentation import LABEL_LOSSES, LabelLoss

__all__ = [
    "CLASS_LOSSES",
    "DEPTH_LOSSES",
    "LABEL_LOSSES",
    "ClassLoss",
    "DepthLoss",
    "LabelLoss",
    "dice_lovasz",
    "gradient",
    "laplace",
    "normals",
    "ohem_focal",
    "pixelwise",
    "segmentation",
    "set_criterion",
    "silog",
    "ssi",
    "temporal",
]
