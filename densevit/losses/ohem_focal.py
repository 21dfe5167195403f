"""Segmentation losses that emphasise hard pixels: OHEM and focal. b images, k classes, h x w pixels."""

from collections.abc import Mapping
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from densevit.losses.masked_reduction import Pool
from densevit.losses.segmentation import (
    LABEL_LOSSES,
    Labels,
    Logits,
    Scalar,
    WeightedLoss,
    Weights,
    labelled_mean,
    pixel_losses,
)
from densevit.structures import IGNORE


def ohem(
    logits: Logits, labels: Labels, *, weights: Tensor | None = None, threshold: float = 0.7, keep: float = 0.2
) -> Scalar:
    """Mean cross entropy over the hard pixels of the batch (online hard example mining, Shrivastava et al. 2016).

    Hard are pixels whose class has a probability below `threshold`, and in any case the worst share `keep` of them.
    """
    labelled = labels != IGNORE
    losses = pixel_losses(logits, labels, weights=weights)[labelled]
    with torch.no_grad():
        probs = logits.float().softmax(1).gather(1, labels.where(labelled, 0)[:, None])[:, 0][labelled]
        least = max(1, round(keep * probs.numel()))
        limit = torch.cat([probs.sort().values[least - 1 : least], probs.new_tensor([threshold])]).max()
        hard = probs <= limit
    return losses[hard].sum() / hard.sum().clamp(min=1)


def focal(
    logits: Logits, labels: Labels, *, weights: Tensor | None = None, gamma: float = 2.0, pool: Pool = "batch"
) -> Scalar:
    """Mean of -(1 - p)^gamma ln p over the labelled pixels (Lin et al. 2017, with the softmax's probability)."""
    plain = pixel_losses(logits, labels)
    # Above 0, where the gradient of a power below 1 is infinite: ignored or certain pixels would give NaN.
    uncertainty = (1 - torch.exp(-plain)).clamp_min(torch.finfo(plain.dtype).tiny)
    losses = uncertainty**gamma * plain
    if weights is not None:
        losses = losses * weights[labels.where(labels != IGNORE, 0)]
    return labelled_mean(losses, labels != IGNORE, pool)


@LABEL_LOSSES.register("ohem")
class Ohem(WeightedLoss):
    """Cross entropy over the hard pixels of a micro-batch; it depends on how a step is split.

    Its default of `keep` are the usual 100,000 pixels of an image of 512 x 1024.
    """

    def __init__(
        self,
        *,
        weights: Weights | None = None,
        threshold: Annotated[float, Field(gt=0, lt=1)] = 0.7,
        keep: Annotated[float, Field(gt=0, le=1)] = 0.2,
    ) -> None:
        """
        Args:
            threshold: the probability of the true class below which a pixel is hard.
            keep: share of the labelled pixels that counts however easy they are, the hardest first.
        """
        super().__init__(weights)
        self.threshold, self.keep = threshold, keep

    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        return ohem(logits, labels, weights=self.weights, threshold=self.threshold, keep=self.keep)


@LABEL_LOSSES.register("focal")
class Focal(WeightedLoss):
    """Focal loss: cross entropy with less weight on easy pixels; gamma 0 is cross entropy."""

    def __init__(
        self,
        *,
        weights: Weights | None = None,
        gamma: Annotated[float, Field(ge=0)] = 2.0,
        pool: Pool = "batch",
    ) -> None:
        super().__init__(weights)
        self.gamma, self.pool = gamma, pool

    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        return focal(logits, labels, weights=self.weights, gamma=self.gamma, pool=self.pool)
