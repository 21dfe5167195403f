"""Pixel losses of segmentation: cross entropy, OHEM, focal. b images, k classes, h x w pixels; IGNORE: unknown."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor

from densevit.errors import ConfigError
from densevit.losses.reduction import Pool, PooledLoss, over_step, pooled_mean
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
        """Return `extras`: what decoder and head give beside the logits; most losses do not use them."""


LABEL_LOSSES = Registry[LabelLoss]("segmentation loss")


class FunctionLoss(LabelLoss):
    """A loss that is a function of (logits, labels), with its options bound."""

    def __init__(self, function: Callable[..., Scalar], **options: Any) -> None:
        super().__init__()
        self.function = partial(function, **options)
        self.pool = options.get("pool", "micro_batch")

    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        return self.function(logits, labels)


def pixel_losses(
    logits: Logits, labels: Labels, *, weights: Float[Tensor, " k"] | None = None, label_smoothing: float = 0.0
) -> Float[Tensor, "b h w"]:
    """Return -ln p(label) of each pixel, 0 where it has none."""
    return F.cross_entropy(
        logits.float(),
        labels,
        weight=weights,
        ignore_index=IGNORE,
        label_smoothing=label_smoothing,
        reduction="none",
    )


def labelled_mean(losses: Float[Tensor, "b h w"], labelled: Bool[Tensor, "b h w"], pool: Pool) -> Scalar:
    """Return the mean over labelled pixels of losses that are 0 elsewhere; an image without any counts as 0."""
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
        """Raise ConfigError if the number of weights is not that of the classes."""
        if self.weights is not None and len(self.weights) != classes:
            raise ConfigError(f"weights: {len(self.weights)} numbers for the {classes} classes of the head.")


@LABEL_LOSSES.register("cross_entropy")
class CrossEntropy(WeightedLoss):
    """Cross entropy of the softmax: the mean of -ln p(class) over the labelled pixels."""

    def __init__(
        self,
        *,
        weights: Weights | None = None,
        label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0,
        pool: Pool = "batch",
    ) -> None:
        """
        Args:
            weights: weight of each class; the sum is divided by the number of pixels, not of weights, as in mmseg.
            label_smoothing: probability that is spread evenly over all classes (Szegedy et al. 2016).
        """
        super().__init__(weights)
        self.label_smoothing, self.pool = label_smoothing, pool

    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        losses = pixel_losses(logits, labels, weights=self.weights, label_smoothing=self.label_smoothing)
        return labelled_mean(losses, labels != IGNORE, self.pool)


@LABEL_LOSSES.register("auxiliary")
class Auxiliary(CrossEntropy):
    """Cross entropy of the decoder's `auxiliary` logits; its weight is 0.2 in DPT, 0.4 in mmseg."""

    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        """Raise ConfigError if the decoder has no auxiliary classifier."""
        if "auxiliary" not in extras:
            raise ConfigError(
                "losses: 'auxiliary' needs a decoder with such a classifier; 'dpt' and 'upernet' can have one."
            )
        return super().forward(extras["auxiliary"], labels, extras)


