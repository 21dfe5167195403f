"""Pinhole cameras of batches as tensors: fx, fy, cx, cy in pixels of the images; NaN where a camera is not known.

The centre of the first pixel is (0, 0), as in `geometry.py`; sizes are (h, w). b images.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from densevit.model_inputs import InputKind, register_input
from densevit.structures import Batch, Size


@dataclass(frozen=True)
class Camera:
    """The cameras of a batch of images. Cropping moves the principal point, resizing scales all four numbers.

    Sizes enter as numbers, never as a new tensor: there torch.export would take those of the example for constants.

    Attributes:
        values: fx, fy, cx, cy.
    """

    values: Float[Tensor, "b 4"]

    @classmethod
    def of(cls, batch: Batch) -> "Camera":
        """Return the cameras of a batch; all unknown where it has no intrinsics. Skew is left out."""
        intrinsics = batch.intrinsics
        if intrinsics is None:
            return cls(torch.full((len(batch), 4), math.nan, device=batch.image.device))
        columns = [intrinsics[:, 0, 0], intrinsics[:, 1, 1], intrinsics[:, 0, 2], intrinsics[:, 1, 2]]
        return cls(torch.stack(columns, 1))

    @classmethod
    def centred(cls, focal: Float[Tensor, "b"], size: Size) -> "Camera":
        """Return the square pixels, the principal point in the middle of an image of `size`."""
        middle = torch.full_like(focal, 0.5)
        return cls(torch.stack([focal, focal, middle * (size[1] - 1), middle * (size[0] - 1)], 1))

    @property
    def focal(self) -> Float[Tensor, "b"]:
        """The mean of fx and fy, as Metric3D and Depth Anything 3 take it."""
        return self.values[:, :2].mean(1)

    def cropped(self, top: float, left: float) -> "Camera":
        """Return those of a window that begins at this pixel; negative where the image was padded."""
        fx, fy, cx, cy = self.values.unbind(1)
        return Camera(torch.stack([fx, fy, cx - left, cy - top], 1))

    def resized(self, before: Size, after: Size, align_corners: bool = False) -> "Camera":
        """Return those of the whole image resized, borders to borders, or the centres of the corner pixels to each
        other."""
        if before == after:
            return self
        edge = 1 if align_corners else 0
        y, x = ((new - edge) / max(old - edge, 1) for new, old in zip(after, before, strict=True))
        dy, dx = (0, 0) if align_corners else ((y - 1) / 2, (x - 1) / 2)
        fx, fy, cx, cy = self.values.unbind(1)
        return Camera(torch.stack([fx * x, fy * y, cx * x + dx, cy * y + dy], 1))

    def mirrored(self, width: int) -> "Camera":
        fx, fy, cx, cy = self.values.unbind(1)
        return Camera(torch.stack([fx, fy, width - 1 - cx, cy], 1))

    def directions(self, size: Size, grid: Size) -> Float[Tensor, "b 2 gh gw"]:
        """Return the viewing direction at the centre of each cell of a grid over an image of `size`: x / z and y /
        z."""
        (h, w), (gh, gw) = size, grid
        fx, fy, cx, cy = self.values[:, :, None].unbind(1)
        u = (torch.arange(gw, device=fx.device) + 0.5) * (w / gw) - 0.5
        v = (torch.arange(gh, device=fx.device) + 0.5) * (h / gh) - 0.5
        x, y = (u - cx) / fx, (v - cy) / fy
        return torch.stack([x[:, None, :].expand(-1, gh, -1), y[:, :, None].expand(-1, -1, gw)], 1)


class CameraInput(InputKind):
    """The cameras of the images: b 4, as `Camera.values`; not known where CutMix pasted in what another camera saw.
    Exported files take focal lengths, and the principal point is the middle of the image."""

    exported = "focal"

    def of_batch(self, batch: Batch) -> Float[Tensor, "b 4"]:
        values = Camera.of(batch).values
        if batch.pasted is None:
            return values
        same = (values == Camera.of(replace(batch, intrinsics=batch.pasted_intrinsics)).values).all(1)
        return values.where((same | ~batch.pasted.flatten(1).any(1))[:, None], math.nan)

    def cropped(self, x: Tensor, top: int, left: int, size: Size) -> Tensor:
        return Camera(x).cropped(top, left).values

    def resized(self, x: Tensor, before: Size, after: Size, align_corners: bool) -> Tensor:
        return Camera(x).resized(before, after, align_corners).values

    def mirrored(self, x: Tensor, width: int) -> Tensor:
        return Camera(x).mirrored(width).values

    def example(self, count: int, size: Size) -> Tensor:
        return torch.full((count,), float(size[1]))

    def trials(self, count: int, size: Size) -> Sequence[Tensor]:
        return [torch.linspace(0.6, 1.2, count) * size[1]]

    def from_file(self, x: Tensor, size: Size) -> Tensor:
        return Camera.centred(x, size).values

    def describe(self, count: object, h: object, w: object) -> str:
        return f"float32 {count}, focal length in pixels of {h} x {w}"


register_input(CameraInput("camera"))


def canonical_scale(camera: Camera, canonical: float) -> Float[Tensor, "b 1 1 1"]:
    """Return what turns depth for a canonical focal length into metres of these images (Metric3D, Yin et al. 2023)."""
    return (camera.focal / canonical)[:, None, None, None]


def canonical_scale_of(batch: Batch, canonical: float) -> Float[Tensor, "b 1 _ _"]:
    """Return the same for a batch: where CutMix pasted another image in, by the camera of that."""
    scale = canonical_scale(Camera.of(batch), canonical)
    if batch.pasted is None:
        return scale
    pasted = canonical_scale(Camera.of(replace(batch, intrinsics=batch.pasted_intrinsics)), canonical)
    return torch.where(batch.pasted[:, None], pasted, scale)


def in_head_unit(points: Float[Tensor, "b 1 h w"], camera: Camera, canonical: float | None) -> Float[Tensor, "b 1 h w"]:
    """Return the measured metres, 0 where none, as a metric head counts them; those of unknown cameras are left out.
    `canonical`: focal length for which the head gives metres; None where it knows no lens."""
    if canonical is None:
        return points
    scale = canonical_scale(camera, canonical)
    return torch.where(scale.isfinite(), points / scale, 0.0)
