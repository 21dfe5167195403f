"""Segments over an image: the colour of the class, a shade and an outline for each object, and names. h x w pixels."""

from collections.abc import Sequence

import cv2
import numpy as np
from jaxtyping import Float, UInt8

from densevit.model_card import HeadSpec
from densevit.ops.colors import palette_for
from densevit.ops.segments.labelled import measure
from densevit.ops.segments.predictions import PanopticPrediction, SegmentPrediction, masks_of

LEAST_SCORE = 0.5  # of instances that are drawn
LINES = (0, 1, -1, 2, -2, 3, -3)  # that a name may move down so that it covers no other
FONT, INK, PAPER = cv2.FONT_HERSHEY_SIMPLEX, (20, 24, 30), (255, 255, 255)
Rgb = UInt8[np.ndarray, "h w 3"]


def exclusive(prediction: SegmentPrediction) -> PanopticPrediction:
    """Return instances as a map: of those that overlap the one of the higher score, none under LEAST_SCORE."""
    if isinstance(prediction, PanopticPrediction):
        return prediction
    count = int((prediction.scores >= LEAST_SCORE).sum())
    segments = np.zeros(prediction.masks.shape[1:], np.int32)
    for row in reversed(range(count)):
        segments[prediction.masks[row]] = row + 1
    return PanopticPrediction(segments, prediction.classes[:count], prediction.scores[:count], np.ones(count, np.bool_))


def segment_colours(panoptic: PanopticPrediction, spec: HeadSpec) -> Float[np.ndarray, "n 3"]:
    """Return the colour of each segment, 0 to 255: that of its class, objects in a shade of their own."""
    shades = 0.75 + 0.25 * np.cos(2.4 * np.arange(len(panoptic.classes)))  # 2.4 rad: neighbours in number differ
    palette = np.array(palette_for(spec), np.float32)
    colours: Float[np.ndarray, "n 3"] = palette[panoptic.classes] * np.where(panoptic.is_thing, shades, 1.0)[:, None]
    return colours


def median_depths(prediction: SegmentPrediction, depth: Float[np.ndarray, "h w"] | None) -> list[float | None]:
    """Return the median depth of each object in metres; None of stuff, and where it is unknown."""
    things = [True] * len(prediction.classes) if not isinstance(prediction, PanopticPrediction) else prediction.is_thing
    segments = zip(things, masks_of(prediction), strict=True)
    return [measure(mask, depth).depth if depth is not None and thing else None for thing, mask in segments]


def captions(
    prediction: SegmentPrediction, spec: HeadSpec, metres: Sequence[float | None], *, scores: bool = True
) -> list[str]:
    """Return name, score and distance of each segment: "chair 0.93, 2.4 m"."""
    rows = zip(prediction.classes, prediction.scores, metres, strict=True)
    return [
        spec.classes[k] + (f" {score:.2f}" if scores else "") + (f", {x:.1f} m" if x is not None else "")
        for k, score, x in rows
    ]


def draw_segments(image: Rgb, prediction: SegmentPrediction, spec: HeadSpec, opacity: float = 0.55) -> Rgb:
    """Return the image with its segments in colours."""
    as_map = exclusive(prediction)
    colours = np.concatenate([np.zeros((1, 3)), segment_colours(as_map, spec)])
    mixed = np.where(as_map.segments[..., None] > 0, (1 - opacity) * image + opacity * colours[as_map.segments], image)
    kernel = np.ones((3, 3), np.uint8)
    ids = as_map.segments.astype(np.float32)
    things = np.array([False, *as_map.is_thing])[as_map.segments]
    edge = (cv2.dilate(ids, kernel) != cv2.erode(ids, kernel)) & (cv2.dilate(things.astype(np.uint8), kernel) > 0)
    return np.where(edge[..., None], 255, mixed.round()).astype(np.uint8)


def write_names(image: Rgb, prediction: SegmentPrediction, names: Sequence[str]) -> Rgb:
    """Return the image with a name in each segment, where its border is farthest and no other name is."""
    as_map, image = exclusive(prediction), np.array(image)
    written = np.zeros(image.shape[:2], np.bool_)
    scale = float(np.clip(min(image.shape[:2]) / 1000, 0.35, 1.2))
    for row, name in enumerate(names[: len(as_map.classes)]):
        inside = np.pad((as_map.segments == row + 1).astype(np.uint8), 1)
        if not inside.any():
            continue
        y, x = np.unravel_index(cv2.distanceTransform(inside, cv2.DIST_L2, 3).argmax(), inside.shape)
        text = name.encode("ascii", "replace").decode()  # OpenCV's font knows no more
        (width, height), _ = cv2.getTextSize(text, FONT, scale, 1)
        left = int(np.clip(x - 1 - width // 2, 1, max(1, image.shape[1] - width - 2)))
        lowest = max(height + 2, image.shape[0] - 4)
        bases = [int(np.clip(y - 1 + height // 2 + i * (height + 6), height + 2, lowest)) for i in LINES]
        boxes = [(slice(y - height - 2, y + 4), slice(left - 1, left + width + 2)) for y in bases]
        base, box = min(zip(bases, boxes, strict=True), key=lambda pair: int(written[pair[1]].sum()))
        image[box], written[box] = PAPER, True
        cv2.putText(image, text, (left, base), FONT, scale, INK, 1, cv2.LINE_AA)
    return image
