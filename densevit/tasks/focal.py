"""The focal length of the camera as a task. b images; lengths are shares of the image's width."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from densevit.losses.image_level import FOCAL_LOSSES
from densevit.ops.camera import CameraInput
from densevit.ops.colors import draw_text
from densevit.structures import Batch, Row
from densevit.tasks.base import NO_EXTRAS, TASKS, Extras, Task

SHOWN = 4  # images in a panel


@TASKS.register("focal")
class FocalTask(Task):
    """The focal length of an image, from the intrinsics of the data set.

    `score` takes the estimated and the true focal length of an image.
    """

    best = ("fov_error", "min")
    kinds = ("focal",)
    loss_registry = FOCAL_LOSSES
    default_losses = ({"type": "log_l1"},)

    @classmethod
    def ground_truth_kinds(cls, losses: Sequence[Any]) -> frozenset[str]:
        return frozenset({"camera"})

    def losses(
        self, prediction: Float[Tensor, "b 1 1 1"], batch: Batch, step: int, extras: Extras = NO_EXTRAS
    ) -> dict[str, Tensor]:
        return self.weighted_losses(step, prediction[:, 0, 0, 0], self.ground_truth(batch))

    def ground_truth(self, batch: Batch) -> Float[Tensor, " b"]:
        """Return the focal length along x as a share of the width; NaN where the camera is not known, or CutMix pasted
        in what another camera saw."""
        return CameraInput("camera").of_batch(batch)[:, 0] / batch.image.shape[-1]

    def image_scores(self, prediction: Float[Tensor, "b 1 1 1"], batch: Batch) -> list[Row]:
        pairs = zip(prediction[:, 0, 0, 0].tolist(), self.ground_truth(batch).tolist(), strict=True)
        return [self.score(ours, true) if true == true else {} for ours, true in pairs]

    def panel(self, prediction: Float[Tensor, "b 1 1 1"], batch: Batch) -> UInt8[np.ndarray, "height width 3"]:
        """Return up to four images, one below the other, with the estimated and the true horizontal field of view."""
        images = (batch.image[:SHOWN].permute(0, 2, 3, 1).cpu().numpy() * 255).round().astype(np.uint8)
        angles = [
            np.degrees(2 * np.arctan(0.5 / x.double().cpu().numpy()))
            for x in (prediction[:SHOWN, 0, 0, 0], self.ground_truth(batch)[:SHOWN])
        ]
        rows = []
        for image, ours, true in zip(images, *angles, strict=True):
            caption = np.full((18, image.shape[1], 3), 255, np.uint8)
            draw_text(caption, f"{ours:.0f}° ({true:.0f}°)", (2, 13), 12, (0, 0, 0))
            rows.append(np.concatenate([image, caption]))
        return np.concatenate(rows)


def score(ours: float, true: float) -> Row:
    """Score focal lengths as shares of the image's width: the error of the horizontal field of view in degrees, and the
    larger focal length over the smaller, minus 1."""
    angles = (math.degrees(2 * math.atan(0.5 / ratio)) for ratio in (ours, true))
    return {"fov_error": abs(next(angles) - next(angles)), "focal_error": max(ours / true, true / ours) - 1}
