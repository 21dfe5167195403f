"""Image classification as a task. b images, h x w pixels, k classes; logits come as maps of 1 x 1."""

from collections.abc import Sequence
from typing import Any, ClassVar

import cv2
import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from densevit.losses.image_level import CLASS_LOSSES
from densevit.reporting.figures import panel
from densevit.structures import NO_LABEL, Batch, Row
from densevit.tasks.base import NO_EXTRAS, TASKS, Extras, Task

SHOWN, SIDE = 8, 96  # images in a panel, and the minimum of their sides in pixels
RIGHT, WRONG, OTHER, BACKGROUND = (46, 125, 50), (198, 40, 40), (158, 158, 158), (250, 250, 250)


@TASKS.register("classification")
class ClassificationTask(Task):
    """One class for each image.

    `score` takes the logits and the class of an image.
    """

    best = ("accuracy", "max")
    kinds = ("class",)
    loss_registry = CLASS_LOSSES
    default_losses = ({"type": "cross_entropy"},)
    directions: ClassVar = {"accuracy": "max"}

    @classmethod
    def ground_truth_kinds(cls, losses: Sequence[Any]) -> frozenset[str]:
        return frozenset({"image labels"})

    def losses(
        self, prediction: Float[Tensor, "b k 1 1"], batch: Batch, step: int, extras: Extras = NO_EXTRAS
    ) -> dict[str, Tensor]:
        logits, target = prediction[:, :, 0, 0], self.ground_truth(batch)
        return self.weighted_losses(step, logits, target)

    def ground_truth(self, batch: Batch) -> Int64[Tensor, " b"]:
        """Return the class ids; NO_LABEL where unknown."""
        if batch.label is not None:
            return batch.label
        return torch.full((len(batch),), NO_LABEL, device=batch.image.device)

    def image_scores(self, prediction: Float[Tensor, "b k 1 1"], batch: Batch) -> list[Row]:
        logits = prediction[:, :, 0, 0].cpu().double().numpy()
        labels = self.ground_truth(batch).tolist()
        return [{} if i == NO_LABEL else self.score(x, i) for x, i in zip(logits, labels, strict=True)]

    def panel(self, prediction: Float[Tensor, "b k 1 1"], batch: Batch) -> UInt8[np.ndarray, "height width 3"]:
        """Return up to eight images, one below the other, each with a bar per class as long as its probability: green
        for the true class, red for a wrong prediction, grey for the others."""
        shares = prediction[:, :, 0, 0].cpu().double().softmax(1).numpy()
        labels = self.ground_truth(batch).tolist()
        images = (batch.image.permute(0, 2, 3, 1).cpu().numpy() * 255).round().astype(np.uint8)
        names = dict(enumerate(self.output.classes))
        rows = [
            (f"{name}: {names.get(label, '?')}, predicted {names[int(np.argmax(share))]}", _row(image, share, label))
            for name, image, share, label in zip(batch.names, images, shares, labels, strict=True)
        ]
        return panel(rows[:SHOWN], ["image", "probabilities"])


def _row(image: UInt8[np.ndarray, "h w 3"], shares: Any, label: int) -> list[UInt8[np.ndarray, "height width 3"]]:
    factor = max(1, -(-SIDE // min(image.shape[:2])))
    large = image.repeat(factor, 0).repeat(factor, 1)
    return [large, bars(shares, label, large.shape[:2])]


def bars(shares: Float[np.ndarray, " k"], label: int, size: tuple[int, int]) -> UInt8[np.ndarray, "h w 3"]:
    """Return one horizontal bar per class, first on top; the whole width is probability 1."""
    h, w = size
    canvas = np.full((h, w, 3), BACKGROUND, np.uint8)
    edges = np.linspace(0, h, len(shares) + 1).round().astype(int)
    for i, share in enumerate(np.nan_to_num(shares)):
        color = RIGHT if i == label else WRONG if i == int(np.argmax(shares)) else OTHER
        top, bottom = int(edges[i]), max(int(edges[i]), int(edges[i + 1]) - 2)
        cv2.rectangle(canvas, (0, top), (max(1, round(float(share) * w)) - 1, bottom), color, cv2.FILLED)
    return canvas
