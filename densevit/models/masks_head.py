"""The head behind decoders that give a map per class by themselves."""

from jaxtyping import Float
from torch import Tensor

from densevit.card import OutputSpec
from densevit.errors import ConfigError
from densevit.models.classes import Classes, class_names
from densevit.models.heads import HEADS, Head
from densevit.models.projection import upsample


@HEADS.register("masks")
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
        self.output = OutputSpec(kind="labels", unit="", classes=names)

    def forward(self, x: Float[Tensor, "b k h w"], size: tuple[int, int]) -> Float[Tensor, "b k height width"]:
        return upsample(x.float(), size, self.align_corners)
