"""Panoptic segments and instances as tasks. b images, t segments of an image, h x w pixels."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import Tensor

from densevit.losses.point_sampling import VOID
from densevit.losses.set_criterion import BACKGROUND, SEGMENT_LOSSES, BatchSegments
from densevit.ops.segments import SegmentPrediction, Segments, draw_segments, segments_of
from densevit.structures import Batch
from densevit.tasks.base import NO_EXTRAS, TASKS, Extras, Task

SHOWN = 4  # images in a panel


@TASKS.register("panoptic")
class PanopticTask(Task):
    """A class for each pixel, and which object it belongs to. Pixels without a segment, and crowds, teach nothing.

    `score` takes a prediction, and the true ids (h w), classes and crowds.
    """

    best = ("pq", "max")
    kinds = ("panoptic",)
    loss_registry = SEGMENT_LOSSES
    default_losses = ({"type": "set_criterion"},)
    directions: ClassVar = {"pq": "max", "pq_things": "max", "pq_stuff": "max"}
    outside = VOID  # the id of pixels without a segment

    @classmethod
    def ground_truth_kinds(cls, losses: Sequence[Any]) -> frozenset[str]:
        return frozenset({"segments"})

    def prediction(self, predictions: Mapping[str, Tensor]) -> list[SegmentPrediction]:
        outputs = {key: predictions[key].float() for key in (self.name, f"{self.name}/classes")}
        count = len(predictions[self.name])
        return [segments_of(self.name, {k: y[i] for k, y in outputs.items()}, self.output) for i in range(count)]

    def losses(self, prediction: Tensor, batch: Batch, step: int, extras: Extras = NO_EXTRAS) -> dict[str, Tensor]:
        return self.weighted_losses(step, prediction, self.ground_truth(batch), extras)

    def ground_truth(self, batch: Batch) -> BatchSegments:
        """Return the segments that count: no crowds, and of instances only things."""
        if batch.segments is None or batch.segment_classes is None or batch.segment_crowd is None:
            none = torch.full_like(batch.image[:, 0], VOID, dtype=torch.int64)
            return BatchSegments(none, none.new_zeros(len(none), 0))
        classes, segments = batch.segment_classes, batch.segments
        is_target = self.is_target(classes)
        numbers = torch.arange(classes.shape[1], device=classes.device).expand_as(classes)
        numbers = numbers.where(is_target, self.outside).where(~batch.segment_crowd, VOID)
        numbers = F.pad(F.pad(numbers, (1, 0), value=self.outside), (1, 0), value=VOID)
        ids = numbers.gather(1, segments.flatten(1) + 1).view_as(segments)
        return BatchSegments(ids, classes.where(is_target & ~batch.segment_crowd, -1))

    def is_target(self, classes: Tensor) -> Tensor:
        """Return which segments of these classes the head shall predict."""
        return classes >= 0

    def image_scores(self, prediction: Sequence[SegmentPrediction], batch: Batch) -> list[Any]:
        if batch.segments is None or batch.segment_classes is None or batch.segment_crowd is None:
            return [{} for _ in batch.names]
        truth = (x.cpu().numpy() for x in (batch.segments, batch.segment_classes, batch.segment_crowd))
        return [
            self.score(predicted, ids, classes[classes >= 0], crowd[classes >= 0]) if (ids >= 0).all() else {}
            for predicted, ids, classes, crowd in zip(prediction, *truth, strict=True)
        ]

    def panel(self, prediction: Sequence[SegmentPrediction], batch: Batch) -> UInt8[np.ndarray, "height width 3"]:
        """Return up to four images, one below the other: image, ground truth, prediction."""
        images = (batch.image[:SHOWN].permute(0, 2, 3, 1).cpu().numpy() * 255).round().astype(np.uint8)
        rows = []
        for i, (image, predicted) in enumerate(zip(images, prediction, strict=False)):
            truth = image
            if batch.segments is not None and batch.segment_classes is not None:
                ids, classes = (x[i].cpu().numpy() for x in (batch.segments, batch.segment_classes))
                labelled = Segments(ids.clip(0).astype(np.int32), classes, np.zeros(len(classes), np.bool_))
                truth = draw_segments(image, labelled.as_prediction(self.output.things), self.output)
            rows.append(np.concatenate([image, truth, draw_segments(image, predicted, self.output)], axis=1))
        return np.concatenate(rows)


@TASKS.register("instances")
class InstancesTask(PanopticTask):
    """Objects, which may overlap; pixels without one are background, and crowds teach nothing."""

    best = ("ap", "max")
    kinds = ("instances",)
    directions: ClassVar = {"ap": "max", "ap50": "max", "ap75": "max"}
    outside = BACKGROUND

    def is_target(self, classes: Tensor) -> Tensor:
        things = self.output.things
        return torch.isin(classes, classes.new_tensor(things)) if things else classes >= 0
