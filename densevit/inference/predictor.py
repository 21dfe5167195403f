"""Predictor: pictures in, numpy maps out. Device, precision and gradient mode are chosen here and nowhere deeper."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from typing import Literal, overload

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor, nn

from densevit.errors import DataError
from densevit.inference.forward import Box, forward
from densevit.inference.picture import Picture, Rgb, are_several, as_rgb
from densevit.ops.device import choose_device
from densevit.ops.precision import Precision, autocast, resolve
from densevit.structures import ModelCard

Map = Float32[np.ndarray, "..."]
"""h w, or k h w from a head with k > 1 channels: metres from a metric head, no unit from affine and disparity heads.
k logits from a head that classifies the image."""


class Predictor:
    """A model with what it takes to use it.

    >>> predictor = densevit.load("runs/rooms/best")    # doctest: +SKIP
    >>> depth = predictor("photo.jpg")                  # doctest: +SKIP

    Attributes:
        card: what the weights mean.
        device: where the model runs.
        precision: "fp32", "bf16" or "fp16".
    """

    def __init__(
        self,
        model: nn.Module,
        card: ModelCard,
        *,
        device: str | torch.device = "auto",
        precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto",
        flip: bool = False,
        batch_size: int = 1,
        window: Callable[[int, int], Box | None] | None = None,
    ) -> None:
        """Moves the model to the device and switches it to evaluation.

        Args:
            device: auto is CUDA, else MPS, else the CPU.
            precision: auto is bf16 where the device computes in it, else fp32; maps are float32 always.
            flip: average with the mirrored image's mirrored prediction; twice the time.
            batch_size: neighbours of one size go through the model together, so many at most.
            window: height and width of a picture -> the part that the model sees, where no `box` is given.
        """
        if batch_size < 1:
            raise DataError(f"batch_size is {batch_size}; it is 1 or more.")
        self.device = choose_device(device)
        self.precision: Precision = resolve(precision, self.device)
        self.model = model.eval().to(self.device)
        self.card = card
        self.flip = flip
        self.batch_size = batch_size
        self.window = window

    @overload  # a path in a `str` is an Iterable[Picture], too, but no typo: it is one picture
    def __call__(self, image: Picture, *, head: str | None = None, box: Box | None = None) -> Map: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, image: Iterable[Picture], *, head: str | None = None, box: Box | None = None) -> list[Map]: ...
    def __call__(self, image: object, *, head: str | None = None, box: Box | None = None) -> Map | list[Map]:
        """The map of one picture, or a list of maps for several; see `predict`."""
        if are_several(image):
            return self.predict(image, head=head, box=box)
        return self.predict([as_rgb(image)], head=head, box=box)[0]

    def predict(self, images: Iterable[Picture], *, head: str | None = None, box: Box | None = None) -> list[Map]:
        """The maps of several pictures, in their order, each at the size of its picture.

        Args:
            images: paths (EXIF orientation respected), uint8 arrays h w 3 in RGB, PIL images.
            head: which head, where the model has several.
            box: the model sees only this window of each picture; outside it maps are NaN.

        Raises:
            DataError: a picture cannot be read or is none, or no such head.
        """
        name = self.head(head)
        return [answer[name] for answer in self.stream(map(as_rgb, images), box=box)]

    def predict_all(self, image: Picture, *, box: Box | None = None) -> dict[str, Map]:
        """The maps of every head for one picture."""
        return next(self.stream([as_rgb(image)], box=box))

    def stream(self, images: Iterable[Rgb], *, box: Box | None = None) -> Iterator[dict[str, Map]]:
        """Answers one by one, holding no more than a batch: neighbours of one size share it."""
        for _, neighbours in groupby(images, lambda image: image.shape):
            while batch := list(islice(neighbours, self.batch_size)):
                answers = self.run(np.stack(batch), box=box)
                yield from ({name: squeezed(values[i]) for name, values in answers.items()} for i in range(len(batch)))

    @torch.inference_mode()
    def run(self, images: UInt8[np.ndarray, "b h w 3"], *, box: Box | None = None) -> dict[str, Map]:
        """One pass through the model: b k h w per head."""
        if box is None and self.window is not None:
            box = self.window(*images.shape[1:3])
        with autocast(self.precision, self.device):
            answers = forward(
                self.model, self.to_unit(images), self.card.resize, self.card.multiple, box=box, flip=self.flip
            )
        return {name: values.float().cpu().numpy() for name, values in answers.items()}

    def head(self, name: str | None = None) -> str:
        """The head that is meant: the only one, `depth` among several, or the one that is named."""
        known = list(self.card.outputs)
        name = name or (known[0] if len(known) == 1 else "depth")
        if name not in known:
            raise DataError(f"this model has no head '{name}'. It has: {', '.join(known)}.")
        return name

    def to_unit(self, images: UInt8[np.ndarray, "b h w 3"]) -> Float[Tensor, "b 3 h w"]:
        # Bytes cross to the device, not floats; the permuted view is channels-last, which convolutions like.
        return torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).float().div_(255)


def squeezed(values: Float32[np.ndarray, "k h w"]) -> Map:
    # np.array copies: a view would keep its whole batch alive.
    if len(values) == 1:
        return np.array(values[0])
    return np.array(values[:, 0, 0] if values.shape[1:] == (1, 1) else values)
