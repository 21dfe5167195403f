"""Set criterion of mask classification (Mask2Former, Cheng et al. 2022): bipartite matching of queries and segments.

b images, l layers with predictions, q queries, k classes (kinds: with `no object` as the last), mh x mw cells of a
mask, h x w pixels; t segments of an image, n pairs of a query and a segment, over all images and layers; p points.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from pydantic import Field
from torch import Tensor

from densevit.errors import ConfigError
from densevit.losses.point_sampling import VOID, point_sample, random_points, sample_label_masks, uncertain_points
from densevit.losses.reduction import mean_over_step
from densevit.losses.segmentation import LABEL_LOSSES, LabelLoss, Labels, Logits, Scalar
from densevit.registry import Registry
from densevit.structures import IGNORE
from densevit.utils.device import upload

Weight = Annotated[float, Field(ge=0)]
Masks = Float[Tensor, "b l q mh mw"]
Classes = Float[Tensor, "b l q kinds"]
EXTRAS = ("masks", "classes", "covers")
BIG = 1e10  # the cost of a pair whose cost is not finite, so that it is matched last


BACKGROUND = -2  # the id of pixels that are outside of every segment

SEGMENT_LOSSES = Registry[LabelLoss]("segment loss")


@dataclass(frozen=True)
class BatchSegments:
    """The segments of images: a class and a mask each. Those of a semantic map are its classes."""

    ids: Int64[Tensor, "b h w"]  # VOID where unknown
    classes: Int64[Tensor, "b t"]  # of each id; below 0 where the image has none

    def occur(self) -> Bool[Tensor, "b t"]:
        """Return whether each id occurs in each image."""
        seen = torch.zeros(len(self.ids), self.classes.shape[1] - BACKGROUND, dtype=torch.bool, device=self.ids.device)
        seen.scatter_(1, self.ids.flatten(1) - BACKGROUND, value=True)
        return seen[:, -BACKGROUND:] & (self.classes >= 0)

    def padded(self, size: tuple[int, int]) -> "BatchSegments":
        """Return those of the centre-padded image that the masks cover; the padding is unknown."""
        h, w = self.ids.shape[-2:]
        down, right = size[0] - h, size[1] - w
        sides = (right // 2, right - right // 2, down // 2, down - down // 2)
        return BatchSegments(F.pad(self.ids, sides, value=VOID), self.classes)


def class_segments(labels: Labels, classes: int) -> BatchSegments:
    """Return the classes of a semantic map as segments."""
    ids = torch.where(labels == IGNORE, VOID, labels)
    return BatchSegments(ids, torch.arange(classes, device=labels.device).expand(len(labels), -1))


@dataclass(frozen=True)
class MatchedPairs:
    """Which query of which layer stands for which segment of which image."""

    image: Int64[Tensor, " n"]
    layer: Int64[Tensor, " n"]
    query: Int64[Tensor, " n"]
    segment: Int64[Tensor, " n"]


@SEGMENT_LOSSES.register("set_criterion")
@LABEL_LOSSES.register("set_criterion")
class SetCriterion(LabelLoss):
    """Class cross entropy, mask cross entropy and Dice of matched queries; all other queries are `no object`.

    Summed over the layers that the decoder supervises, as in EoMT, with Mask2Former's weights. Ignored pixels do not
    count; in the published code they are outside of every mask. Sums are divided by the pairs of the step; published
    code divides that of the classes by those of a micro-batch.
    """

    sums_predictions = True  # more exactly, it takes the decoder's queries

    def __init__(
        self,
        *,
        class_weight: Weight = 2.0,
        mask_weight: Weight = 5.0,
        dice_weight: Weight = 5.0,
        no_object: Weight = 0.1,
        points: Annotated[int, Field(gt=0)] = 12544,
        oversample: Annotated[float, Field(ge=1)] = 3.0,
        importance: Annotated[float, Field(ge=0, le=1)] = 0.75,
        pool: Literal["batch", "micro_batch"] = "batch",
    ) -> None:
        """
        Args:
            class_weight, mask_weight, dice_weight: in the loss and in the matching cost.
            no_object: weight of unmatched queries, of which there are many.
            points: sampled per mask; 112 x 112.
            oversample, importance: how they are chosen; see `uncertain_points`.
            pool: whether sums are divided by the pairs of the step or of a micro-batch.
        """
        super().__init__()
        self.weights = (class_weight, mask_weight, dice_weight)
        self.no_object, self.points, self.oversample, self.importance = no_object, points, oversample, importance
        self.pool = pool

    def forward(self, logits: Logits, labels: Labels | BatchSegments, extras: Mapping[str, Tensor]) -> Scalar:
        """Raise ConfigError if the decoder has no queries."""
        if any(name not in extras for name in EXTRAS):
            raise ConfigError("losses: 'set_criterion' needs a decoder with queries; 'eomt' has them.")
        masks, classes = extras["masks"], extras["classes"]
        truth = labels if isinstance(labels, BatchSegments) else class_segments(labels, classes.shape[-1] - 1)
        truth = truth.padded((int(extras["covers"][0]), int(extras["covers"][1])))
        pairs = self.match(masks.detach(), classes.detach(), truth)
        by_class, by_mask, by_dice = self.weights
        zero = masks[:0].sum().float()  # attached to the graph
        sums = self.mask_losses(masks, truth.ids, pairs) if len(pairs.image) else (zero, zero)
        occurring = masks.new_full((), len(pairs.image) / masks.shape[1], dtype=torch.float32)
        means = self.mean(torch.stack(sums), occurring, 1)
        return by_class * self.class_loss(classes.float(), truth, pairs) + by_mask * means[0] + by_dice * means[1]

    def mask_losses(self, masks: Masks, ids: Int64[Tensor, "b h w"], pairs: MatchedPairs) -> tuple[Scalar, Scalar]:
        """Return the cross entropy and dice at points, summed over layers and the segments that occur."""
        matched = masks[pairs.image, pairs.layer, pairs.query].float()
        with torch.no_grad():
            points = uncertain_points(
                matched, ids, pairs.image, self.points, oversample=self.oversample, importance=self.importance
            )
            target, labelled = sample_label_masks(ids, pairs.image, pairs.segment, points)
        logits = point_sample(matched, points)
        bce = F.binary_cross_entropy_with_logits(logits, target, weight=labelled, reduction="none").sum(1)
        bce = bce / labelled.sum(1).clamp_min(1)
        probs = logits.sigmoid() * labelled
        dice = 1 - (2 * (probs * target).sum(1) + 1) / (probs.sum(1) + (target * labelled).sum(1) + 1)
        return bce.sum(), dice.sum()

    def class_loss(self, classes: Classes, truth: BatchSegments, pairs: MatchedPairs) -> Scalar:
        """Return the weighted cross entropy, averaged over the queries of the images with a known pixel, summed over
        layers."""
        no_object = classes.shape[-1] - 1
        target = torch.full(classes.shape[:-1], no_object, device=classes.device)
        target[pairs.image, pairs.layer, pairs.query] = truth.classes[pairs.image, pairs.segment]
        weight = torch.where(target == no_object, self.no_object, 1.0)
        weight = weight * (truth.ids != VOID).any((1, 2))[:, None, None]
        losses = F.cross_entropy(classes.flatten(0, 2), target.flatten(), reduction="none").view(target.shape)
        return self.mean((losses * weight).sum((0, 2)), weight.sum((0, 2)), 1e-6).sum()

    def mean(self, total: Tensor, count: Tensor, least: float) -> Tensor:
        """Return total / count, with the count of the step or of the micro-batch."""
        return mean_over_step(total, count, least) if self.pool == "batch" else total / count.clamp_min(least)

    @torch.no_grad()
    def match(self, masks: Masks, classes: Classes, truth: BatchSegments) -> MatchedPairs:
        """Return the bipartite matching of least cost, for each image and layer by itself, on the CPU.

        One copy comes from the device and one goes there. Which segments occur is in it, so on a GPU the costs of all
        are computed: the host would else wait to know for which.
        """
        from scipy.optimize import linear_sum_assignment

        occurs, device = truth.occur(), truth.ids.device
        on_cpu, shares = device.type == "cpu", classes.float().softmax(-1)
        everything = torch.arange(occurs.shape[1], device=device)
        candidates = [row.nonzero()[:, 0] for row in occurs] if on_cpu else [everything] * len(occurs)
        costs = [
            self.costs(masks[image], shares[image][..., truth.classes[image, ids]], truth.ids[image], ids)
            if len(ids)
            else masks.new_empty(0)
            for image, ids in enumerate(candidates)
        ]
        sizes = [occurs.numel(), *(cost.numel() for cost in costs)]
        down = torch.cat([occurs.flatten().float(), *(cost.flatten().float() for cost in costs)]).cpu()
        occurring, *flat = torch.split(down, sizes)
        pairs = []
        for image, row in enumerate(occurring.view(occurs.shape).bool()):
            ids = row.nonzero()[:, 0]
            if not len(ids):
                continue
            cost = flat[image].view(costs[image].shape)
            for layer, pairwise in enumerate((cost if on_cpu else cost[..., ids]).numpy()):
                queries, rows = map(torch.from_numpy, linear_sum_assignment(pairwise))
                image_layer = torch.tensor([[image], [layer]]).expand(-1, len(rows))
                pairs.append(torch.stack([*image_layer, queries, ids[rows]]))
        joined = torch.cat(pairs, dim=1) if pairs else torch.empty(4, 0, dtype=torch.int64)
        return MatchedPairs(*upload(joined, device))

    def costs(
        self,
        masks: Float[Tensor, "l q mh mw"],
        shares: Float[Tensor, "l q t"],
        segments: Int64[Tensor, "h w"],
        ids: Int64[Tensor, " t"],
    ) -> Float[Tensor, "l q t"]:
        """Return the matching cost of each query and each of `ids`, at the same points for all. `shares`: probabilities
        of the classes of `ids`."""
        by_class, by_mask, by_dice = self.weights
        points = random_points(1, self.points, masks.device)
        first_image = torch.zeros_like(ids)
        target, labelled = sample_label_masks(segments[None], first_image, ids, points.expand(len(ids), -1, -1))
        target, labelled = target * labelled, labelled[0]
        logits = point_sample(masks.flatten(0, 1).float(), points.expand(masks.shape[0] * masks.shape[1], -1, -1))
        positive, negative = F.softplus(-logits) * labelled, F.softplus(logits) * labelled
        bce = (positive @ target.T + negative @ (1 - target).T) / labelled.sum().clamp_min(1)
        probs = logits.sigmoid() * labelled
        dice = 1 - (2 * probs @ target.T + 1) / (probs.sum(1)[:, None] + target.sum(1) + 1)
        pairwise = (by_mask * bce + by_dice * dice).view(*masks.shape[:2], len(ids))
        return torch.nan_to_num(pairwise - by_class * shares, nan=BIG, posinf=BIG, neginf=BIG)
