"""Segments by the queries of a decoder. b images, t queries, h x w pixels."""

from dataclasses import replace
from typing import Annotated

from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from densevit.errors import ConfigError
from densevit.model_card import HeadSpec
from densevit.models.decoders.base import Decoder
from densevit.models.heads.base import HEADS, Head
from densevit.models.layers import Classes, class_names, upsample
from densevit.ops.segments import THRESHOLD

Things = tuple[Annotated[int, Field(ge=0)], ...] | None
"""Ids of the classes whose segments are single objects; None takes those of the training data."""


@HEADS.register("instances")
class InstancesHead(Head):
    """Objects that may overlap: a mask and a class of each query. For the decoder `eomt` with `segments`."""

    def __init__(self, channels: int, *, classes: Classes = None, things: Things = None) -> None:
        """Raises ConfigError if there is no such class.

        Args:
            classes: the same as of the decoder.
        """
        super().__init__()
        names = class_names(classes)
        if unknown := [i for i in things or () if i >= len(names)]:
            raise ConfigError(f"things: no class {unknown[0]}; there are {len(names)}, counted from 0.")
        self.output = HeadSpec(kind="instances", unit="", classes=names, things=things or ())
        self.further = {"classes": HeadSpec(kind="query_classes", unit="")}

    def check_decoder(self, decoder: Decoder) -> None:
        """Raise ConfigError if the decoder has no queries, or other classes."""
        if not decoder.query_classes:
            raise ConfigError("its decoder must hand on queries: {type: eomt, segments: true}.")
        if decoder.query_classes != len(self.output.classes):
            raise ConfigError(f"{len(self.output.classes)} classes, but its decoder has {decoder.query_classes}.")

    def forward(self, x: Float[Tensor, "b t h w"], size: tuple[int, int]) -> Float[Tensor, "b t height width"]:
        return x if self.training else upsample(x.float(), size)  # losses take the small masks


@HEADS.register("panoptic")
class PanopticHead(InstancesHead):
    """One segment for each pixel: single objects of things, and all of a class of stuff. For `eomt` with `segments`."""

    def __init__(
        self,
        channels: int,
        *,
        classes: Classes = None,
        things: Things = None,
        threshold: Annotated[float, Field(ge=0, lt=1)] = THRESHOLD,
    ) -> None:
        """
        Args:
            classes: the same as of the decoder.
            threshold: score above which a query counts.
        """
        super().__init__(channels, classes=classes, things=things)
        self.output = replace(self.output, kind="panoptic", threshold=threshold)
