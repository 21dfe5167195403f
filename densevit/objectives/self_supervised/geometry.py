"""Views of one scene: motions of the camera, projection of pixels into another view, and occlusion. n images or pairs.

The centre of the first pixel is (0, 0); cameras look right, down, forward. A motion maps points in the axes of the
target's camera to those of the source's.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from densevit.utils.device import gpu_products

NEAREST = 1e-3  # depth of points behind the camera or in it, so that their pixels stay finite

Image = Float[Tensor, "n c h w"]
Plane = Float[Tensor, "n 1 h w"]
Pixels = Float[Tensor, "pairs h w 2"]
Motion = Float[Tensor, "pairs 4 4"]


@dataclass(frozen=True)
class FramePairs:
    """Neighbouring frames of clips, each as target with the other as source: the later ones as sources, then the
    earlier ones in the same order.

    Attributes:
        targets, sources: rows of a batch.
    """

    targets: Int64[Tensor, " pairs"]
    sources: Int64[Tensor, " pairs"]

    @classmethod
    def of(cls, count: int, clip_length: int, device: torch.device) -> "FramePairs":
        frames = torch.arange(count, device=device).view(-1, clip_length)
        first, second = frames[:, :-1].flatten(), frames[:, 1:].flatten()
        return cls(torch.cat([first, second]), torch.cat([second, first]))

    def reversed(self, x: Tensor) -> Tensor:
        """Return, for each pair, the value of the pair in the other direction."""
        return torch.cat(x.chunk(2)[::-1])

    def by_target(self, x: Float[Tensor, "pairs h w"], count: int, fill: float) -> Float[Tensor, "n 2 h w"]:
        """Return the values of each target, of its later and of its earlier source; `fill` where it has none."""
        slots = torch.arange(2, device=x.device).repeat_interleave(len(x) // 2)
        return x.new_full((count, 2, *x.shape[1:]), fill).index_put((self.targets, slots), x)


# Mixed precision trains in TF32, whose numbers beside 640 are half a pixel apart.
exactly = gpu_products(tf32=False)


@exactly
def inverse(motion: Motion) -> Motion:
    """Return the inverse of rigid motions."""
    turned = motion[:, :3, :3].mT
    return rigid(turned, -(turned @ motion[:, :3, 3:])[..., 0])


def rigid(rotation: Float[Tensor, "n 3 3"], translation: Float[Tensor, "n 3"]) -> Motion:
    last = torch.eye(4, dtype=rotation.dtype, device=rotation.device)[3:].expand(len(rotation), 1, 4)
    return torch.cat([torch.cat([rotation, translation[..., None]], -1), last], 1)


def scaled(intrinsics: Float[Tensor, "n 3 3"], factor: float) -> Float[Tensor, "n 3 3"]:
    """Return the cameras of images resized by a factor, borders to borders."""
    zoomed = intrinsics.clone()
    zoomed[:, :2] *= factor
    zoomed[:, :2, 2] += (factor - 1) / 2
    return zoomed


def grid(like: Plane) -> tuple[Float[Tensor, " w"], Float[Tensor, "h 1"]]:
    """Return column and row of each pixel."""
    h, w = like.shape[-2:]
    return torch.arange(w, device=like.device).to(like), torch.arange(h, device=like.device).to(like)[:, None]


@exactly
def project(
    depth: Plane, motion: Motion, camera: Float[Tensor, "n 3 3"], source_camera: Float[Tensor, "n 3 3"]
) -> tuple[Pixels, Plane]:
    """Return where each pixel of the targets lies in the sources, and its depth there."""
    u, v = grid(depth)
    fx, skew, cx, fy, cy = (camera[:, i, j, None, None] for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2)))
    y = (v - cy) / fy
    x = (u - cx - skew * y) / fx
    points = depth * torch.stack([x, y.expand_as(x), torch.ones_like(x)], 1)
    moved = (motion[:, :3, :3] @ points.flatten(2) + motion[:, :3, 3:]).view_as(points)
    z = moved[:, 2:]
    pixels = (source_camera @ (moved / z.clamp_min(NEAREST)).flatten(2)).view_as(points)[:, :2]
    return pixels.permute(0, 2, 3, 1), z


def sample(image: Image, pixels: Pixels) -> Image:
    """Return an image at these pixels, bilinear; beyond the border that of the border."""
    h, w = image.shape[-2:]  # of align_corners=False: -1 is the left border of the first pixel
    places = torch.stack([(2 * pixels[..., 0] + 1) / w - 1, (2 * pixels[..., 1] + 1) / h - 1], -1)
    found: Tensor = F.grid_sample(image, places, mode="bilinear", padding_mode="border", align_corners=False)
    return found


def inside(pixels: Pixels, z: Plane) -> Bool[Tensor, "n 1 h w"]:
    """Return where a pixel lies in front of the source's camera and between the centres of its outer pixels."""
    h, w = pixels.shape[1:3]
    u, v = pixels.unbind(-1)
    return ((u >= 0) & (u <= w - 1) & (v >= 0) & (v <= h - 1))[:, None] & (z > NEAREST)


def returns(pixels: Pixels, back: Pixels, *, slack: float = 1.0) -> Bool[Tensor, "n 1 h w"]:
    """Return where a pixel projected into the source, and from there back, comes to its place: it is not occluded.

    The distance is under `slack` pixels and 5% of both ways (Sundaram et al. 2010).

    Args:
        pixels, back: from target to source, and from source to target.
    """
    u, v = torch.meshgrid(*(torch.arange(side).to(pixels) for side in pixels.shape[2:0:-1]), indexing="xy")
    here = torch.stack([u, v], -1)
    returned = sample(back.permute(0, 3, 1, 2), pixels).permute(0, 2, 3, 1)
    ways = (pixels - here).norm(dim=-1) + (returned - pixels).norm(dim=-1)
    back_home: Tensor = (returned - here).norm(dim=-1) < slack + 0.05 * ways
    return back_home[:, None]
