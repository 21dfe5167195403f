"""One image to predict with what is known of it: its camera, and depth measured at some pixels. h x w pixels."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from numpy import ndarray
from torch import nn

from densevit.data.io.readers import Rgb
from densevit.inference.camera import CameraNumbers, focal_numbers
from densevit.inference.point_fit import PointFit, fit_to_points
from densevit.model_card import ModelCard
from densevit.model_inputs import ModelInputs, join_inputs
from densevit.ops.points import MeasuredPoints, as_points, points_as_map, sample
from densevit.ops.segments import segments_of
from densevit.reporting.figures import PredictedArray

Map = Float32[np.ndarray, "..."]
"""h w, or k h w from a head with k > 1 channels; k from a head for whole images. The head's output kind says what the
numbers are (output_kinds.py)."""

Maps = dict[str, Map]
"""By head."""


Points = MeasuredPoints | Float[ndarray, "..."]
"""`MeasuredPoints`, n 3 or n 4 of u, v, metres and their noise, or h w of metres, 0 where none was measured."""


def points_are_input(model: nn.Module, card: ModelCard, *heads: str) -> bool:
    """Return whether measured points are an input of the network that the metres of one of these heads come from."""
    if "points" not in getattr(model, "input_names", ()):
        return False
    return any(card.outputs[head].kind == "metric" and head not in card.model.get("decoders", {}) for head in heads)


@dataclass(frozen=True, eq=False)
class ImageInput:
    """One image to predict, with what is known of it.

    Attributes:
        camera: its focal length in pixels: one number, along x and y, or fx, fy, cx, cy; None where it is not known.
        points: depth measured at some of its pixels: `MeasuredPoints`, an array n 3 of u, v (the centre of the first
            pixel is 0, 0) and metres, n 4 with their standard deviation, or a map h w of metres, 0 where none. A model
            that was trained with them takes them as an input; the depth of another is fitted to them.
        inputs: what else the model takes beside images, as a batch of one.
    """

    image: Rgb
    camera: CameraNumbers | None = None
    points: Points | None = None
    inputs: ModelInputs = field(default_factory=dict)

    def prepare(self, model: nn.Module, card: ModelCard) -> "ImageInput":
        """Return it with its points among the inputs, where the model takes them.

        Raises:
            DataError: points that are no numbers, or lie outside of the image.
        """
        if self.points is None:
            return self
        size = (self.image.shape[0], self.image.shape[1])
        points = as_points(self.points, size)
        if not points_are_input(model, card, *card.outputs):
            return replace(self, points=points)
        as_input = torch.from_numpy(points_as_map(points, size))[None, None]
        return replace(self, points=points, inputs={**self.inputs, "points": as_input})

    def in_metres(
        self, head: str, values: Float32[np.ndarray, "..."], model: nn.Module, card: ModelCard
    ) -> tuple[Float32[np.ndarray, "h w"], PointFit] | None:
        """Return the depth of a head in metres, fitted to the points; None where none are known, or the head gives no
        depth. Of a network that they were an input of, the map tells more of the points than of its other pixels, so
        that it is corrected only where even there interpolation is better.

        Raises:
            DataError: points that do not fit the map.
        """
        if self.points is None or not card.outputs[head].output_kind.is_depth:
            return None
        points = as_points(self.points, (self.image.shape[0], self.image.shape[1]))
        is_input = points_are_input(model, card, head)
        metres, fit = fit_to_points(values, points, None if is_input else card.outputs[head].kind)
        if is_input and fit.error is None:
            fit = replace(fit, error=float(np.nanmean(np.abs(sample(values, points) / points.depth - 1))))
        return metres, replace(fit, is_input=is_input)

    def finish(
        self, head: str, outputs: Mapping[str, Float32[np.ndarray, "..."]], model: nn.Module, card: ModelCard
    ) -> Any:
        """Return the prediction of a head as its user gets it: segments, depth in metres where points are known (see
        `in_metres`), any other map as it is.

        Args:
            outputs: of the model, for this image.
        """
        spec = card.outputs[head]
        if spec.kind in ("panoptic", "instances"):
            return segments_of(head, outputs, spec)
        values = outputs[head]
        fitted = self.in_metres(head, values, model, card)
        if fitted is None:
            return PredictedArray(values, spec)
        return PredictedArray(fitted[0], replace(spec, kind="metric", unit="m"))


def batches_of(images: Iterable[ImageInput], size: int) -> Iterator[tuple[list[ImageInput], ModelInputs]]:
    """Return consecutive images of one size and camera, `size` at most, and their further inputs."""
    for _, alike in groupby(
        images, lambda x: (x.image.shape, x.camera if x.camera is None else focal_numbers(x.camera), [*x.inputs])
    ):
        while batch := list(islice(alike, size)):
            yield batch, join_inputs([x.inputs for x in batch])
