"""Losses of self-supervised pre-training. b images, n patches, c numbers of a patch, k prototypes, d channels."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

KOLEO_EPS = 1e-8


def patchify(image: Float[Tensor, "b 3 h w"], patch: int) -> Float[Tensor, "b n c"]:
    """Return the pixels of each patch, row by row, the colours of a pixel together."""
    b, colours, h, w = image.shape
    cells = image.reshape(b, colours, h // patch, patch, w // patch, patch)
    return cells.permute(0, 2, 4, 3, 5, 1).reshape(b, -1, patch * patch * colours)


def normalise_patches(patches: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
    """Return each patch with mean 0 and variance 1 (He et al. 2022, "normalized pixels")."""
    mean, variance = patches.mean(-1, keepdim=True), patches.var(-1, keepdim=True)
    return (patches - mean) / (variance + 1e-6).sqrt()


def masked_patch_mse(
    prediction: Float[Tensor, "b n c"], target: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"]
) -> Float[Tensor, ""]:
    """Return the mean square over the masked patches alone (He et al. 2022)."""
    error = (prediction.float() - target.float()).square().mean(-1)
    return (error * mask).sum() / mask.sum()


def dino_loss(
    student: Float[Tensor, "s b k"], teacher: Float[Tensor, "t b k"], temperature: float = 0.1
) -> Float[Tensor, ""]:
    """Return the cross-entropy of every view of the student with every other view of the teacher, averaged (Caron et
    al. 2021). `student`: logits of s views, of which the first t are the teacher's; `teacher`: probabilities."""
    logs = F.log_softmax(student.float() / temperature, -1)
    pairs = [(target, log) for t, target in enumerate(teacher) for s, log in enumerate(logs) if s != t]
    terms = [-(target.float() * log).sum(-1).mean() for target, log in pairs]
    return torch.stack(terms).mean()


def ibot_loss(
    student: Float[Tensor, "b n k"],
    teacher: Float[Tensor, "b n k"],
    mask: Bool[Tensor, "b n"],
    temperature: float = 0.1,
) -> Float[Tensor, ""]:
    """Return the cross-entropy over the masked patches, averaged in each image, then over all images (Zhou et al.
    2022).

    An image without masked patches counts as 0, as in DINOv2. `student`: logits; teacher: probabilities, of the same
    patches unmasked.
    """
    cross_entropy = -(teacher.float() * F.log_softmax(student.float() / temperature, -1)).sum(-1)
    return ((cross_entropy * mask).sum(1) / mask.sum(1).clamp(min=1)).mean()


def koleo_loss(x: Float[Tensor, "b d"]) -> Float[Tensor, ""]:
    """Return -log of the distance to the nearest neighbour in the batch, which spreads features (Sablayrolles et al.
    2019)."""
    with torch.autocast(x.device.type, enabled=False):
        unit = F.normalize(x.float(), eps=KOLEO_EPS, dim=-1)
        products = (unit @ unit.T).detach()
        products.fill_diagonal_(-1)
        distance = F.pairwise_distance(unit, unit[products.argmax(1)], eps=KOLEO_EPS)
        return -(distance + KOLEO_EPS).log().mean()
