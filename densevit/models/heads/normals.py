"""Surface normals. b images, h x w pixels."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from densevit.model_card import HeadSpec
from densevit.models.heads.base import HEADS, Head, Width
from densevit.models.layers import ConvHead


@HEADS.register("normals")
class NormalsHead(Head):
    """Unit normals in camera axes (right, down, forward), towards the camera."""

    def __init__(self, channels: int, *, hidden: Width = 32, align_corners: bool = False) -> None:
        """
        Args:
            hidden: width of the last 3x3 convolution; 0 makes the head a single 1x1.
            align_corners: of the upsampling.
        """
        super().__init__()
        self.projection = ConvHead(channels, 3, hidden=hidden, align_corners=align_corners)
        self.projection.init_output(0.0)
        bias = self.projection.last.bias
        assert bias is not None
        with torch.no_grad():
            bias.copy_(torch.tensor([0.0, 0.0, -1.0]))  # a wall that faces the camera
        self.output = HeadSpec(kind="normals", unit="")

    def forward(self, x: Float[Tensor, "b c h w"], size: tuple[int, int]) -> Float[Tensor, "b 3 height width"]:
        return F.normalize(self.projection(x, size).float(), dim=1)
