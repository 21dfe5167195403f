"""One image, one answer at its own size: the same few lines for prediction, validation and evaluation.

b images, h x w pixels; images in [0, 1]. Device, precision and gradient mode are the caller's.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from operator import index
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from densevit.errors import DataError
from densevit.inference.camera import Camera
from densevit.inference.sliding_window import Sliding
from densevit.inference.tta import Outputs, merge_tta, scaled
from densevit.model_card import PreprocessConfig
from densevit.ops.resize import crop, network_size, network_steps, of_whole_image, resize
from densevit.ops.resize_uint8 import resize_bytes
from densevit.structures import Box, Size

# A 1 x 5000 image under `lower_bound 518` asks for 1.3 gigapixels; 33 megapixels are past every real use.
MAX_ENLARGED = 2**25


def forward(
    model: nn.Module,
    image: Float[Tensor, "b 3 h w"],
    rule: PreprocessConfig,
    multiple: int,
    *,
    box: Box | None = None,
    flip: bool = False,
    scales: Sequence[float] = (1.0,),
    logits: Collection[str] = (),
    camera: Camera | None = None,
) -> Outputs:
    """Resizes by the rule, asks the model, and resizes its answers back, in fp32.

    Args:
        multiple: the network's sides are multiples of this.
        box: the model sees only this window; outside it every answer is NaN.
        flip: average with the mirrored answer to the mirrored image.
        scales: average over the image seen so many times larger.
        logits: heads that give logits of pixels, which are averaged as probabilities.
        camera: turns answers into metres that depend on it.

    Returns:
        one b k h w tensor per head, at the size of `image`; b k 1 1 from a head that answers for the whole image.

    Raises:
        DataError: the box does not fit, or the rule would blow a thin image up beyond reason.
    """
    h, w = image.shape[-2:]
    how: dict[str, Any] = {"flip": flip, "scales": scales, "logits": logits, "camera": camera}
    if box is not None:
        inside = forward(model, window(image, box), rule, multiple, **how)
        return {name: y if of_whole_image(y) else paste(y, box, (h, w)) for name, y in inside.items()}
    if rule.margin:
        wider, offset = reflect_pad(image, rule.margin)
        inside = forward(model, wider, replace(rule, margin=0.0), multiple, **how)
        return {name: y if of_whole_image(y) else crop(y, offset, (h, w)) for name, y in inside.items()}
    flip = flip or rule.flip
    network = model if rule.window is None else Sliding(model, rule.window, rule.stride or rule.window)
    answers = (
        answer(network, image, scaled(rule, scale, (h, w)), multiple, mirrored, camera)
        for scale in scales
        for mirrored in (False, True)[: 1 + flip]
    )
    return merge_tta(answers, logits) if flip or len(scales) > 1 else next(answers)


def answer(
    model: nn.Module,
    image: Float[Tensor, "b 3 h w"],
    rule: PreprocessConfig,
    multiple: int,
    mirrored: bool,
    camera: Camera | None = None,
) -> Outputs:
    """One look at the image, mirrored there and back where asked."""
    seen = preprocess(image, rule, multiple)
    size = (image.shape[-2], image.shape[-1])
    view = seen.flip(-1) if mirrored else seen
    given = model(view, size) if rule.single_resize and rule.window is None else model(view)
    if camera is not None:
        given = camera.in_metres(given, size, (view.shape[-2], view.shape[-1]))
    return {name: resize_to_input(size, (y.flip(-1) if mirrored else y).float(), rule) for name, y in given.items()}


def preprocess(image: Float[Tensor, "b 3 h w"], rule: PreprocessConfig, multiple: int) -> Float[Tensor, "b 3 _ _"]:
    """The image as the network sees it.

    Raises:
        DataError: the rule would blow a thin image up beyond reason.
    """
    size = (image.shape[-2], image.shape[-1])
    sensible_size(size, rule, multiple)
    how = resize_bytes if rule.round_to_uint8 else resize
    for step in network_steps(size, rule, multiple):
        image = how(image, step, rule.interpolation, align_corners=rule.align_corners, antialias=rule.antialias)
    return image


def reflect_pad(image: Float[Tensor, "b c h w"], margin: float) -> tuple[Float[Tensor, "b c _ _"], Size]:
    """The image with reflections around it, and where it begins within (ZoeDepth, against seams at the border)."""
    h, w = image.shape[-2:]
    top, left = (min(int((side / 2) ** 0.5 * margin), side - 1) for side in (h, w))
    return F.pad(image, (left, left, top, top), mode="reflect"), (top, left)


def resize_to_input(size: Size, answer: Float[Tensor, "b k _ _"], rule: PreprocessConfig) -> Float[Tensor, "b k _ _"]:
    """The answer at the image's size; one for the whole image stays what it is."""
    if of_whole_image(answer):
        return answer
    return resize(answer, size, rule.output_interpolation, align_corners=rule.output_align_corners)


def sensible_size(size: Size, rule: PreprocessConfig, multiple: int) -> Size:
    (h, w), (height, width) = size, network_size(size, rule, multiple)
    if height * width > max(MAX_ENLARGED, h * w):
        raise DataError(
            f"a {h}x{w} image would meet the network at {height}x{width} under its resize rule '{rule.mode}'; "
            "that shape is too thin. Crop or pad the image first."
        )
    return height, width


def window(image: Float[Tensor, "b c h w"], box: Box) -> Float[Tensor, "b c _ _"]:
    y0, y1, x0, x1 = checked_box(box, (image.shape[-2], image.shape[-1]))
    return image[..., y0:y1, x0:x1]


def checked_box(box: Any, size: Size) -> Box:
    """
    Raises:
        DataError: it is none, or does not lie inside an image of `size`.
    """
    try:
        y0, y1, x0, x1 = map(index, box)
    except (TypeError, ValueError):
        raise DataError(f"the window {box!r} is none; it is four whole numbers, y0, y1, x0, x1.") from None
    h, w = size
    if not (0 <= y0 < y1 <= h and 0 <= x0 < x1 <= w):
        raise DataError(f"the window {y0}:{y1}, {x0}:{x1} does not lie inside an image of {h}x{w}.")
    return y0, y1, x0, x1


def paste(answer: Float[Tensor, "b k _ _"], box: Box, size: Size) -> Float[Tensor, "b k h w"]:
    """The inverse of `window`, NaN around."""
    (y0, y1, x0, x1), (h, w) = box, size
    return F.pad(answer, (x0, w - x1, y0, h - y1), value=float("nan"))
