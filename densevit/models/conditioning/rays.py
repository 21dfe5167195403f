"""Viewing directions as an input of the network (UniDepth, Piccinelli et al. 2024; Depth Anything 3).

b images, c channels, h x w cells of a feature map.
"""

from dataclasses import replace
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.model_inputs import ModelInputs
from densevit.models.conditioning.base import CONDITIONINGS, ConditionedParts, Conditioning, FirstPass
from densevit.ops.camera import Camera
from densevit.structures import EncoderOutput

FREQUENCIES = 4  # of the sines and cosines of both angles: 1, 2, 4, 8
USUAL_FOCAL = 500.0  # pixels; its logarithm is the zero of the logarithm of focal lengths


@CONDITIONINGS.register("rays")
class Rays(Conditioning):
    """Adds an embedding of each cell's viewing direction, and of the focal length, to an encoder's feature maps.

    The last layers begin at zero, so that a pretrained model begins as it was. Images whose camera is not known (NaN)
    get no embedding.
    """

    input = "camera"

    def __init__(self, parts: ConditionedParts, *, hidden: Annotated[int, Field(gt=0)] = 64) -> None:
        """
        Args:
            hidden: channels of the embedding's hidden layer.
        """
        super().__init__()
        width = 2 * (1 + 2 * FREQUENCIES) + 2
        self.embed = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, hidden, 1), nn.GELU(), nn.Conv2d(hidden, spec.channels, 1))
            for spec in parts.features
        )
        for layers in self.embed:
            nn.init.zeros_(layers[-1].weight)  # type: ignore[index]
            nn.init.zeros_(layers[-1].bias)  # type: ignore[index]

    def forward(self, features: EncoderOutput, inputs: ModelInputs, first_pass: FirstPass) -> EncoderOutput:
        camera = Camera(inputs[self.input])
        finite = camera.values.isfinite().all(1)
        safe = Camera(camera.values.where(finite[:, None], 1.0))
        maps = []
        for x, embed in zip(features.maps, self.embed, strict=True):
            rays = describe_rays(safe, features.image_size, (x.shape[-2], x.shape[-1])).to(x.dtype)
            maps.append(x + embed(rays) * finite[:, None, None, None])
        return replace(features, maps=tuple(maps))


def describe_rays(camera: Camera, size: tuple[int, int], grid: tuple[int, int]) -> Float[Tensor, "b k gh gw"]:
    """Return both angles of each cell's viewing direction, their sines and cosines, and the logarithms of fx and fy."""
    angles = camera.directions(size, grid).atan()
    waves = [wave(angles * 2.0**i) for i in range(FREQUENCIES) for wave in (torch.sin, torch.cos)]
    focal = (camera.values[:, :2] / USUAL_FOCAL).log()[:, :, None, None].expand(-1, -1, *grid)
    return torch.cat([angles, *waves, focal], 1)
