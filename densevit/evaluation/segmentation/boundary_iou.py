"""Boundary IoU (Cheng et al. 2021): intersection over union of what lies near the borders of regions. k classes."""

import math

import cv2
import numpy as np
from jaxtyping import Bool, Int

from densevit.evaluation.segmentation.metrics import Ids, IntersectionStats
from densevit.structures import IGNORE

REACH = 0.02  # of the image's diagonal: the paper's choice for images of COCO's, ADE20K's and Cityscapes' size


def boundary_areas(predicted: Ids, labels: Ids, classes: int) -> IntersectionStats:
    """The pixels of each class within reach of the border of their region: both, ground truth, prediction.

    Pixels that are to be ignored are left out of both maps alike, so that they make a border in either.
    """
    known = labels != IGNORE
    # An id of its own for what is ignored, and one for what was predicted as no class.
    gt = np.where(known, labels, classes)
    pred = np.where(known, np.where((predicted >= 0) & (predicted < classes), predicted, classes + 1), classes)
    near_gt, near_pred = boundary_mask(gt), boundary_mask(pred)
    counted = (near_gt & near_pred & (gt == pred), near_gt, near_pred)
    ids = (gt, gt, pred)
    return np.stack([np.bincount(i[c], minlength=classes)[:classes] for i, c in zip(ids, counted, strict=True)])


def boundary_mask(ids: Int[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
    """Pixels within reach of another id or of the image's edge, diagonals counted as one step."""
    distance = max(1, round(REACH * math.hypot(*ids.shape)))
    around = np.ones((2 * distance + 1, 2 * distance + 1), np.uint8)
    values = ids.astype(np.int16)
    # A pixel is inside its region where the least and the largest id around it are its own; beyond the edge is -1.
    least = cv2.erode(values, around, borderType=cv2.BORDER_CONSTANT, borderValue=(-1.0,) * 4)
    largest = cv2.dilate(values, around)
    return np.asarray((least != values) | (largest != values))
