"""Segmentation losses on how regions overlap, which a small class moves as much as a large one.

b images, k classes, h x w pixels, n labelled pixels.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor

from densevit.losses.masked_reduction import Pool
from densevit.losses.segmentation import LABEL_LOSSES, LabelLoss, Labels, Logits, Scalar
from densevit.structures import IGNORE


def dice(
    logits: Logits,
    labels: Labels,
    *,
    exponent: Literal[1, 2] = 1,
    smooth: float = 1.0,
    classes: Literal["present", "all"] = "present",
    pool: Pool = "batch",
) -> Scalar:
    """Mean over classes of 1 - 2 |P T| / (|P| + |T|), probabilities taken for memberships (Milletari et al. 2016).

    Args:
        exponent: of the memberships in the divisor; 2 in the paper.
        smooth: pixels added above and below.
        classes: those that occur in the truth, or all.
        pool: the labelled pixels of the batch as one image, or each image by itself.
    """

    def of(shares: Float[Tensor, "n k"], truth: Int64[Tensor, " n"]) -> Scalar:
        true = truth.bincount(minlength=shares.shape[1])
        both = torch.zeros_like(shares[0]).scatter_add(0, truth, shares.gather(1, truth[:, None])[:, 0])
        losses = 1 - (2 * both + smooth) / (shares.pow(exponent).sum(0) + true + smooth)
        return losses[true > 0].mean() if classes == "present" else losses.mean()

    return pooled([of(*part) for part in parts(logits, labels, pool)], logits, pool)


def lovasz(logits: Logits, labels: Labels, *, pool: Pool = "batch") -> Scalar:
    """The Lovasz extension of 1 - IoU, mean over the classes of the truth (Berman et al. 2018, Lovasz-Softmax)."""

    def of(shares: Float[Tensor, "n k"], truth: Int64[Tensor, " n"]) -> Scalar:
        present = torch.unique(truth).tolist()
        return torch.stack([lovasz_softmax_flat(shares[:, c], truth == c) for c in present]).mean()

    return pooled([of(*part) for part in parts(logits, labels, pool)], logits, pool)


def lovasz_softmax_flat(shares: Float[Tensor, " n"], member: Bool[Tensor, " n"]) -> Scalar:
    """Of one class: errors in falling order, each times how much 1 - IoU grows when that pixel is wrong, too."""
    errors, order = (member.to(shares.dtype) - shares).abs().sort(descending=True)
    inside = member[order].to(shares.dtype)
    total = inside.sum()
    jaccard = 1 - (total - inside.cumsum(0)) / (total + (1 - inside).cumsum(0))
    growth = torch.diff(jaccard, prepend=jaccard.new_zeros(1))
    return (errors * growth).sum()


Part = tuple[Float[Tensor, "n k"], Int64[Tensor, " n"]]


def parts(logits: Logits, labels: Labels, pool: Pool) -> Iterator[Part]:
    """Probabilities and classes of the labelled pixels, of the batch or of each image that has some."""
    shares = logits.float().softmax(1).movedim(1, -1)
    images = zip(shares, labels, strict=True) if pool == "image" else [(shares, labels)]
    for own, truth in images:
        labelled = truth != IGNORE
        if labelled.any():
            yield own[labelled], truth[labelled]


def pooled(losses: list[Scalar], logits: Logits, pool: Pool) -> Scalar:
    """The one loss of the batch, or the mean over its images, one without labels counting as 0."""
    if not losses:
        return logits[:0].float().sum()  # 0, and attached to the graph
    return torch.stack(losses).sum() / (len(logits) if pool == "image" else 1)


@LABEL_LOSSES.register("dice")
class Dice(LabelLoss):
    """One less the overlap of probabilities and truth, each class alike; beside cross entropy rather than alone."""

    def __init__(
        self,
        *,
        exponent: Literal[1, 2] = 1,
        smooth: Annotated[float, Field(ge=0)] = 1.0,
        classes: Literal["present", "all"] = "present",
        pool: Pool = "batch",
    ) -> None:
        super().__init__()
        self.exponent, self.smooth, self.classes, self.pool = exponent, smooth, classes, pool

    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        return dice(logits, labels, exponent=self.exponent, smooth=self.smooth, classes=self.classes, pool=self.pool)


@LABEL_LOSSES.register("lovasz")
class Lovasz(LabelLoss):
    """Lovasz-Softmax, which aims at the mean IoU itself; for the last part of a training, or beside cross entropy."""

    def __init__(self, *, pool: Pool = "batch") -> None:
        super().__init__()
        self.pool = pool

    def forward(self, logits: Logits, labels: Labels, extras: Mapping[str, Tensor]) -> Scalar:
        return lovasz(logits, labels, pool=self.pool)
