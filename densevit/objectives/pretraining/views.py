"""Random views of images for self-distillation, on their device. b images in [0, 1], h x w pixels."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from densevit.structures import Size

GREY = (0.299, 0.587, 0.114)
RATIO = (3 / 4, 4 / 3)  # of the sides of a crop, to those of the output
# Rows: luma, and two axes of chroma that a change of hue rotates.
YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


def random_resized_crop(
    image: Float[Tensor, "b 3 h w"], size: Size, scale: tuple[float, float]
) -> Float[Tensor, "b 3 height width"]:
    """Return a crop of each image, mirrored or not, resized with antialias. `scale`: smallest and largest share of the
    image's area."""
    h, w = image.shape[-2:]
    draws = torch.rand(len(image), 5).tolist()
    views = []
    for one, (area, shape, top, left, mirrored) in zip(image, draws, strict=True):
        share = scale[0] + area * (scale[1] - scale[0])
        ratio = math.exp(math.log(RATIO[0]) + shape * math.log(RATIO[1] / RATIO[0])) * size[1] / size[0]
        width = min(w, max(1, round(math.sqrt(share * h * w * ratio))))
        height = min(h, max(1, round(math.sqrt(share * h * w / ratio))))
        y, x = int(top * (h - height + 1)), int(left * (w - width + 1))
        crop = one[None, :, y : y + height, x : x + width]
        crop = F.interpolate(crop, size=size, mode="bicubic", antialias=True, align_corners=False)
        views.append(crop.flip(-1) if mirrored < 0.5 else crop)
    return torch.cat(views).clamp_(0, 1)


def distort(
    image: Float[Tensor, "b 3 h w"], *, blur: float, solarize: float = 0.0, jitter: float = 0.8, grey: float = 0.2
) -> Float[Tensor, "b 3 h w"]:
    """Return the colour jitter, grey, blur and solarization, each with a probability, as in DINOv2.

    Jitter: brightness and contrast +-0.4, saturation +-0.2, hue +-0.1 of a turn (as a rotation of chroma).
    """
    b, device = len(image), image.device

    def random_rows(probability: float) -> Bool[Tensor, "b 1 1 1"]:
        return torch.rand(b, 1, 1, 1, device=device) < probability

    def factor(strength: float) -> Float[Tensor, "b 1 1 1"]:
        return 1 + strength * (2 * torch.rand(b, 1, 1, 1, device=device) - 1)

    x = (image * factor(0.4)).clamp(0, 1)
    x = (to_grey(x).mean((-2, -1), keepdim=True)).lerp(x, factor(0.4)).clamp(0, 1)
    x = to_grey(x).lerp(x, factor(0.2)).clamp(0, 1)
    x = rotate_hue(x, 0.1 * (2 * torch.rand(b, device=device) - 1))
    x = torch.where(random_rows(jitter), x, image)
    x = torch.where(random_rows(grey), to_grey(x), x)
    x = torch.where(random_rows(blur), gaussian_blur(x, 0.1 + 1.9 * torch.rand(b, device=device)), x)
    return torch.where(random_rows(solarize) & (x >= 0.5), 1 - x, x)


def to_grey(x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b 3 h w"]:
    weights = x.new_tensor(GREY)[:, None, None]
    return (x * weights).sum(1, keepdim=True).expand_as(x)


def rotate_hue(x: Float[Tensor, "b 3 h w"], turns: Float[Tensor, " b"]) -> Float[Tensor, "b 3 h w"]:
    """Rotate the chroma; brightness and grey stay as they are."""
    to_yiq = x.new_tensor(YIQ)
    cos, sin = torch.cos(2 * math.pi * turns), torch.sin(2 * math.pi * turns)
    rotation = torch.eye(3, device=x.device).repeat(len(x), 1, 1)
    rotation[:, 1, 1], rotation[:, 1, 2], rotation[:, 2, 1], rotation[:, 2, 2] = cos, -sin, sin, cos
    matrix = torch.linalg.inv(to_yiq) @ rotation @ to_yiq
    return torch.einsum("bij,bjhw->bihw", matrix, x).clamp(0, 1)


def gaussian_blur(x: Float[Tensor, "b 3 h w"], sigma: Float[Tensor, " b"]) -> Float[Tensor, "b 3 h w"]:
    """Blur by a separable kernel of 9 pixels as in DINOv2."""
    b, colours, h, w = x.shape
    offsets = torch.arange(-4, 5, device=x.device)
    kernel = torch.exp(-0.5 * (offsets / sigma[:, None]) ** 2)
    kernel = (kernel / kernel.sum(1, keepdim=True)).repeat_interleave(colours, 0)
    padded = F.pad(x, (4, 4, 4, 4), mode="reflect" if min(h, w) > 4 else "replicate")
    padded = padded.reshape(1, b * colours, h + 8, w + 8)
    rows = F.conv2d(padded, kernel[:, None, None, :], groups=b * colours)
    return F.conv2d(rows, kernel[:, None, :, None], groups=b * colours).reshape(b, colours, h, w)


def block_masks(
    b: int, grid: Size, *, probability: float, ratio: tuple[float, float], device: torch.device
) -> Bool[Tensor, "b h w"]:
    """Return the rectangles of masked cells (BEiT, Bao et al. 2022; as in DINOv2): none in some images, a share in the
    others. `probability`: of an image to be masked; `ratio`: smallest and largest share of masked cells, evenly spread
    over the masked images."""
    h, w = grid
    masks = torch.zeros(b, h, w, dtype=torch.bool)
    count = round(b * probability)
    shares = torch.linspace(*ratio, count + 1)[1:].tolist() if count else []
    for index, share in zip(torch.randperm(b)[:count].tolist(), shares, strict=True):
        required = round(share * h * w)
        for _ in range(50):
            left = required - int(masks[index].sum())
            if left <= 0:
                break
            area, shape, top, side = torch.rand(4).tolist()
            cells = min(4, left) + area * max(0, left - 4)
            aspect = math.exp((2 * shape - 1) * math.log(1 / 0.3))
            height = min(h, max(1, round(math.sqrt(cells * aspect))))
            width = min(w, max(1, round(math.sqrt(cells / aspect))))
            if height * width <= 1.2 * left + 1:
                y, x = int(top * (h - height + 1)), int(side * (w - width + 1))
                masks[index, y : y + height, x : x + width] = True
    return masks.to(device)
