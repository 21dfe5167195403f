"""Objectives. Importing this registers every loss."""

from densevit.losses import auxiliary, gradient, hard_pixels, mask_set, overlap, pixelwise, silog, ssi
from densevit.losses.classification import CLASS_LOSSES, ClassLoss
from densevit.losses.loss import DEPTH_LOSSES, DepthLoss
from densevit.losses.segmentation import LABEL_LOSSES, LabelLoss

__all__ = [
    "CLASS_LOSSES",
    "DEPTH_LOSSES",
    "LABEL_LOSSES",
    "ClassLoss",
    "DepthLoss",
    "LabelLoss",
    "auxiliary",
    "gradient",
    "hard_pixels",
    "mask_set",
    "overlap",
    "pixelwise",
    "silog",
    "ssi",
]