@LABEL_LOSSES.register("ohem")
class Ohem(WeightedLoss):
    """Cross entropy over the hard pixels of a micro-batch; it depends on how a step is split.

    Online hard example mining (Shrivastava et al. 2016). Its default of `keep` are the usual 100,000 pixels of an image
    of 512 x 1024.
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
        labelled = labels != IGNORE
        losses = pixel_losses(logits, labels, weights=self.weights)[labelled]
        with torch.no_grad():
            probs = logits.float().softmax(1).gather(1, labels.where(labelled, 0)[:, None])[:, 0][labelled]
            least = max(1, round(self.keep * probs.numel()))
            limit = torch.cat([probs.sort().values[least - 1 : least], probs.new_tensor([self.threshold])]).max()
            hard = probs <= limit
        return losses[hard].sum() / hard.sum().clamp(min=1)


@LABEL_LOSSES.register("focal")
class Focal(WeightedLoss):
    """Focal loss (Lin et al. 2017): cross entropy times (1 - p)^gamma, which leaves less weight on easy pixels."""

    def __init__(
        self,
        *,
        weights: Weights | None = None,
        gamma: Annotated[float, Field(ge=0)] = 2.0,
        pool: Pool = "batch",
    ) -> None:
        """
        Args:
            gamma: exponent of the focusing factor; 0 is cross entropy.
        """
        super().__init__(weights)
        self.gamma, self.pool = gamma, pool

    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        plain = pixel_losses(logits, labels)
        # Above 0, where the gradient of a power below 1 is infinite: ignored or certain pixels would give NaN.
        uncertainty = (1 - torch.exp(-plain)).clamp_min(torch.finfo(plain.dtype).tiny)
        losses = uncertainty**self.gamma * plain
        if self.weights is not None:
            losses = losses * self.weights[labels.where(labels != IGNORE, 0)]
        return labelled_mean(losses, labels != IGNORE, self.pool)


class DiceLoss(FunctionLoss):
    """A function of sums over predictions."""

    sums_predictions = True


@LABEL_LOSSES.register_function("dice", DiceLoss)
def dice(
    logits: Logits,
    labels: Labels,
    *,
    exponent: Literal[1, 2] = 1,
    smooth: Annotated[float, Field(ge=0)] = 1.0,
    classes: Literal["present", "all"] = "present",
    pool: Pool = "batch",
) -> Scalar:
    """Return the mean over classes of 1 - 2 |P T| / (|P| + |T|), soft Dice (Milletari et al. 2016).

    It is usually combined with cross entropy.

    Args:
        exponent: exponent of the probabilities in the denominator; 2 in the paper.
        smooth: pixels added to numerator and denominator.
        classes: those that occur in the labels, or all.
    """

    labelled = labels != IGNORE
    probs = logits.float().softmax(1) * labelled[:, None]
    target = labels.where(labelled, 0)[:, None]
    overlap = torch.zeros_like(probs[..., 0, 0]).scatter_add(1, target.flatten(1), probs.gather(1, target).flatten(1))
    true = torch.zeros_like(overlap).scatter_add(1, target.flatten(1), labelled.flatten(1).to(probs.dtype))
    sums = torch.stack([overlap, probs.pow(exponent).sum((2, 3)), true])  # 3 b k
    if pool != "image":
        sums = sums.sum(1, keepdim=True)
    overlap, predicted, true = over_step(sums) if pool == "batch" else sums
    # Without `smooth` nothing may remain of a class that is neither true nor predicted, or of an image without labels.
    losses = 1 - (2 * overlap + smooth) / (predicted + true + smooth).clamp_min(1e-12)
    # Masks, not indices: a GPU need not be asked which classes there are.
    counted = true > 0 if classes == "present" else (true.sum(1, keepdim=True) > 0).expand_as(true)
    loss: Scalar = ((losses * counted).sum(1) / counted.sum(1).clamp_min(1)).mean().to(probs.dtype)
    return loss


@LABEL_LOSSES.register_function("lovasz", FunctionLoss)
def lovasz(logits: Logits, labels: Labels, *, pool: Pool = "batch") -> Scalar:
    """Return Lovasz-Softmax: the Lovasz extension of 1 - IoU, mean over the classes that occur (Berman et al. 2018).

    For the last part of a training, or with cross entropy. It sorts pixels, those of a micro-batch at once: with `pool`
    batch, too, it depends on how a step is split.
    """

    def one(probs: Float[Tensor, "n k"], target: Int64[Tensor, " n"]) -> Scalar:
        present = torch.unique(target).tolist()
        return torch.stack([lovasz_softmax_flat(probs[:, c], target == c) for c in present]).mean()

    return pooled([one(*image) for image in labelled_pixels(logits, labels, pool)], logits, pool)


def lovasz_softmax_flat(probs: Float[Tensor, " n"], member: Bool[Tensor, " n"]) -> Scalar:
    """Return the Lovasz-Softmax of one class: sorted errors, times the gradient of the Lovasz extension of the Jaccard
    loss."""
    errors, order = (member.to(probs.dtype) - probs).abs().sort(descending=True)
    inside = member[order].to(probs.dtype)
    total = inside.sum()
    jaccard = 1 - (total - inside.cumsum(0)) / (total + (1 - inside).cumsum(0))
    grad = torch.diff(jaccard, prepend=jaccard.new_zeros(1))
    return (errors * grad).sum()


Part = tuple[Float[Tensor, "n k"], Int64[Tensor, " n"]]


def labelled_pixels(logits: Logits, labels: Labels, pool: Pool) -> Iterator[Part]:
    """Yield the probabilities and classes of the labelled pixels, of the batch or of each image that has some."""
    probs = logits.float().softmax(1).movedim(1, -1)
    images = zip(probs, labels, strict=True) if pool == "image" else [(probs, labels)]
    for image_probs, target in images:
        labelled = target != IGNORE
        if labelled.any():
            yield image_probs[labelled], target[labelled]


def pooled(losses: list[Scalar], logits: Logits, pool: Pool) -> Scalar:
    """Return the one loss of the batch, or the mean over its images, one without labels counting as 0."""
    if not losses:
        return logits[:0].float().sum()  # 0, and attached to the graph
    return torch.stack(losses).sum() / (len(logits) if pool == "image" else 1)
