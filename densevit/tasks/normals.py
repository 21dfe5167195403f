"""Surface normals as a task. b images, h x w pixels; unit vectors in camera axes, towards the camera."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from densevit.losses.normals import NORMAL_LOSSES
from densevit.ops.colors import colorize, colorize_normals
from densevit.ops.normals import KINDS_WITH_NORMALS, normals_from_depth
from densevit.reporting.figures import ColorBar, panel
from densevit.structures import Batch
from densevit.tasks.base import NO_EXTRAS, TASKS, Extras, Task

SHOWN = 4  # images in a panel
MAX_ERROR = 45.0  # degrees with the error map's last colour


@TASKS.register("normals")
class NormalsTask(Task):
    """Surface normals from one image.

    The ground truth is the data set's normals; of an image without, those of its depth and intrinsics.

    `score` takes the predicted and the true normals of an image (h w 3 arrays).
    """

    best = ("mean", "min")
    kinds = ("normals",)
    loss_registry = NORMAL_LOSSES
    default_losses = ({"type": "angular"},)

    @classmethod
    def ground_truth_kinds(cls, losses: Sequence[Any]) -> frozenset[str]:
        return frozenset({"normals"})

    def losses(
        self, prediction: Float[Tensor, "b 3 h w"], batch: Batch, step: int, extras: Extras = NO_EXTRAS
    ) -> dict[str, Tensor]:
        target, valid = self.ground_truth(batch)
        return self.weighted_losses(step, prediction, target, valid)

    def ground_truth(self, batch: Batch) -> tuple[Float[Tensor, "b 3 h w"], Bool[Tensor, "b 1 h w"]]:
        """Return the normals, 0 where unknown, and where they are known; those of depth only where it has no unknown
        shift, of CutMix each image by its own camera."""
        normals = torch.zeros_like(batch.image, dtype=torch.float32) if batch.normals is None else batch.normals
        pasted = torch.zeros_like(batch.image[:, :1], dtype=torch.bool)
        if batch.pasted is not None:
            pasted = batch.pasted[:, None]
        for intrinsics, region in ((batch.intrinsics, ~pasted), (batch.pasted_intrinsics, pasted)):
            if batch.depth is None or batch.valid is None or intrinsics is None:
                continue
            which = ~((normals != 0) & region).flatten(1).any(1) & intrinsics.isfinite().flatten(1).all(1)
            if batch.depth_kinds:
                which &= torch.tensor([kind in KINDS_WITH_NORMALS for kind in batch.depth_kinds]).to(which)
            rows = which.nonzero()[:, 0]
            if len(rows):
                fitted = normals_from_depth(batch.depth[rows], intrinsics[rows], (batch.valid & region)[rows])
                normals = normals.index_add(0, rows, fitted.to(normals))
        return normals, (normals != 0).any(1, keepdim=True)

    def image_scores(self, prediction: Float[Tensor, "b 3 h w"], batch: Batch) -> list[dict[str, Any]]:
        target, _ = self.ground_truth(batch)
        maps = (t.permute(0, 2, 3, 1).cpu().numpy() for t in (prediction, target))
        return [self.score(p, t) for p, t in zip(*maps, strict=True)]

    def panel(self, prediction: Float[Tensor, "b 3 h w"], batch: Batch) -> UInt8[np.ndarray, "height width 3"]:
        """Return up to four images, one below the other: image, ground truth, prediction, angle between them."""
        target, valid = self.ground_truth(batch)
        maps = (t[:SHOWN].permute(0, 2, 3, 1).cpu().numpy() for t in (batch.image, target, prediction, valid))
        rows = []
        for name, image, truth, normals, mask in zip(batch.names[:SHOWN], *maps, strict=True):
            angle = np.degrees(np.arccos((truth * normals).sum(2).clip(-1, 1)))
            error = colorize(np.where(mask[..., 0], angle, np.nan), 0.0, MAX_ERROR, cmap="magma")
            rgb = (image * 255).round().astype(np.uint8)
            rows.append((name, [rgb, colorize_normals(truth), colorize_normals(normals), error]))
        bar = ColorBar(range(3, 4), "0", "magma", f"{MAX_ERROR:g} deg")
        return panel(rows, ["image", "ground truth", "prediction", "angle"], [bar])
