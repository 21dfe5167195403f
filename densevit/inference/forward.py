"""One image, one answer at its own size: the same few lines for prediction, validation and evaluation.

b images, h x w pixels; images in [0, 1]. Device, precision and gradient mode are the caller's.
"""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from densevit.errors import DataError
from densevit.ops.resize import Size, network_size, of_whole_image, resize
from densevit.structures import ResizeRule

Box = tuple[int, int, int, int]
"""A window in pixels: y0, y1, x0, x1; y1 and x1 are the first rows and columns outside."""

Outputs = dict[str, Float[Tensor, "b _ _ _"]]

# A 1 x 5000 image under `lower_bound 518` asks for 1.3 gigapixels; 33 megapixels are past every real use.
MAX_ENLARGED = 2**25


def forward(
    model: nn.Module,
    image: Float[Tensor, "b 3 h w"],
    rule: ResizeRule,
    multiple: int,
    *,
    box: Box | None = None,
    flip: bool = False,
) -> Outputs:
    """Resizes by the rule, asks the model, and resizes its answers back (bilinear), in fp32.

    Args:
        multiple: the network's sides are multiples of this.
        box: the model sees only this window; outside it every answer is NaN.
        flip: average with the mirrored answer to the mirrored image.

    Returns:
        one b k h w tensor per head, at the size of `image`; b k 1 1 from a head that answers for the whole image.

    Raises:
        DataError: the box does not fit, or the rule would blow a thin image up beyond reason.
    """
    h, w = image.shape[-2:]
    if box is not None:
        inside = forward(model, window(image, box), rule, multiple, flip=flip)
        return {name: y if of_whole_image(y) else paste(y, box, (h, w)) for name, y in inside.items()}
    seen = resize(image, sensible_size((h, w), rule, multiple), rule.interpolation)
    answers = mirrored_mean(model, seen) if flip else model(seen)
    answers = {name: answer.float() for name, answer in answers.items()}
    return {name: y if of_whole_image(y) else resize(y, (h, w), "bilinear") for name, y in answers.items()}


def mirrored_mean(model: nn.Module, image: Float[Tensor, "b 3 h w"]) -> Outputs:
    plain, mirrored = model(image), model(image.flip(-1))
    return {name: (plain[name].float() + mirrored[name].float().flip(-1)) / 2 for name in plain}


def sensible_size(size: Size, rule: ResizeRule, multiple: int) -> Size:
    (h, w), (height, width) = size, network_size(size, rule, multiple)
    if height * width > max(MAX_ENLARGED, h * w):
        raise DataError(
            f"a {h}x{w} image would meet the network at {height}x{width} under its resize rule '{rule.mode}'; "
            "that shape is too thin. Crop or pad the image first."
        )
    return height, width


def window(image: Float[Tensor, "b c h w"], box: Box) -> Float[Tensor, "b c _ _"]:
    (y0, y1, x0, x1), (h, w) = box, image.shape[-2:]
    if not (0 <= y0 < y1 <= h and 0 <= x0 < x1 <= w):
        raise DataError(f"the window {y0}:{y1}, {x0}:{x1} does not lie inside an image of {h}x{w}.")
    return image[..., y0:y1, x0:x1]


def paste(answer: Float[Tensor, "b k _ _"], box: Box, size: Size) -> Float[Tensor, "b k h w"]:
    """The inverse of `window`, NaN around."""
    (y0, y1, x0, x1), (h, w) = box, size
    return F.pad(answer, (x0, w - x1, y0, h - y1), value=float("nan"))
