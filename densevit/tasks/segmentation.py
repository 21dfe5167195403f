"""Semantic segmentation as a task. b images, k classes, h x w pixels."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from densevit.losses.reduction import best_pixels
from densevit.losses.segmentation import LABEL_LOSSES, WeightedLoss, pixel_losses
from densevit.ops.colors import paint, palette_for
from densevit.output_kinds import argmax_or_ignore
from densevit.reporting.figures import panel
from densevit.structures import IGNORE, Batch, Row
from densevit.tasks.base import NO_EXTRAS, TASKS, Extras, Task

SHOWN = 4  # images in a panel
RIGHT, WRONG, UNKNOWN = (46, 125, 50), (198, 40, 40), (0, 0, 0)


@TASKS.register("segmentation")
class SegmentationTask(Task):
    """A class for each pixel.

    `score` takes predicted ids, true ids (h w arrays) and the number of classes, and gives the counts of an image;
    `aggregate` gives the scores of all pixels together, as in mmseg, whatever the batch size.
    """

    best = ("miou", "max")
    kinds = ("labels",)
    loss_registry = LABEL_LOSSES
    default_losses = ({"type": "cross_entropy"},)
    directions: ClassVar = {"miou": "max", "pixel_accuracy": "max"}

    def __init__(self, *args: Any) -> None:
        """Raise ConfigError: a loss has weights for another number of classes."""
        super().__init__(*args)
        for loss in self.criteria:
            if isinstance(loss, WeightedLoss):
                loss.check(len(self.output.classes))

    def losses(
        self, prediction: Float[Tensor, "b k h w"], batch: Batch, step: int, extras: Extras = NO_EXTRAS
    ) -> dict[str, Tensor]:
        return self.weighted_losses(step, prediction, self.ground_truth(batch), extras)

    def ground_truth(self, batch: Batch) -> Int64[Tensor, "b h w"]:
        """Return the class ids; IGNORE where unknown."""
        if batch.labels is not None:
            return batch.labels
        return torch.full_like(batch.image[:, 0], IGNORE, dtype=torch.int64)

    @torch.no_grad()
    def with_pseudo_labels(
        self, batch: Batch, rows: Sequence[int], prediction: Float[Tensor, "n k h w"], confidences: Sequence[float]
    ) -> Batch:
        """Take the class of the largest probability, where that reaches the confidence."""
        sure, ids = prediction.softmax(1).max(1)
        least = sure.new_tensor(confidences)
        labels = self.ground_truth(batch).clone()
        labels[list(rows)] = torch.where(sure >= least[:, None, None], ids, IGNORE)
        return replace(batch, labels=labels)

    def confident_fraction(self, batch: Batch) -> Float[Tensor, "b"]:
        return (self.ground_truth(batch) != IGNORE).flatten(1).float().mean(1)

    @torch.no_grad()
    def trim_outliers(self, prediction: Float[Tensor, "b k h w"], batch: Batch, ratio: float) -> Batch:
        labels = self.ground_truth(batch)
        inliers = best_pixels(pixel_losses(prediction, labels), labels != IGNORE, ratio)
        return replace(batch, labels=torch.where(inliers, labels, IGNORE))

    def image_scores(self, prediction: Float[Tensor, "b k h w"], batch: Batch) -> list[Row]:
        if batch.labels is None:
            return [{} for _ in batch.names]
        pairs = zip(self.classes(prediction), batch.labels.cpu().numpy(), strict=True)
        return [self.score(ids, labels, len(self.output.classes)) for ids, labels in pairs]

    def classes(self, prediction: Float[Tensor, "b k h w"]) -> Int64[np.ndarray, "b h w"]:
        return argmax_or_ignore(prediction).cpu().numpy()

    def panel(self, prediction: Float[Tensor, "b k h w"], batch: Batch) -> UInt8[np.ndarray, "height width 3"]:
        """Return up to four images, one below the other: image, ground truth, prediction, where they differ (red)."""
        images = (batch.image.permute(0, 2, 3, 1).cpu().numpy() * 255).round().astype(np.uint8)
        palette = palette_for(self.output)
        rows = []
        maps = zip(batch.names, images, self.ground_truth(batch).cpu().numpy(), self.classes(prediction), strict=True)
        occurring: set[int] = set()
        for name, image, labels, ids in list(maps)[:SHOWN]:
            verdict = np.where((ids == labels)[..., None], RIGHT, WRONG).astype(np.uint8)
            verdict[labels == IGNORE] = UNKNOWN
            rows.append((name, [image, paint(labels, palette), paint(ids, palette), verdict]))
            occurring |= {*np.unique(labels).tolist(), *np.unique(ids).tolist()} - {IGNORE}
        legend = [(palette[i], self.output.classes[i]) for i in sorted(occurring)]
        return panel(rows, ["image", "ground truth", "prediction", "red: wrong"], legend=legend)
