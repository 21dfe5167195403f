"""A window that slides over an image larger than what a network was trained on, as mmseg has it.

b images, h x w pixels, k numbers per pixel; sizes are (h, w).
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.ops.resize import of_whole_image
from densevit.structures import Box, Size

AT_ONCE = 8  # windows that share a pass through the network


def boxes(size: Size, window: Size, stride: Size) -> list[Box]:
    """Where the window stands, row by row; the last of each row and column is moved back to end with the image.

    A side that is shorter than the window's is seen whole, so all boxes have one size.
    """
    rows, columns = (_spans(side, length, step) for side, length, step in zip(size, window, stride, strict=True))
    return [(*row, *column) for row in rows for column in columns]


def _spans(side: int, length: int, step: int) -> list[tuple[int, int]]:
    count = max(side - length + step - 1, 0) // step + 1
    ends = [min(i * step + length, side) for i in range(count)]
    return [(max(end - length, 0), end) for end in ends]


class Sliding(nn.Module):
    """Answers of a model to each window, averaged where windows overlap: logits, or metres.

    Where one window covers the image, the answer is the model's own, bit for bit.
    """

    def __init__(self, model: nn.Module, window: Size, stride: Size) -> None:
        super().__init__()
        self.model, self.window, self.stride = model, window, stride

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Float[Tensor, "b _ _ _"]]:
        size = (image.shape[-2], image.shape[-1])
        places = boxes(size, self.window, self.stride)
        if len(places) == 1:
            return dict(self.model(image))
        sums: dict[str, Tensor] = {}
        counts = image.new_zeros(size)
        for start in range(0, len(places), AT_ONCE):
            some = places[start : start + AT_ONCE]
            seen = torch.cat([image[..., y0:y1, x0:x1] for y0, y1, x0, x1 in some])
            self._add(sums, counts, self.model(seen), some, image)
        return {name: y / (len(places) if of_whole_image(y) else counts) for name, y in sums.items()}

    def _add(
        self,
        sums: dict[str, Tensor],
        counts: Float[Tensor, "h w"],
        answers: Mapping[str, Tensor],
        places: list[Box],
        image: Float[Tensor, "b 3 h w"],
    ) -> None:
        """Adds the answers of some windows, each those of the whole batch, to the sums."""
        b, h, w = len(image), *counts.shape
        for y0, y1, x0, x1 in places:
            counts[y0:y1, x0:x1] += 1
        for name, answer in answers.items():
            whole = of_whole_image(answer)
            if name not in sums:
                sums[name] = image.new_zeros((b, answer.shape[1], 1 if whole else h, 1 if whole else w))
            for part, (y0, y1, x0, x1) in zip(torch.split(answer.float(), b), places, strict=True):
                target = sums[name] if whole else sums[name][..., y0:y1, x0:x1]
                target += part
