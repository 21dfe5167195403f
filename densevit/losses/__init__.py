"""Objectives. Importing this registers every depth loss."""

from densevit.losses import gradient, pixelwise, silog, ssi
from densevit.losses.loss import DEPTH_LOSSES, DepthLoss

__all__ = ["DEPTH_LOSSES", "DepthLoss", "gradient", "pixelwise", "silog", "ssi"]
