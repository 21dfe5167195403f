"""Depth measured at some pixels of an image: an input of the network, or what its map is fitted to. h x w pixels."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from torch import Tensor, nn

from densevit.inference.point_fit import PointFit, fit_to_points
from densevit.model_card import ModelCard
from densevit.ops.points import MeasuredPoints, points_as_map, sample
from densevit.structures import Size

Points = MeasuredPoints | Float[ndarray, "..."]
"""`MeasuredPoints`, n 3 or n 4 of u, v, metres and their noise, or h w of metres, 0 where none was measured."""


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
) -> tuple[Float32[ndarray, "h w"], PointFit]:
    """Return the map of a head in metres, fitted to the points. Of a network that they were an input of, the map tells
    more of the points than of its other pixels, so that it is corrected only where even there interpolation is better.
    """
    is_input = points_are_input(model, card, head)
    metres, fit = fit_to_points(values, points, None if is_input else card.outputs[head].kind)
    if is_input and fit.error is None:
        fit = replace(fit, error=float(np.nanmean(np.abs(sample(values, points) / points.depth - 1))))
    return metres, replace(fit, is_input=is_input)
