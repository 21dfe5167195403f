"""Segments over an image: the colour of the class, a shade and an outline for each object, and names. h x w pixels."""

import cv2
import numpy as np
from jaxtyping import UInt8

from densevit.model_card import HeadSpec
from densevit.ops.palette import palette_for
from densevit.ops.segments.predictions import PanopticPrediction, SegmentPrediction

LEAST_SCORE = 0.5  # of instances that are drawn
FONT, INK, PAPER = cv2.FONT_HERSHEY_SIMPLEX, (20, 24, 30), (255, 255, 255)
Rgb = UInt8[np.ndarray, "h w 3"]


def exclusive(found: SegmentPrediction) -> PanopticPrediction:
    """Return instances as a map: of those that overlap the one of the higher score, none under LEAST_SCORE."""
    if isinstance(found, PanopticPrediction):
        return found
    count = int((found.scores >= LEAST_SCORE).sum())
    segments = np.zeros(found.masks.shape[1:], np.int32)
    for row in reversed(range(count)):
        segments[found.masks[row]] = row + 1
    return PanopticPrediction(segments, found.classes[:count], found.scores[:count], np.ones(count, np.bool_))


def draw_segments(image: Rgb, prediction: SegmentPrediction, spec: HeadSpec, opacity: float = 0.55) -> Rgb:
    """Return the image with its segments in colours."""
    found = exclusive(prediction)
    palette = np.array(palette_for(spec), np.float32)
    colours = np.zeros((len(found.classes) + 1, 3), np.float32)
    shades = 0.75 + 0.25 * np.cos(2.4 * np.arange(len(found.classes)))  # 2.4 rad: neighbours in number differ
    colours[1:] = palette[found.classes] * np.where(found.is_thing, shades, 1.0)[:, None]
    mixed = np.where(found.segments[..., None] > 0, (1 - opacity) * image + opacity * colours[found.segments], image)
    kernel = np.ones((3, 3), np.uint8)
    ids = found.segments.astype(np.float32)
    things = np.array([False, *found.is_thing])[found.segments]
    edge = (cv2.dilate(ids, kernel) != cv2.erode(ids, kernel)) & (cv2.dilate(things.astype(np.uint8), kernel) > 0)
    return np.where(edge[..., None], 255, mixed.round()).astype(np.uint8)


def write_names(image: Rgb, prediction: SegmentPrediction, names: list[str]) -> Rgb:
    """Return the image with a name in each segment, where its border is farthest."""
    found, image = exclusive(prediction), np.ascontiguousarray(image)
    scale = float(np.clip(min(image.shape[:2]) / 1000, 0.35, 1.2))
    for row, name in enumerate(names[: len(found.classes)]):
        inside = np.pad((found.segments == row + 1).astype(np.uint8), 1)
        if not inside.any():
            continue
        y, x = np.unravel_index(cv2.distanceTransform(inside, cv2.DIST_L2, 3).argmax(), inside.shape)
        text = name.encode("ascii", "replace").decode()  # OpenCV's font knows no more
        (width, height), _ = cv2.getTextSize(text, FONT, scale, 1)
        left = int(np.clip(x - 1 - width // 2, 0, max(0, image.shape[1] - width)))
        base = int(np.clip(y - 1 + height // 2, height + 2, image.shape[0] - 3))
        cv2.rectangle(image, (left - 1, base - height - 2), (left + width + 1, base + 3), PAPER, cv2.FILLED)
        cv2.putText(image, text, (left, base), FONT, scale, INK, 1, cv2.LINE_AA)
    return image
