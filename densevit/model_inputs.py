"""What a model takes beside images: named tensors, each of a kind that follows what happens to the images.

b images, h x w pixels; sizes are (h, w).
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from densevit.errors import ConfigError
from densevit.model_card import HeadSpec
from densevit.structures import Batch, Size

ModelInputs = Mapping[str, Tensor]
"""Tensors by the name of their kind in `INPUT_KINDS`, for the images of a batch; what is not known is left out."""

NO_INPUTS: ModelInputs = MappingProxyType({})


class InputKind:
    """How an input follows its images; this one is for numbers of the whole image that no such change concerns.

    Attributes:
        name: of the input.
        exported: its name in exported files; empty where these go without.
        in_tiles: whether tiles of an image can be predicted with it.
        size_dependent: why a graph for images of any size cannot take it; empty where it can.
    """

    exported: str = ""
    in_tiles: bool = True
    size_dependent: str = ""

    def __init__(self, name: str) -> None:
        self.name = name

    def of_batch(self, batch: Batch) -> Tensor | None:
        """Return the input in training; None where the batch has none."""
        return batch.inputs.get(self.name)

    def for_validation(self, batch: Batch) -> Batch:
        """Return the batch with the input that validation during training gives the model, the same one each time, and
        without the ground truth that this tells."""
        return batch

    def cropped(self, x: Tensor, top: int, left: int, size: Size) -> Tensor:
        """Return the input of a window of the images that begins at this pixel; negative where they were padded."""
        return x

    def resized(self, x: Tensor, before: Size, after: Size, align_corners: bool) -> Tensor:
        """Return the input of the whole images resized, borders to borders, or with `align_corners`."""
        return x

    def mirrored(self, x: Tensor, width: int) -> Tensor:
        """Return the input of the images mirrored left to right."""
        return x

    def uncalibrated(self, x: Tensor, heads: Mapping[str, HeadSpec]) -> Tensor:
        """Return the input as the model knows it, before the calibrations of its heads."""
        return x

    def example(self, count: int, size: Size) -> Tensor:
        """Return an input of exported files, for a number of images of this size."""
        raise NotImplementedError

    def trials(self, count: int, size: Size) -> Sequence[Tensor]:
        """Return inputs that an exported file is checked with."""
        return [self.example(count, size)]

    def from_file(self, x: Tensor, size: Size) -> Tensor:
        """Return the model's input, given that of an exported file."""
        return x

    def to_file(self, x: Tensor) -> Tensor:
        """Return the input of an exported file, given the model's."""
        return x

    def describe(self, count: object, h: object, w: object) -> str:
        """Return what an exported file takes, in words."""
        raise NotImplementedError


INPUT_KINDS: dict[str, InputKind] = {}


def register_input(kind: InputKind) -> InputKind:
    """Add a kind of input to those that models can take."""
    return INPUT_KINDS.setdefault(kind.name, kind)


def inputs_of(batch: Batch, names: Iterable[str]) -> dict[str, Tensor]:
    """Return the inputs of these names that a batch has."""
    inputs = {name: INPUT_KINDS[name].of_batch(batch) for name in names}
    return {name: x for name, x in inputs.items() if x is not None}


def check_tileable_inputs(inputs: Iterable[str]) -> None:
    """Raise ConfigError: one of these inputs of a model is not for tiles."""
    if whole := [name for name in inputs if not INPUT_KINDS[name].in_tiles]:
        raise ConfigError(f"tiling: this model takes {', '.join(whole)} of whole images only; leave tiling out.")


def crop_inputs(inputs: ModelInputs, top: int, left: int, size: Size) -> dict[str, Tensor]:
    """Return the inputs of a window of the images; see `InputKind.cropped`."""
    return {name: INPUT_KINDS[name].cropped(x, top, left, size) for name, x in inputs.items()}


def resize_inputs(inputs: ModelInputs, before: Size, after: Size, align_corners: bool = False) -> dict[str, Tensor]:
    """Return the inputs of the images resized."""
    return {name: INPUT_KINDS[name].resized(x, before, after, align_corners) for name, x in inputs.items()}


def uncalibrate_inputs(inputs: ModelInputs, heads: Mapping[str, HeadSpec]) -> dict[str, Tensor]:
    """Return the inputs as the model knows them; see `InputKind.uncalibrated`."""
    return {name: INPUT_KINDS[name].uncalibrated(x, heads) for name, x in inputs.items()}


def mirror_inputs(inputs: ModelInputs, width: int) -> dict[str, Tensor]:
    """Return the inputs of the images mirrored left to right."""
    return {name: INPUT_KINDS[name].mirrored(x, width) for name, x in inputs.items()}


def take_inputs(inputs: ModelInputs, index: int) -> dict[str, Tensor]:
    """Return the inputs of one image of a batch, as a batch of its own."""
    return {name: x[index : index + 1] for name, x in inputs.items()}


def join_inputs(batches: Sequence[ModelInputs]) -> dict[str, Tensor]:
    """Return the inputs of several batches as those of one."""
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
