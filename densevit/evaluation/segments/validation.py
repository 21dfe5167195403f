"""Scores of segments while a model trains. h x w pixels, n segments."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from densevit.evaluation.segments import instances, panoptic
from densevit.evaluation.segments.panoptic import Ids
from densevit.model_card import HeadSpec
from densevit.ops.segments import InstancePrediction, PanopticPrediction
from densevit.ops.segments.labelled import Segments, objects_of
from densevit.structures import Row

Classes = Int64[np.ndarray, " n"]
Crowd = Bool[np.ndarray, " n"]


def segment_scores(output: HeadSpec) -> tuple[Callable[..., Row], Callable[[Sequence[Any]], Row]]:
    """Return what scores an image, and what makes the scores of a data set of those of its images."""
    classes, things = len(output.classes), output.things
    if output.kind == "panoptic":
        return partial(panoptic_row, num_classes=classes), partial(panoptic.pooled, num_classes=classes, things=things)
    return partial(instances_row, things=things or range(classes), num_classes=classes), average_precision


def panoptic_row(prediction: PanopticPrediction, ids: Ids, classes: Classes, crowd: Crowd, *, num_classes: int) -> Row:
    return panoptic.as_row(panoptic.count(prediction.segments, prediction.classes, ids, classes, crowd, num_classes))


def instances_row(
    prediction: InstancePrediction, ids: Ids, classes: Classes, crowd: Crowd, *, things: Sequence[int], num_classes: int
) -> dict[str, Any]:
    """Return the matches of an image; objects are the segments of things, with the area that they have in the image."""
    objects = objects_of(Segments(ids, classes, crowd), things)
    return {"matches": instances.match(prediction.masks, prediction.classes, prediction.scores, *objects, num_classes)}


def average_precision(rows: Sequence[dict[str, Any]]) -> Row:
    return instances.average_precision([row["matches"] for row in rows])[0]
