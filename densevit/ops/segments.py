"""Segments of an image: as labels, as predictions, how queries are merged into them (Mask2Former, Cheng et al. 2022),
and drawn over the image.

q queries, k classes (kinds: with `no object` as the last), n segments, h x w pixels. Thresholds are those of EoMT.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int32, Int64, Integer, UInt8
from torch import Tensor

from densevit.model_card import HeadSpec
from densevit.ops.colors import draw_text, palette_for, text_width
from densevit.ops.geometry import Matrix
from densevit.structures import IGNORE, Box

THRESHOLD = 0.8  # of the score of a query
OVERLAP = 0.8  # of the area of a query, the share that no other query takes
TOP_INSTANCES = 100  # pairs of a query and a class, of the highest scores


@dataclass(frozen=True, eq=False)
class PanopticPrediction:
    """Every pixel in one segment at most: objects of things, and one segment for each class of stuff."""

    segments: Int32[np.ndarray, "h w"]  # 0 is void; k is row k - 1 of the others
    classes: Int64[np.ndarray, " n"]
    scores: Float[np.ndarray, " n"]
    is_thing: Bool[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class InstancePrediction:
    """Objects, which may overlap; those of higher scores come first."""

    masks: Bool[np.ndarray, "n h w"]
    classes: Int64[np.ndarray, " n"]
    scores: Float[np.ndarray, " n"]


SegmentPrediction = PanopticPrediction | InstancePrediction


def masks_of(prediction: SegmentPrediction) -> Iterable[Bool[np.ndarray, "h w"]]:
    """Return the masks of the segments in their order, one at a time."""
    if isinstance(prediction, InstancePrediction):
        return prediction.masks
    return (prediction.segments == row + 1 for row in range(len(prediction.classes)))


def segments_of(
    head: str, outputs: Mapping[str, Float[np.ndarray | Tensor, "..."]], spec: HeadSpec
) -> SegmentPrediction:
    """Return the segments of one image from what a head of kind `panoptic` or `instances` predicts for it.

    Args:
        outputs: of the model; `head` has the masks, q h w or h w, and `head/classes` the classes, q kinds in a row.
    """
    masks, classes = (torch.as_tensor(outputs[name]) for name in (head, f"{head}/classes"))
    masks, classes = masks.reshape(-1, *masks.shape[-2:]), classes.reshape(-1, len(spec.classes) + 1)
    if spec.kind == "instances":
        return select_instances(masks, classes)
    threshold = THRESHOLD if spec.threshold is None else spec.threshold
    return merge_panoptic(masks, classes, spec.things, threshold=threshold)


def merge_panoptic(
    masks: Float[Tensor, "q h w"],
    classes: Float[Tensor, "q kinds"],
    things: Collection[int],
    *,
    threshold: float = THRESHOLD,
    overlap: float = OVERLAP,
) -> PanopticPrediction:
    """Give each pixel to the query of the highest score x mask, among those that are sure of a class.

    A query whose mask others mostly cover is dropped; its pixels are void, as those outside of every mask.

    Args:
        masks, classes: logits.
        things: the classes of which every query is an object; the queries of any other class are one segment.
        threshold: score above which a query counts.
        overlap: least share of a query's mask that it must get.
    """
    scores, labels = classes.float().softmax(-1).max(-1)
    keep = (labels != classes.shape[-1] - 1) & (scores > threshold)
    scores, of_class, shares = scores[keep], labels[keep].tolist(), masks[keep].float().sigmoid()
    if not of_class:
        return _panoptic(torch.zeros(masks.shape[1:]), [], [], things)
    owner = (scores[:, None, None] * shares).argmax(0)
    inside = shares.gather(0, owner[None])[0] >= 0.5
    count = len(of_class)
    original = (shares >= 0.5).flatten(1).sum(1).tolist()
    seen = shares[0].isfinite()  # not outside of a window
    new, final = (torch.bincount(x, minlength=count).tolist() for x in (owner[seen], owner[inside]))
    numbers: list[int] = []  # the segment of each query
    segment_classes: list[int] = []  # the class of each segment
    best: list[float] = []  # its score
    for label, score, *areas in zip(of_class, scores.tolist(), original, new, final, strict=True):
        if not all(areas) or areas[1] / areas[0] < overlap:
            numbers.append(0)
        elif label in segment_classes and label not in things:
            numbers.append(segment_classes.index(label) + 1)
            best[segment_classes.index(label)] = max(score, best[segment_classes.index(label)])
        else:
            segment_classes.append(label)
            best.append(score)
            numbers.append(len(segment_classes))
    return _panoptic(torch.tensor(numbers, device=owner.device)[owner] * inside, segment_classes, best, things)


def _panoptic(segments: Tensor, classes: list[int], scores: list[float], things: Collection[int]) -> PanopticPrediction:
    return PanopticPrediction(
        segments.cpu().numpy().astype(np.int32), np.array(classes, np.int64), np.array(scores, np.float32),
        np.array([label in things for label in classes], np.bool_),
    )  # fmt: skip


def select_instances(
    masks: Float[Tensor, "q h w"], classes: Float[Tensor, "q kinds"], *, top: int = TOP_INSTANCES
) -> InstancePrediction:
    """Return the instances of the likeliest pairs of a query and a class; score: class x mean of the mask inside it.

    Args:
        masks, classes: logits.
        top: number of the pairs; those of an empty mask are left out.
    """
    probabilities = classes.float().softmax(-1)[:, :-1]
    scores, pairs = probabilities.flatten().topk(min(top, probabilities.numel()))
    queries, labels = pairs // probabilities.shape[1], pairs % probabilities.shape[1]
    quality, filled = torch.zeros_like(classes[:, 0], dtype=torch.float32), masks > 0
    for query in sorted(set(queries.tolist())):  # one by one: probabilities of all masks at once are memory for nothing
        quality[query] = masks[query].float().sigmoid()[filled[query]].sum() / (filled[query].sum() + 1e-6)
    scores = scores * quality[queries]
    order = scores.argsort(descending=True, stable=True)
    order = order[scores[order] > 0]
    return InstancePrediction(
        filled[queries[order]].cpu().numpy(), labels[order].cpu().numpy(), scores[order].cpu().numpy()
    )


class Segments(NamedTuple):
    """What `Sample.segments`, `segment_classes` and `segment_crowd` hold."""

    ids: Int32[np.ndarray, "h w"]  # k is row k - 1 of the others; 0 is void, -1 of an image without segments
    classes: Int64[np.ndarray, " n"]
    crowd: Bool[np.ndarray, " n"]

    def labels(self, empty: int = IGNORE) -> Int64[np.ndarray, "h w"]:
        """Return the class of each pixel, `empty` in void and IGNORE in crowds."""
        return np.asarray(np.array([empty, *np.where(self.crowd, IGNORE, self.classes)])[self.ids])

    def as_prediction(self, things: Collection[int]) -> PanopticPrediction:
        """Return the segments as a prediction that is sure of them, to be drawn."""
        ones = np.ones(len(self.classes), np.float32)
        return PanopticPrediction(self.ids, self.classes, ones, np.isin(self.classes, list(things)))

    def mapped(self, classes: Int64[np.ndarray, " n"], things: Collection[int]) -> "Segments":
        """Return the segments with other classes; those of class IGNORE become void, those of one class of stuff one
        segment. `things`: the classes of single objects; empty: all."""
        kept: dict[tuple[int, int | None], int] = {}  # class, and which object -> its number
        numbers = np.zeros(len(classes) + 2, np.int32)
        numbers[-1] = -1  # stays
        for row, (label, crowd) in enumerate(zip(classes.tolist(), self.crowd.tolist(), strict=True)):
            if label != IGNORE:
                one = row if crowd or not things or label in things else None
                numbers[row + 1] = kept.setdefault((label, one), len(kept) + 1)
        rows = np.unique(numbers, return_index=True)[1][2:] - 1  # the first of each
        return Segments(numbers[self.ids], classes[rows], self.crowd[rows])

    def one_of_each_stuff(self, things: Collection[int]) -> "Segments":
        """Return the segments with those of one class of stuff as one. `things`: the classes of single objects; empty:
        all."""
        stuff = self.classes[~(self.crowd | np.isin(self.classes, list(things)))]
        return self.mapped(self.classes, things) if len(set(stuff.tolist())) < len(stuff) else self


class Objects(NamedTuple):
    """Objects of an image, which may overlap; n h w pixels."""

    masks: Bool[np.ndarray, "n h w"]
    classes: Int64[np.ndarray, " n"]
    crowd: Bool[np.ndarray, " n"]
    areas: Float64[np.ndarray, " n"]  # pixels, as the data set says

    def mapped(self, classes: Int64[np.ndarray, " n"]) -> "Objects":
        """Return the objects with other classes, without those of class IGNORE."""
        keep = classes != IGNORE
        return Objects(self.masks[keep], classes[keep], self.crowd[keep], self.areas[keep])

    def inside(self, box: Box) -> "Objects":
        """Return the objects that have a pixel in a window, with the mask and the share of the area that lie there."""
        (y0, y1, x0, x1), masks = box, np.zeros_like(self.masks)
        masks[:, y0:y1, x0:x1] = self.masks[:, y0:y1, x0:x1]
        share = masks.sum((1, 2)) / np.maximum(self.masks.sum((1, 2)), 1)
        keep = share > 0
        return Objects(masks[keep], self.classes[keep], self.crowd[keep], (self.areas * share)[keep])


def objects_of(segments: Segments, things: Collection[int]) -> Objects:
    """Return the segments of things that have a pixel."""
    areas = np.bincount(segments.ids.ravel(), minlength=len(segments.classes) + 1)[1:].astype(np.float64)
    rows = np.flatnonzero(np.isin(segments.classes, list(things)) & (areas > 0))
    masks = segments.ids == rows[:, None, None] + 1
    return Objects(masks, segments.classes[rows], segments.crowd[rows], areas[rows])


def segments_of_ids(
    ids: Integer[np.ndarray, "h w"], stored: Sequence[int], classes: Sequence[int], crowd: Sequence[bool]
) -> tuple[Segments, list[int]]:
    """Return the segments of a map of stored ids, and the ids in it that are neither 0 nor in `stored`."""
    occurring, indices = _numbered(ids)
    rows = {id_: row for row, id_ in enumerate(stored, 1)}
    numbers = np.array([rows.get(id_, 0) for id_ in occurring.tolist()], np.int32)
    unknown = [id_ for id_, number in zip(occurring.tolist(), numbers, strict=True) if id_ and not number]
    return Segments(numbers[indices], np.array(classes, np.int64), np.array(crowd, np.bool_)), unknown


def segments_of_labels(
    labels: Int64[np.ndarray, "h w"], objects: Integer[np.ndarray, "h w"], things: Sequence[int]
) -> Segments:
    """Return a segment for each class of stuff and each object of `things`; void where there is no class.

    Args:
        objects: their numbers; pixels of things with number 0 are a crowd.
    """
    is_thing = np.isin(np.arange(int(labels.max()) + 1), things)
    span = int(objects.max()) + 1
    pairs = labels * span + np.where(is_thing[labels], objects, 0) + 1
    occurring, indices = _numbered(np.where(labels == IGNORE, 0, pairs))
    void = int(occurring[0] == 0)
    classes, numbers = np.divmod(occurring[void:] - 1, span)
    return Segments((indices + 1 - void).astype(np.int32), classes, is_thing[classes] & (numbers == 0))


def _numbered(codes: Integer[np.ndarray, "h w"]) -> tuple[Int64[np.ndarray, " n"], Integer[np.ndarray, "h w"]]:
    """Return the codes that occur, in order, and the place of each pixel's among them."""
    last = int(codes.max())
    if last >= 1 << 26:
        occurring, indices = np.unique(codes, return_inverse=True)
        return occurring, indices.reshape(codes.shape)
    occurs = np.zeros(last + 1, np.bool_)  # a table instead of sorting: 20 times faster for 1024 x 2048
    occurs[codes] = True
    occurring = np.flatnonzero(occurs)
    table = np.zeros(last + 1, np.int32)
    table[occurring] = np.arange(len(occurring))
    return occurring, table[codes]


