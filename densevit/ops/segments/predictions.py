"""Segments of one image as predictions, and how queries are merged into them (Mask2Former, Cheng et al. 2022).

q queries, k classes (kinds: with `no object` as the last), n segments, h x w pixels. Thresholds are those of EoMT.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int32, Int64
from torch import Tensor

from densevit.model_card import HeadSpec

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
    new, final = (torch.bincount(x.flatten(), minlength=count).tolist() for x in (owner, owner[inside]))
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
