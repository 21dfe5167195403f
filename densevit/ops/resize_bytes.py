"""Resizing of 8-bit images by the very code that published pipelines call: rounding to bytes is part of the result.

OpenCV and PIL resize bytes with fixed-point numbers. Floats that are rounded afterwards differ from them in the last
bit here and there, and a network sees that bit.
"""

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from densevit.ops.resize import Interpolation, Size, shrinking_or_growing
from densevit.ops.resize_traced import resize_bytes_traced

FLAGS = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
}


def resize_bytes(
    x: Float[Tensor, "b c _ _"],
    size: Size,
    interpolation: Interpolation = "bicubic",
    *,
    align_corners: bool = False,
    antialias: bool = False,
) -> Float[Tensor, "b c h w"]:
    """Resizes images in [0, 1] as bytes, on the CPU, whatever device they are on.

    Args:
        interpolation: OpenCV's; `adaptive` is bicubic where a side grows, else area.
        align_corners: must be false, as it is in OpenCV and PIL.
        antialias: as PIL and torchvision do, instead of OpenCV.
    """
    assert not align_corners, "no pipeline resizes bytes with corners aligned"
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    if interpolation == "adaptive":
        interpolation = shrinking_or_growing(x, size)
    images = x.mul(255).round().clamp(0, 255)
    if torch.compiler.is_exporting():
        return resize_bytes_traced(images, size, interpolation, antialias).div(255)
    images = images.to("cpu", torch.uint8)
    if antialias:
        resized = F.interpolate(images, size=size, mode=interpolation, align_corners=False, antialias=True)
    else:
        h, w = size
        rows = [
            cv2.resize(image.permute(1, 2, 0).numpy(), (w, h), interpolation=FLAGS[interpolation]) for image in images
        ]
        resized = torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2)
    return resized.to(x.device, x.dtype).div_(255)