class ObjectDepth(NamedTuple):
    """Of one object in metres; None where it is unknown."""

    depth: float | None = None  # median along the optical axis
    low: float | None = None  # ends of its interval, as calibrated
    high: float | None = None
    width: float | None = None  # of its box, at that depth
    height: float | None = None


def measure(
    mask: Bool[np.ndarray, "h w"],
    depth: Float[np.ndarray, "h w"],
    widths: Float[np.ndarray, "h w"] | None = None,
    matrix: Matrix | None = None,
) -> ObjectDepth:
    """Measure an object.

    Args:
        depth: in metres, not finite or 0 where unknown.
        widths: half of each pixel's interval, of the logarithm of the depth.
        matrix: intrinsics of the camera; an object without them has no size.
    """
    valid = mask & np.isfinite(depth) & (depth > 0)
    if not valid.any():
        return ObjectDepth()
    metres = float(np.median(depth[valid]))
    spread = None if widths is None else float(np.median(widths[valid]))
    low, high = (None, None) if spread is None else (metres * np.exp(-spread), metres * np.exp(spread))
    if matrix is None:
        return ObjectDepth(metres, low, high)
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    height, width = (x[-1] - x[0] + 1 for x in (rows, columns))
    return ObjectDepth(metres, low, high, float(width * metres / matrix[0, 0]), float(height * metres / matrix[1, 1]))


