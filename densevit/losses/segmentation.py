"""Pixel losses of segmentation: cross entropy, OHEM, focal. b images, k classes, h x w pixels; IGNORE: unknown."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor

from densevit.errors import ConfigError
from densevit.losses.reduction import Pool, PooledLoss, pooled_mean
from densevit.registry import Registry
from densevit.structures import IGNORE

Logits: TypeAlias = Float[Tensor, "b k h w"]
Labels: TypeAlias = Int64[Tensor, "b h w"]
Scalar: TypeAlias = Float[Tensor, ""]
Weights = Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=2)]
"""One number for each class, in the order of the ids; `densevit check-data --class-weights` computes them."""


class LabelLoss(PooledLoss, ABC):
    """One number from logits and labels; computed in fp32.

    Exactly 0, attached to the graph, where no pixel has a label.
    """

    step: int = 0  # optimiser steps done, set by the trainer before each step

    @abstractmethod
    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        """`extras`: what decoder and head give beside the logits; most losses do not use them."""


LABEL_LOSSES = Registry[LabelLoss]("segmentation loss")


class FunctionLoss(LabelLoss):
    """A loss that is a function of (logits, labels), with its options bound."""

    def __init__(self, function: Callable[..., Scalar], **options: Any) -> None:
        super().__init__()
        self.function = partial(function, **options)
        self.pool = options.get("pool", "micro_batch")

    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        return self.function(logits, labels)


def cross_entropy(
    logits: Logits,
    labels: Labels,
    *,
    weights: Float[Tensor, " k"] | None = None,
    label_smoothing: float = 0.0,
    pool: Pool = "batch",
) -> Scalar:
    """Mean of -ln p(label) over the labelled pixels, of the batch or of each image (then their mean).

    Args:
        weights: of the classes; the sum is divided by the number of pixels, not by their weights, as in mmseg.
        label_smoothing: probability that is spread evenly over all classes (Szegedy et al. 2016).
    """
    losses = pixel_losses(logits, labels, weights=weights, label_smoothing=label_smoothing)
    return labelled_mean(losses, labels != IGNORE, pool)


def pixel_losses(
    logits: Logits, labels: Labels, *, weights: Float[Tensor, " k"] | None = None, label_smoothing: float = 0.0
) -> Float[Tensor, "b h w"]:
    """-ln p(label) of each pixel, 0 where it has none."""
    return F.cross_entropy(
        logits.float(),
        labels,
        weight=weights,
        ignore_index=IGNORE,
        label_smoothing=label_smoothing,
        reduction="none",
    )


def labelled_mean(losses: Float[Tensor, "b h w"], labelled: Bool[Tensor, "b h w"], pool: Pool) -> Scalar:
    """Mean over labelled pixels of losses that are 0 elsewhere; an image without any counts as 0."""
    totals, counts = (t.reshape(len(t) if pool == "image" else 1, -1).sum(1) for t in (losses, labelled))
    return pooled_mean(totals, counts, pool)


class WeightedLoss(LabelLoss):
    """A loss with a weight for each class, or None."""

    weights: Float[Tensor, " k"] | None

    def __init__(self, weights: Weights | None) -> None:
        super().__init__()
        # A buffer: made on the device once, not in each step, where the device would be waited for.
        self.register_buffer("weights", None if weights is None else torch.tensor(weights), persistent=False)

    def check(self, classes: int) -> None:
        """Raises ConfigError if the number of weights is not that of the classes."""
        if self.weights is not None and len(self.weights) != classes:
            raise ConfigError(f"weights: {len(self.weights)} numbers for the {classes} classes of the head.")


@LABEL_LOSSES.register("cross_entropy")
class CrossEntropy(WeightedLoss):
    """Cross entropy of the softmax, with class weights and label smoothing."""

    def __init__(
        self,
        *,
        weights: Weights | None = None,
        label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        pool: Pool = "batch",
    ) -> None:
        super().__init__(weights)
        self.label_smoothing, self.pool = label_smoothing, pool

    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        weights = self.weights
        return cross_entropy(logits, labels, weights=weights, label_smoothing=self.label_smoothing, pool=self.pool)


@LABEL_LOSSES.register("auxiliary")
class Auxiliary(CrossEntropy):
    """Cross entropy of the decoder's `auxiliary` logits; its weight is 0.2 in DPT, 0.4 in mmseg."""

    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        """Raises ConfigError if the decoder has no auxiliary classifier."""
        if "auxiliary" not in extras:
            raise ConfigError(
                "losses: 'auxiliary' needs a decoder with such a classifier; 'dpt' and 'upernet' can have one."
            )
        return super().forward(extras["auxiliary"], labels, extras)


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
