"""Metres by other ways than a range: from disparity by two constants, and as the decoder gives them."""

from typing import Annotated

from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from densevit.card import OutputSpec
from densevit.models.heads import HEADS, Head, Metres, Width
from densevit.models.projection import Projection, upsample

NEAREST_INFINITY = 1e-8  # 1/m; DPT's floor, where `shift` is 0


@HEADS.register("inverse")
class InverseHead(Head):
    """Metres as 1 / (scale * disparity + shift), as DPT turns its disparity into depth for KITTI and NYU."""

    def __init__(
        self,
        channels: int,
        *,
        scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0,
        shift: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1,
        hidden: Width = 32,
        align_corners: bool = False,
    ) -> None:
        """
        Args:
            scale: of the disparity, in 1/m per unit of it.
            shift: in 1/m; nothing is further away than 1 / shift.
            hidden: width of the last 3x3 convolution; 0 makes the head a single 1x1.
            align_corners: of the upsampling; true as published for DPT.
        """
        super().__init__()
        self.scale, self.shift = scale, shift
        self.projection = Projection(channels, 1, hidden=hidden, align_corners=align_corners)
        self.projection.start_at(max(shift, 0.1) / scale)
        furthest = 1 / max(shift, NEAREST_INFINITY)
        self.output = OutputSpec(kind="metric", unit="m", range=(0.0, furthest))

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        disparity = F.relu(self.projection(x, size).float())
        return 1 / (self.scale * disparity + self.shift).clamp(min=NEAREST_INFINITY)


@HEADS.register("metres")
class MetresHead(Head):
    """The decoder's map is depth in metres already, as behind `zoedepth`; of more channels than one a linear map."""

    def __init__(self, channels: int, *, max_depth: Metres | None = None) -> None:
        """
        Args:
            max_depth: the furthest that the decoder can say, for the card; None where it is unbounded.
        """
        super().__init__()
        self.join = nn.Identity() if channels == 1 else nn.Conv2d(channels, 1, 1)
        self.output = OutputSpec(kind="metric", unit="m", range=None if max_depth is None else (0.0, max_depth))

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 1 height width"]:
        return upsample(self.join(x), size).float()