LEAST_SCORE = 0.5  # of instances that are drawn
LINES = (0, 1, -1, 2, -2, 3, -3)  # that a name may move down so that it covers no other
INK, PAPER = (20, 24, 30), (255, 255, 255)
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
    return np.asarray(palette[panoptic.classes] * np.where(panoptic.is_thing, shades, 1.0)[:, None])


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
    size = int(np.clip(min(image.shape[:2]) / 32, 11, 38))
    for row, name in enumerate(names[: len(as_map.classes)]):
        inside = np.pad((as_map.segments == row + 1).astype(np.uint8), 1)
        if not inside.any():
            continue
        y, x = np.unravel_index(cv2.distanceTransform(inside, cv2.DIST_L2, 3).argmax(), inside.shape)
        width, height = text_width(name, size), size * 3 // 4
        left = int(np.clip(x - 1 - width // 2, 1, max(1, image.shape[1] - width - 2)))
        lowest = max(height + 2, image.shape[0] - 4)
        bases = [int(np.clip(y - 1 + height // 2 + i * (height + 6), height + 2, lowest)) for i in LINES]
        boxes = [(slice(y - height - 2, y + 4), slice(left - 1, left + width + 2)) for y in bases]
        base, box = min(zip(bases, boxes, strict=True), key=lambda pair: int(written[pair[1]].sum()))
        image[box], written[box] = PAPER, True
        draw_text(image, name, (left, base), size, INK)
    return image
