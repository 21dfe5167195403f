"""Segments of images: things and stuff as predictions, and how queries are merged into them."""

from densevit.ops.segments.drawing import draw_segments, write_names
from densevit.ops.segments.predictions import (
    THRESHOLD,
    InstancePrediction,
    PanopticPrediction,
    SegmentPrediction,
    merge_panoptic,
    segments_of,
    select_instances,
)

__all__ = [
    "THRESHOLD",
    "InstancePrediction",
    "PanopticPrediction",
    "SegmentPrediction",
    "draw_segments",
    "merge_panoptic",
    "segments_of",
    "select_instances",
    "write_names",
]
