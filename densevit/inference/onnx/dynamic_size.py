"""Graphs for images of any size: the sizes of resizing and padding are computed in the graph. h x w pixels.

torch.export cannot follow the arithmetic of `network_size`, which rounds and compares. So the pipeline is traced with
more inputs, of which only the shapes are used: the grid of patches and, for some modes, the size to which images are
resized before they are padded to it. In the ONNX graph they are replaced by nodes that compute them from the shape of
the image.
"""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.inference.tta import Outputs
from densevit.model_card import ModelCard
from densevit.model_inputs import INPUT_KINDS, NO_INPUTS, ModelInputs, crop_inputs
from densevit.models.conditioning.base import input_names
from densevit.models.dense import DenseModel, is_image_sized
from densevit.ops.resize import KnownSteps, centre, crop
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import Size

if TYPE_CHECKING:
    import onnx_ir

RESIZED, GRID = "resized", "grid"  # names of the further inputs
UNROUNDED = ("shortest", "longest")  # modes that resize to a size that is no multiple of the patch

# Of the traced example: odd, different from each other and from every trained grid, or a coincidence of two sizes
# would be taken for a rule.
EXAMPLE_GRID, EXAMPLE_IMAGE = (11, 17), (197, 331)


class PaddedModel(nn.Module):
    """A model whose input is padded to a given size, and not by the arithmetic of its encoder."""

    def __init__(self, model: nn.Module, size: Size) -> None:
        super().__init__()
        assert isinstance(model, DenseModel)
        self.model, self.size, self.input_names = model, size, model.input_names

    def forward(
        self, image: Float[Tensor, "b 3 h w"], inputs: ModelInputs = NO_INPUTS, *, output_size: Size | None = None
    ) -> Outputs:
        """See `DenseModel.forward`."""
        (h, w), (height, width) = (image.shape[-2], image.shape[-1]), self.size
        top, left = centre((h, w), self.size)
        mean = self.model.encoder.mean  # pixels of this value are zeros once the encoder has normalised them
        x = F.pad(image - mean, (left, width - w - left, top, height - h - top)) + mean
        options: dict[str, Any] = {"output_size": output_size or (h, w)} if self.model.stretch else {}
        outputs: Outputs = self.model(x, crop_inputs(inputs, -top, -left, self.size), **options)
        if self.model.stretch:
            return outputs
        return {
            name: crop(y, (top, left), (h, w)) if is_image_sized(y, self.size) else y for name, y in outputs.items()
        }


def with_known_sizes(
    config: PreprocessConfig, multiple: int, grid: Tensor, resized: Tensor | None
) -> tuple[KnownSteps, Size]:
    """Return the preprocessing with the sizes that are the shapes of `grid` and `resized`, and that of the padded
    input."""
    padded = (multiple * grid.shape[0], multiple * grid.shape[1])
    first = () if resized is None else ((resized.shape[0], resized.shape[1]),)
    last = () if config.mode in ("native", "shortest") else (padded,)
    settings: dict[str, Any] = {field.name: getattr(config, field.name) for field in fields(config)}
    return KnownSteps(**settings, steps=(*first, *last)), padded


def check_any_size(
    model: nn.Module,
    card: ModelCard,
    what: str = "--image-size dynamic",
    advice: str = "Give height and width, as 480,640.",
) -> None:
    """Raise ConfigError, which says what it is for and what fits: sizes of this model's graph cannot be symbolic."""
    encoder = getattr(model, "encoder", None)
    kinds = {type(module).__name__ for module in (encoder, getattr(encoder, "vit", None))}
    config, reason = card.resize, ""
    if unfit := [kind.size_dependent for name in input_names(card) if (kind := INPUT_KINDS[name]).size_dependent]:
        reason = unfit[0]
    elif config.window is not None:
        reason = "the number of its sliding windows depends on the size"
    elif config.mode == "padded":
        reason = "images are padded to one size"
    elif config.margin:
        reason = "the width of the margin that it adds to images depends on the size"
    elif config.interpolation == "area" and config.round_to_uint8:
        reason = "bytes are resized by 'area', which has another rule where a side grows"
    elif kinds & {"SwinEncoder", "Beit"}:
        reason = "the relative positions of Swin and BEiT are tables for one size"
    if reason:
        raise ConfigError(f"{what}: not for this model: {reason}. {advice}")


