"""Objectives. Importing this registers every loss."""

from densevit.losses import gradient, pixelwise, silog, ssi
from densevit.losses.classification import CLASS_LOSSES, ClassLoss
from densevit.losses.loss import DEPTH_LOSSES, DepthLoss

__all__ = ["CLASS_LOSSES", "DEPTH_LOSSES", "ClassLoss", "DepthLoss", "gradient", "pixelwise", "silog", "ssi"]
