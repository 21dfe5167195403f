"""Segments of images: things and stuff as predictions, and how queries are merged into them."""

from densevit.ops.segments.predictions import (
    InstancePrediction,
    PanopticPrediction,
    merge_panoptic,
    select_instances,
)

__all__ = ["InstancePrediction", "PanopticPrediction", "merge_panoptic", "select_instances"]
