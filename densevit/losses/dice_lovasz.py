"""Region overlap losses for segmentation: Dice and Lovasz-Softmax. Each class counts the same, however small.

b images, k classes, h x w pixels, n labelled pixels.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor

from densevit.losses.reduction import Pool, over_step
from densevit.losses.segmentation import LABEL_LOSSES, FunctionLoss, Labels, Logits, Scalar
from densevit.structures import IGNORE


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
    """Mean over classes of 1 - 2 |P T| / (|P| + |T|), soft Dice (Milletari et al. 2016); usually with cross entropy.

    Args:
        exponent: of probabilities in the denominator; 2 in the paper.
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
    losses = 1 - (2 * overlap + smooth) / (predicted + true + smooth)
    # Masks, not indices: a GPU need not be asked which classes there are.
    counted = true > 0 if classes == "present" else (true.sum(1, keepdim=True) > 0).expand_as(true)
    loss: Scalar = ((losses * counted).sum(1) / counted.sum(1).clamp_min(1)).mean().to(probs.dtype)
    return loss


@LABEL_LOSSES.register_function("lovasz", FunctionLoss)
def lovasz(logits: Logits, labels: Labels, *, pool: Pool = "batch") -> Scalar:
    """Lovasz-Softmax: the Lovasz extension of 1 - IoU, mean over the classes that occur (Berman et al. 2018).

    For the last part of a training, or with cross entropy. It sorts pixels, those of a micro-batch at once: with `pool`
    batch, too, it depends on how a step is split.
    """

    def one(probs: Float[Tensor, "n k"], target: Int64[Tensor, " n"]) -> Scalar:
        present = torch.unique(target).tolist()
        return torch.stack([lovasz_softmax_flat(probs[:, c], target == c) for c in present]).mean()

    return pooled([one(*image) for image in labelled_pixels(logits, labels, pool)], logits, pool)


def lovasz_softmax_flat(probs: Float[Tensor, " n"], member: Bool[Tensor, " n"]) -> Scalar:
    """Lovasz-Softmax of one class: sorted errors, times the gradient of the Lovasz extension of the Jaccard loss."""
    errors, order = (member.to(probs.dtype) - probs).abs().sort(descending=True)
    inside = member[order].to(probs.dtype)
    total = inside.sum()
    jaccard = 1 - (total - inside.cumsum(0)) / (total + (1 - inside).cumsum(0))
    grad = torch.diff(jaccard, prepend=jaccard.new_zeros(1))
    return (errors * grad).sum()


Part = tuple[Float[Tensor, "n k"], Int64[Tensor, " n"]]


def labelled_pixels(logits: Logits, labels: Labels, pool: Pool) -> Iterator[Part]:
    """Probabilities and classes of the labelled pixels, of the batch or of each image that has some."""
    probs = logits.float().softmax(1).movedim(1, -1)
    images = zip(probs, labels, strict=True) if pool == "image" else [(probs, labels)]
    for image_probs, target in images:
        labelled = target != IGNORE
        if labelled.any():
            yield image_probs[labelled], target[labelled]


def pooled(losses: list[Scalar], logits: Logits, pool: Pool) -> Scalar:
    """The one loss of the batch, or the mean over its images, one without labels counting as 0."""
    if not losses:
        return logits[:0].float().sum()  # 0, and attached to the graph
    return torch.stack(losses).sum() / (len(logits) if pool == "image" else 1)
