"""Heads for pixels: logits of their classes, and segments by the queries of a decoder."""

from dataclasses import replace
from typing import Annotated

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.model_card import HeadSpec
from densevit.models.decoders.base import Decoder
from densevit.models.heads.base import HEADS, Head, Width
from densevit.models.layers import Classes, Norm, class_names, conv_block, upsample
from densevit.ops.segments import THRESHOLD


@HEADS.register("segmentation")
class LabelsHead(Head):
    """1x1 convolution upsampled to the image; with `hidden`, DPT's 3x3 convolution, norm and ReLU before it."""

    def __init__(
        self,
        channels: int,
        *,
        classes: Classes = None,
        hidden: Width = 0,
        norm: Norm = "batch",
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1,
        align_corners: bool = False,
    ) -> None:
        """
        Args:
            hidden: channels of the 3x3 convolution; 0 for none. DPT's head has those of its decoder.
            norm: after that convolution.
            dropout: rate of dropped channels before the logits in training.
            align_corners: upsample with aligned corners; true as published for DPT.
        """
        super().__init__()
        names = class_names(classes)
        self.align_corners = align_corners
        self.before = nn.Sequential(*(conv_block(channels, hidden, 3, norm) if hidden else []), nn.Dropout2d(dropout))
        self.logits = nn.Conv2d(hidden or channels, len(names), 1)
        nn.init.normal_(self.logits.weight, std=0.01)  # as in mmseg and dinov2
        assert self.logits.bias is not None
        nn.init.zeros_(self.logits.bias)
        self.output = HeadSpec(kind="labels", unit="", classes=names)

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b k height width"]:
        return upsample(self.logits(self.before(x)).float(), size, self.align_corners)


@HEADS.register("mask_logits")
class MasksHead(Head):
    """Upsamples a decoder's logits to the image, without parameters. For `mask_transformer` and `eomt`."""

    def __init__(self, channels: int, *, classes: Classes = None, align_corners: bool = False) -> None:
        """Raise ConfigError if the decoder has another number of classes.

        Args:
            classes: those of the decoder.
        """
        super().__init__()
        names = class_names(classes)
        if len(names) != channels:
            raise ConfigError(f"head 'mask_logits': {len(names)} classes, but the decoder gives {channels} maps.")
        self.align_corners = align_corners
        self.output = HeadSpec(kind="labels", unit="", classes=names)

    def forward(self, x: Float[Tensor, "b k h w"], size: tuple[int, int]) -> Float[Tensor, "b k height width"]:
        return upsample(x.float(), size, self.align_corners)


Things = tuple[Annotated[int, Field(ge=0)], ...] | None
"""Ids of the classes whose segments are single objects; None takes those of the training data."""


@HEADS.register("instances")
class InstancesHead(Head):
    """Objects that may overlap: a mask and a class of each query. For the decoder `eomt` with `segments`."""

    def __init__(self, channels: int, *, classes: Classes = None, things: Things = None) -> None:
        """Raise ConfigError if there is no such class.

        Args:
            classes: those of the decoder.
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
            classes: those of the decoder.
            threshold: score above which a query counts.
        """
        super().__init__(channels, classes=classes, things=things)
        self.output = replace(self.output, kind="panoptic", threshold=threshold)
