"""Scores of segments: panoptic quality, and COCO's average precision of masks."""
