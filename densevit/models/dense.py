"""The whole model: an encoder, a decoder and a head per task. b images, h x w pixels, k numbers per pixel."""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor, nn

from densevit.models.decoder import Decoder
from densevit.models.encoder import Encoder
from densevit.models.heads import Head
from densevit.ops.resize import centre, crop, of_whole_image


class DenseModel(nn.Module):
    """Predicts for every pixel, at the size of the image, in training as in evaluation.

    A head that answers for the whole image gives a map of 1 x 1, which stays what it is.
    """

    def __init__(self, encoder: Encoder, decoder: Decoder, heads: Mapping[str, Head]) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.heads = nn.ModuleDict(heads)

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Float[Tensor, "b _ _ _"]]:
        """`image` in [0, 1]; the result bears the names of the heads."""
        size = (image.shape[-2], image.shape[-1])
        features = self.encoder(image)
        x = self.decoder(features)
        offset = centre(size, features.image_size)
        answers = {name: head(x, features.image_size) for name, head in self.heads.items()}
        return {name: y if of_whole_image(y) else crop(y, offset, size) for name, y in answers.items()}
