"""Patch embedding. b images, c channels, h x w pixels, d channels, gh x gw cells."""

import math
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError, DensevitError
from densevit.models.layers.norms import LayerNorm2d


class PatchEmbed(nn.Module):
    """A linear map of every patch: a convolution whose stride is its kernel size.

    The order of a patch's c * patch_size ** 2 numbers is channel, row, column.
    """

    def __init__(self, dim: int, patch_size: int, *, channels: int = 3, bias: bool = True) -> None:
        super().__init__()
        self.patch_size, self.channels = patch_size, channels
        self.proj = self.projection(dim, bias)

    def projection(self, dim: int, bias: bool) -> nn.Module:
        return nn.Conv2d(self.channels, dim, self.patch_size, stride=self.patch_size, bias=bias)

    def forward(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d gh gw"]:
        self.check_size(image)
        return self.proj(image)

    def check_size(self, image: Float[Tensor, "b c h w"]) -> None:
        h, w, p = image.shape[-2], image.shape[-1], self.patch_size
        if h % p or w % p:
            fit = f"resize or pad it to {h + -h % p}x{w + -w % p}"
            raise DensevitError(f"image is {h}x{w}; this ViT needs multiples of {p}: {fit}.")


class ConvStem(PatchEmbed):
    """A stack of convolutions with stride 2: trains faster from scratch (Xiao et al. 2021)."""

    def projection(self, dim: int, bias: bool) -> nn.Module:
        steps = int(math.log2(self.patch_size))
        if 2**steps != self.patch_size:
            raise ConfigError(
                f"stem 'conv' halves the image, so patch_size must be a power of two, not {self.patch_size}."
            )
        widths = [self.channels, *(max(dim // 2 ** (steps - 1 - i), 16) for i in range(steps))]
        halvings = [
            nn.Sequential(nn.Conv2d(a, b, 3, stride=2, padding=1), LayerNorm2d(b), nn.GELU())
            for a, b in pairwise(widths)
        ]
        return nn.Sequential(*halvings, nn.Conv2d(widths[-1], dim, 1, bias=bias))

    def forward_stages(self, image: Float[Tensor, "b c h w"]) -> tuple[list[Tensor], Float[Tensor, "b d gh gw"]]:
        """The maps after each convolution, of strides 2, 4, 8 ..., and the patch embedding."""
        layers = list(self.stages())
        x, maps = image, []
        for layer in layers[:-1]:
            x = layer(x)
            maps.append(x)
        return maps, layers[-1](x)

    def stages(self) -> nn.Sequential:
        assert isinstance(self.proj, nn.Sequential)
        return self.proj

    def stage_channels(self) -> list[int]:
        return [stage[0].out_channels for stage in self.stages()[:-1]]  # type: ignore[index]


STEMS: dict[str, type[PatchEmbed]] = {"patch": PatchEmbed, "conv": ConvStem}
