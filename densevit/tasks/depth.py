"""Monocular depth as a task. b images, h x w pixels; depth in metres."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from densevit.losses.depth import DEPTH_LOSSES, DepthLoss
from densevit.losses.reduction import best_pixels, log_ratio
from densevit.losses.ssi import KINDS, Space, aligned_error, laplace
from densevit.ops.align import as_ground_truth
from densevit.ops.camera import canonical_scale_of
from densevit.ops.colors import colorize
from densevit.output_kinds import DEPTH_KINDS, scored_kinds
from densevit.reporting.figures import ColorBar, panel
from densevit.structures import Batch, DepthKind
from densevit.tasks.base import NO_EXTRAS, TASKS, Extras, Task

MAX_ERROR = 0.3  # relative error with the last colour of a panel


@TASKS.register("depth")
class DepthTask(Task):
    """Depth from one image, and the scale of its error where the head predicts it.

    Ground truth outside a metric head's range is ignored. `score` takes prediction, depth and mask (h w arrays).

    Attributes:
        score_by_source: score for each data set of a mixture, in place of `score`.
    """

    best = ("abs_rel", "min")
    kinds = DEPTH_KINDS
    loss_registry = DEPTH_LOSSES
    default_losses = ({"type": "silog"},)
    directions: ClassVar = {
        **dict.fromkeys(("abs_rel", "sq_rel", "rmse", "rmse_log", "log10", "silog"), "min"),
        **dict.fromkeys(("d1", "d2", "d3"), "max"),
    }
    score_by_source: Mapping[str, Callable[..., dict[str, Any]]] = MappingProxyType({})

    def losses(
        self, prediction: Float[Tensor, "b 1 h w"], batch: Batch, step: int, extras: Extras = NO_EXTRAS
    ) -> dict[str, Tensor]:
        for loss in self.criteria:
            loss.clip_length = batch.clip_length
        target, valid = self.ground_truth(batch, self.output.focal)
        scale = extras.get("uncertainty")
        if batch.pasted is None:
            return self._compared(prediction, batch, step, target, valid, scale)
        terms: dict[str, Tensor] = {}
        for i, pasted in enumerate(batch.pasted[:, None]):  # each region is aligned by itself (Depth Anything)
            one, row = batch.take([i]), slice(i, i + 1)
            for region in (pasted, ~pasted):
                inside, b = valid[row] & region, None if scale is None else scale[row]
                losses = self._compared(prediction[row], one, step, target[row], inside, b)
                weight = region.float().mean() / len(batch)
                terms = {name: terms.get(name, 0) + weight * loss for name, loss in losses.items()}
        return terms

    @property
    def space(self) -> Space:
        """What predictions without unit are compared in."""
        return "disparity" if self.output.kind == "disparity" else "depth"

    def _compared(
        self, prediction: Tensor, batch: Batch, step: int, target: Tensor, valid: Tensor, scale: Tensor | None
    ) -> dict[str, Tensor]:
        """Return each loss of the images whose ground truth it can compare with, and that of the `scale` of the
        error."""
        terms: dict[str, Tensor] = {}
        for (name, weight), loss in zip(self.weights, self.criteria, strict=True):
            loss.step = step
            fitting = self._valid_of(batch, valid, loss.depth_kinds)
            terms[name] = terms.get(name, 0) + weight * loss(prediction, target, fitting)
        if scale is not None:
            kind = self.output.kind
            fitting = self._valid_of(batch, valid, ("metric",) if kind == "metric" else KINDS[self.space])
            terms["laplace"] = laplace(prediction.detach(), scale, target, fitting, kind=kind)  # type: ignore[arg-type]
        return terms

    @staticmethod
    def _valid_of(batch: Batch, valid: Bool[Tensor, "b 1 h w"], kinds: Collection[str]) -> Bool[Tensor, "b 1 h w"]:
        """Leave out the ground truth of other kinds."""
        fits = [kind in kinds for kind in batch.depth_kinds or ("metric",) * len(batch)]
        return valid if all(fits) else valid & torch.tensor(fits, device=valid.device)[:, None, None, None]

    @torch.no_grad()
    def with_pseudo_labels(
        self, batch: Batch, rows: Sequence[int], prediction: Float[Tensor, "n 1 h w"], confidences: Sequence[float]
    ) -> Batch:
        """Take the depth or disparity itself; of heads without unit up to scale and shift."""
        indices = list(rows)
        kind: DepthKind = self.output.kind  # type: ignore[assignment]
        pseudo_depth, valid = as_ground_truth(prediction, kind)
        if self.output.focal is not None:
            pseudo_depth = pseudo_depth * canonical_scale_of(batch, self.output.focal)[indices]
            valid = valid & pseudo_depth.isfinite()
        size = batch.image[:, :1]
        depth = torch.zeros_like(size) if batch.depth is None else batch.depth.clone()
        mask = torch.zeros_like(size, dtype=torch.bool) if batch.valid is None else batch.valid.clone()
        depth[indices], mask[indices] = torch.where(valid, pseudo_depth, 0), valid
        kinds: list[DepthKind] = list(batch.depth_kinds) or ["metric"] * len(batch)
        for row in indices:
            kinds[row] = kind
        return replace(batch, depth=depth, valid=mask, depth_kinds=tuple(kinds))

    def confident_fraction(self, batch: Batch) -> None:
        return None

    @torch.no_grad()
    def trim_outliers(self, prediction: Float[Tensor, "b 1 h w"], batch: Batch, ratio: float) -> Batch:
        """Trim by the error in log depth, of a head without unit after alignment by scale and shift, of each region of
        CutMix by itself."""
        target, valid = self.ground_truth(batch, self.output.focal)
        if self.output.kind == "metric" and set(batch.depth_kinds) <= {"metric"}:
            errors, mask = log_ratio(prediction, target, valid)
        else:
            inside = () if batch.pasted is None else (valid & batch.pasted[:, None], valid & ~batch.pasted[:, None])
            regions = [
                aligned_error(prediction, target, region, space=self.space, align="median")
                for region in inside or (valid,)
            ]
            errors, mask = (torch.stack(maps).sum(0) for maps in zip(*regions, strict=True))
        return replace(batch, valid=best_pixels(errors.abs(), mask.bool(), ratio))

    @classmethod
    def ground_truth_kinds(cls, losses: Sequence[DepthLoss]) -> frozenset[str]:
        return frozenset().union(*(loss.depth_kinds for loss in losses))

    def scored_kinds(self) -> frozenset[str]:
        return frozenset(scored_kinds(self.output.kind))

    def ground_truth(
        self, batch: Batch, focal: float | None = None
    ) -> tuple[Float[Tensor, "b 1 h w"], Bool[Tensor, "b 1 h w"]]:
        """Return the depth and its mask, which is empty for images without ground truth. `focal`: divide depth by each
        camera's share of this focal length, in pixels: what a head for one focal length is taught (Metric3D). Then
        images without a known camera have no ground truth."""
        if batch.depth is None or batch.valid is None:
            empty = torch.zeros_like(batch.image[:, :1])
            return empty, empty.bool()
        depth, valid, limits = batch.depth, batch.valid, self.output.metres
        if focal is not None:
            scale = canonical_scale_of(batch, focal)
            has_camera = scale.isfinite()
            depth, valid, limits = depth / scale.where(has_camera, 1), valid & has_camera, self.output.range
        if self.output.kind == "metric" and limits is not None:
            outside = (depth < limits[0]) | (depth > limits[1]) | depth.isnan()
            valid = valid & ~self._valid_of(batch, outside, {"metric"})
        return depth, valid

    def image_scores(self, prediction: Float[Tensor, "b 1 h w"], batch: Batch) -> list[dict[str, Any]]:
        if batch.depth is None or batch.valid is None:
            return [{} for _ in batch.names]
        maps = (t[:, 0].cpu().numpy() for t in (prediction, batch.depth, batch.valid))
        sources, kinds = batch.sources or ("",) * len(batch), batch.depth_kinds or ("metric",) * len(batch)
        scorable, rows = self.scored_kinds(), []
        for p, d, v, source, kind in zip(*maps, sources, kinds, strict=True):
            rows.append(self.score_by_source.get(source, self.score)(p, d, v) if kind in scorable else {})
        return rows

    def panel(self, prediction: Float[Tensor, "b 1 h w"], batch: Batch) -> UInt8[np.ndarray, "height width 3"]:
        """Return up to four images, one below the other: image, ground truth, prediction, relative error."""
        images = (batch.image.permute(0, 2, 3, 1).cpu().numpy() * 255).round().astype(np.uint8)
        maps = (t[:, 0].cpu().numpy() for t in (prediction, *self.ground_truth(batch)))
        rows = []
        unit = " m" if self.output.kind == "metric" else ""
        for name, image, pred, target, valid in list(zip(batch.names, images, *maps, strict=True))[:4]:
            low, high = map(float, np.nanpercentile(target[valid] if valid.any() else pred, (2, 98)))
            error = np.where(valid, np.abs(pred - target) / np.where(valid, target, 1), np.nan)
            shown = (colorize(y, low, high) for y in (np.where(valid, target, np.nan), pred))
            pixels = [image, *shown, colorize(error, 0.0, MAX_ERROR, cmap="magma")]
            rows.append((f"{name}: {low:.3g} to {high:.3g}{unit}", pixels))
        bars = [ColorBar(range(1, 3), "near", "turbo", "far"), ColorBar(range(3, 4), "0", "magma", f"{MAX_ERROR:.0%}")]
        return panel(rows, ["image", "ground truth", "prediction", "relative error"], bars)
