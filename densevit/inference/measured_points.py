"""Depth measured at some pixels of an image: an input of the network, or what its map is fitted to. h x w pixels."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from torch import Tensor, nn

from densevit.model_card import ModelCard
from densevit.ops.measured_points import FittedMap, MeasuredPoints, fit_to_points, given_to_model, points_as_map
from densevit.structures import Size

Points = MeasuredPoints | Float[ndarray, "..."]
"""`MeasuredPoints`, n 3 of u, v and metres, or h w of metres, 0 where none was measured."""


def points_are_input(model: nn.Module, card: ModelCard, *heads: str) -> bool:
    """Return whether measured points are an input of the network that the metres of one of these heads come from."""
    if "points" not in getattr(model, "input_names", ()):
        return False
    return any(card.outputs[head].kind == "metric" and head not in card.model.get("decoders", {}) for head in heads)


def as_input(points: Sequence[MeasuredPoints], size: Size) -> dict[str, Float[Tensor, "b 1 h w"]]:
    """Return the points of images of one size as an input of the network."""
    maps = np.stack([points_as_map(one, size) for one in points])
    return {"points": torch.from_numpy(maps)[:, None]}


def to_metres(
    values: Float32[ndarray, "h w"], points: MeasuredPoints, model: nn.Module, card: ModelCard, head: str
) -> FittedMap:
    """Return the map of a head in metres: fitted to the points, unless they were an input of the network."""
    if points_are_input(model, card, head):
        return given_to_model(values, points)
    return fit_to_points(values, points, card.outputs[head].kind)