class NetworkSizes(nn.Module):
    """The sizes in `network_steps` as a graph, from an image.

    In float64 and int64 tensors, so that they are rounded as there.

    Attributes:
        names: of the tensors that stand for these sizes while the pipeline is traced.
    """

    def __init__(self, config: PreprocessConfig, multiple: int, rows: int) -> None:
        """
        Args:
            rows: dimension of the images that is their height.
        """
        super().__init__()
        self.config, self.multiple, self.rows = config, multiple, rows
        self.names = (RESIZED, GRID) if config.mode in UNROUNDED else (GRID,)

    def examples(self) -> tuple[Size, tuple[Tensor, ...]]:
        """Return the size of an image, and the tensors."""
        h, w = (self.multiple * side - odd for side, odd in zip(EXAMPLE_GRID, (1, 3), strict=True))
        size = (h, w) if self.config.mode == "native" else EXAMPLE_IMAGE
        grid = torch.zeros(EXAMPLE_GRID)
        return size, (torch.zeros(h, w), grid) if RESIZED in self.names else (grid,)

    def forward(self, image: Tensor) -> tuple[Int64[Tensor, "2"], ...]:
        """Return the resized size and the grid of patches of images, in the order of `names`."""
        sides = image.shape[self.rows : self.rows + 2]
        size = torch.stack([torch.scalar_tensor(side, dtype=torch.int64) for side in sides])
        mode, bound = self.config.mode, self.config.size
        if mode == "native":
            return (self.grid(size),)
        assert bound is not None
        if mode == "shortest":
            resized = bound[0] * size // size.min()
            return resized, self.grid(resized)
        scales = torch.tensor(bound, dtype=torch.float64) / size
        if mode == "longest":
            fit = (scales.min() * size).round().long().clamp(min=1)
            return fit, ((fit + self.multiple // 2) // self.multiple).clamp(min=1)
        if mode == "minimal":
            first, second = scales.unbind()
            scales = torch.where((1 - first).abs() <= (1 - second).abs(), first, second)
        elif mode == "lower_bound":
            scales = scales.max()
        elif mode == "upper_bound":
            scales = scales.min()
        return (self.rounded(scales * size),)

    def grid(self, size: Int64[Tensor, "2"]) -> Int64[Tensor, "2"]:
        return (size + self.multiple - 1) // self.multiple

    def rounded(self, sides: Float64[Tensor, "2"]) -> Int64[Tensor, "2"]:
        bound = torch.tensor(self.config.size, dtype=torch.float64)
        cells = sides / self.multiple
        nearest = cells.round()
        if self.config.mode == "upper_bound":
            nearest = torch.where(nearest * self.multiple > bound, cells.floor(), nearest)
        if self.config.mode == "lower_bound":
            nearest = torch.where(nearest * self.multiple < bound, cells.ceil(), nearest)
        return nearest.long().clamp(min=1)


def compute_sizes(model: "onnx_ir.Model", sizes: "onnx_ir.Model") -> None:
    """Replace the last inputs of `model`, of which it uses the shapes, by the nodes of `sizes`. `sizes`: takes the
    image, and gives these shapes in the same order."""
    import onnx_ir as ir

    graph, subgraph = model.graph, sizes.graph
    nodes, outputs = list(subgraph), list(subgraph.outputs)
    size_inputs = graph.inputs[-len(outputs) :]
    for value in list(subgraph.initializers.values()):
        del subgraph.initializers[str(value.name)]
        value.name = f"sizes_{value.name}"
        graph.register_initializer(value)
    ir.convenience.replace_all_uses_with(subgraph.inputs[0], graph.inputs[0])
    subgraph.outputs.clear()
    subgraph.remove(nodes)
    for old, size in zip(size_inputs, outputs, strict=True):
        nodes.append(node := ir.node("ConstantOfShape", [size]))
        ir.convenience.replace_all_uses_with(old, node.outputs[0])
        graph.inputs.remove(old)
    for i, node in enumerate(nodes):
        node.name = f"sizes_{i}"
        for j, value in enumerate(node.outputs):
            value.name = f"sizes_{i}_{j}"
    graph.insert_before(graph[0], nodes)
