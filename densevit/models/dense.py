"""The whole model: an encoder, a decoder and a head per task. b images, h x w pixels, k numbers per pixel."""

from collections.abc import Iterator, Mapping

from jaxtyping import Float
from torch import Tensor, nn

from densevit.models.decoders.base import Decoder, DecoderOutput
from densevit.models.encoders.base import Encoder
from densevit.models.heads.base import Head
from densevit.ops.resize import centre, crop, of_whole_image
from densevit.structures import EncoderOutput, Size


class DenseModel(nn.Module):
    """Predicts for every pixel, at the size of the image, in training as in evaluation.

    A head that answers for the whole image gives a map of 1 x 1, which stays what it is.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        heads: Mapping[str, Head],
        decoders: Mapping[str, Decoder] | None = None,
        *,
        stretch: bool = False,
    ) -> None:
        """
        Args:
            decoder: serves every head that has none of its own.
            decoders: those of their own, by the name of the head.
            stretch: answers to a padded image are stretched to the image's own size, as if nothing had been padded, and
                not cut to it: a flaw of DINOv2 and DINOv3 that their heads have been trained with.
        """
        super().__init__()
        self.stretch = stretch
        self.encoder = encoder
        self.decoder = decoder
        self.heads = nn.ModuleDict(heads)
        self.decoders = nn.ModuleDict(decoders or {})
        joins = [reader.joins for reader in (decoder, *(decoders or {}).values())]
        if any(joins):
            encoder.leave(max(joins), out_indices=not all(joins))

    def forward(self, image: Float[Tensor, "b 3 h w"], answer_size: Size | None = None) -> dict[str, Tensor]:
        """`image` in [0, 1]; the result bears the names of the heads.

        In training it may also hold extras, what a decoder or head hands to its losses, as `head/name`. Those that are
        maps at the size of the padded image lose the padding like answers; others stay as they are.

        Args:
            answer_size: of the answers of a model that stretches; the image's unless given.
        """
        size = (image.shape[-2], image.shape[-1])
        features = self.encoder(image)
        if self.stretch:
            return dict(self._answers(features, answer_size or size))
        offset = centre(size, features.image_size)
        answers = dict(self._answers(features, features.image_size))
        return {name: crop(y, offset, size) if covers(y, features.image_size) else y for name, y in answers.items()}

    def _answers(self, features: EncoderOutput, size: Size) -> Iterator[tuple[str, Tensor]]:
        """Answers and extras by name; every decoder runs once."""
        shared = decoded(self.decoder(features))
        for name, head in self.heads.items():
            x = decoded(self.decoders[name](features)) if name in self.decoders else shared
            answer = decoded(head(x.map, size))
            yield name, answer.map
            for key, extra in (x.extras | answer.extras).items():
                yield f"{name}/{key}", extra


def decoded(x: Tensor | DecoderOutput) -> DecoderOutput:
    return x if isinstance(x, DecoderOutput) else DecoderOutput(x, {})


def covers(x: Float[Tensor, "b ..."], size: Size) -> bool:
    """Whether these are maps at the size of the padded image."""
    return x.ndim == 4 and tuple(x.shape[-2:]) == size and not of_whole_image(x)
