"""Segments of images: things and stuff as predictions, and how queries are merged into them."""

from densevit.ops.segments.drawing import captions, draw_segments, exclusive, median_depths, write_names
from densevit.ops.segments.predictions import (
    THRESHOLD,
    InstancePrediction,
    PanopticPrediction,
    SegmentPrediction,
    masks_of,
    merge_panoptic,
    segments_of,
    select_instances,
)

__all__ = [
    "THRESHOLD",
    "InstancePrediction",
    "PanopticPrediction",
    "SegmentPrediction",
    "captions",
    "draw_segments",
    "exclusive",
    "masks_of",
    "median_depths",
    "merge_panoptic",
    "segments_of",
    "select_instances",
    "write_names",
]
