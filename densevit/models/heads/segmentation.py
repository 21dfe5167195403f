"""The head of semantic segmentation: a row of logits for each pixel."""

from typing import Annotated

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.model_card import HeadSpec
from densevit.models.heads.base import HEADS, Head, Width
from densevit.models.layers.class_names import Classes, class_names
from densevit.models.layers.conv_head import upsample
from densevit.models.layers.norms import Norm, build_norm


@HEADS.register("segmentation")
class LabelsHead(Head):
    """Logits by a 1x1 convolution, upsampled to the image; before it, with `hidden`, DPT's 3x3, norm and ReLU."""

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
            hidden: width of the 3x3 convolution; 0 for none. DPT's head has that of its decoder.
            norm: behind that convolution.
            dropout: share of the channels before the logits that are zeroed in training.
            align_corners: of the upsampling; true as published for DPT.
        """
        super().__init__()
        names = class_names(classes)
        self.align_corners = align_corners
        self.before = nn.Sequential(*(mixing(channels, hidden, norm) if hidden else []), nn.Dropout2d(dropout))
        self.logits = nn.Conv2d(hidden or channels, len(names), 1)
        nn.init.normal_(self.logits.weight, std=0.01)  # as mmseg and dinov2 begin
        assert self.logits.bias is not None
        nn.init.zeros_(self.logits.bias)
        self.output = HeadSpec(kind="labels", unit="", classes=names)

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b k height width"]:
        return upsample(self.logits(self.before(x)).float(), size, self.align_corners)


def mixing(channels: int, hidden: int, norm: Norm) -> list[nn.Module]:
    conv = nn.Conv2d(channels, hidden, 3, padding=1, bias=norm == "none")
    return [conv, build_norm(norm, hidden), nn.ReLU()]


@HEADS.register("mask_logits")
class MasksHead(Head):
    """Upsamples a decoder's maps to the image; it has nothing to learn. For `mask_transformer` and `eomt`."""

    def __init__(self, channels: int, *, classes: Classes = None, align_corners: bool = False) -> None:
        """
        Args:
            classes: as those of the decoder.

        Raises:
            ConfigError: the decoder gives another number of maps.
        """
        super().__init__()
        names = class_names(classes)
        if len(names) != channels:
            raise ConfigError(f"head 'masks': {len(names)} classes, where the decoder gives {channels} maps.")
        self.align_corners = align_corners
        self.output = HeadSpec(kind="labels", unit="", classes=names)

    def forward(self, x: Float[Tensor, "b k h w"], size: tuple[int, int]) -> Float[Tensor, "b k height width"]:
        return upsample(x.float(), size, self.align_corners)
