"""Depth measured at some pixels of an image: an input of the network, or what its map is fitted to. h x w pixels."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from torch import Tensor, nn

from densevit.model_card import ModelCard
from densevit.ops.anchors import Anchored, Anchors, anchors_as_map, fit_to_anchors, given_to_model
from densevit.structures import Size

Points = Anchors | Float[ndarray, "..."]
"""Depth measured at some points of an image: `Anchors`, n 3 of u, v and metres, or h w of metres, 0 where none."""


def points_are_input(model: nn.Module, card: ModelCard, head: str) -> bool:
    """Return whether measured points are an input of the network that this head's metres come from."""
    if "points" not in getattr(model, "input_names", ()):
        return False
    return card.outputs[head].kind == "metric" and head not in card.model.get("decoders", {})


def as_input(points: Sequence[Anchors], size: Size) -> dict[str, Float[Tensor, "b 1 h w"]]:
    """Return the points of images of one size as an input of the network."""
    maps = np.stack([anchors_as_map(one, size) for one in points])
    return {"points": torch.from_numpy(maps)[:, None]}


def to_metres(
    values: Float32[ndarray, "h w"], points: Anchors, model: nn.Module, card: ModelCard, head: str
) -> Anchored:
    """Return the map of a head in metres: fitted to the points, unless they were an input of the network."""
    if points_are_input(model, card, head):
        return given_to_model(values, points)
    return fit_to_anchors(values, points, card.outputs[head].kind)
