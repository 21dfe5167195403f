"""DenseModel: an encoder, a decoder and one head per task. b images, h x w pixels, k numbers per pixel."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from densevit.model_inputs import INPUT_KINDS, NO_INPUTS, ModelInputs, crop_inputs, inputs_of
from densevit.models.conditioning.base import Conditioning
from densevit.models.decoders.base import Decoder, DecoderOutput
from densevit.models.encoders.base import Encoder
from densevit.models.heads.base import Head
from densevit.ops.resize import centre, crop, is_image_level
from densevit.structures import Batch, EncoderOutput, Size


class DenseModel(nn.Module):
    """Predicts for every pixel, at the size of the image, in training and in evaluation.

    A classification head gives a map of 1 x 1.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        heads: Mapping[str, Head],
        decoders: Mapping[str, Decoder] | None = None,
        *,
        conditioning: Mapping[str, Conditioning] | None = None,
        stretch: bool = False,
    ) -> None:
        """
        Args:
            decoder: for every head without a decoder of its own.
            decoders: decoders of single heads, by the name of the head.
            conditioning: what the model does with inputs beside images, in this order.
            stretch: resize the prediction for a padded image to the unpadded size instead of cropping it: an error in
                DINOv2 and DINOv3 that their heads were trained with.
        """
        super().__init__()
        self.stretch = stretch
        self.conditioning = nn.ModuleDict(conditioning or {})
        self.encoder = encoder
        self.decoder = decoder
        self.heads = nn.ModuleDict(heads)
        self.camera_heads = {name for name, head in heads.items() if head.output.output_kind.estimates_camera}
        self.decoders = nn.ModuleDict(decoders or {})
        blocks = [one.encoder_blocks for one in (decoder, *(decoders or {}).values())]
        if any(blocks):
            encoder.detach_last_blocks(max(blocks), out_indices=not all(blocks))

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs beside images that the network reads."""
        blocks: Iterable[Any] = self.conditioning.values()
        return tuple(dict.fromkeys(name for block in blocks for name in block.uses))

    def for_validation(self, batch: Batch) -> Batch:
        """Return the batch as validation during training gives it to the model and scores it."""
        for name in self.input_names:
            batch = INPUT_KINDS[name].for_validation(batch)
        return batch

    def inputs_of(self, batch: Batch) -> ModelInputs:
        """Return what the network and the metres of its heads depend on beside the images of a batch."""
        heads: Iterable[Any] = self.heads.values()
        camera = ("camera",) if any(head.output.needs_camera for head in heads) else ()
        return inputs_of(batch, dict.fromkeys((*camera, *self.input_names)))

    def forward(
        self,
        image: Float[Tensor, "b 3 h w"],
        inputs: ModelInputs = NO_INPUTS,
        *,
        output_size: Size | None = None,
        features: EncoderOutput | None = None,
    ) -> dict[str, Tensor]:
        """Return the predictions by the name of the head, for `image` in [0, 1].

        In training there may also be extras, tensors of a decoder or head for its losses, as `head/name`. Those that
        are maps at the size of the padded image are cropped like predictions.

        Args:
            inputs: for the images, by the names of `INPUT_KINDS`; those that no conditioning takes are ignored.
            output_size: size of the predictions if the model resizes them; by default that of the image.
            features: feature maps of the encoder for `image`, where they are known; it is not run then, and of
                `image` only the size and type count.
        """
        size = (image.shape[-2], image.shape[-1])
        plain = self.encoder(image) if features is None else features.map(lambda x: x.to(image.dtype))
        padded, offset = plain.image_size, centre(size, plain.image_size)
        inputs = {name: inputs[name] for name in self.input_names if name in inputs}
        inputs = crop_inputs(inputs, -offset[0], -offset[1], padded)
        conditioned = plain
        blocks: Iterable[Any] = self.conditioning.values()
        for block in blocks:
            if block.input in inputs:
                conditioned = block(conditioned, inputs, self._first_pass)
        if self.stretch:
            return dict(self._predictions(conditioned, plain, output_size or size))
        predictions = self._predictions(conditioned, plain, padded)
        return {name: crop(y, offset, size) if is_image_sized(y, padded) else y for name, y in predictions}

    def _first_pass(self, features: EncoderOutput, head: str) -> Float[Tensor, "b _ h w"]:
        """Return the prediction of a head of `decoder`, for a conditioning that corrects it."""
        shared = as_decoder_output(self.decoder(features)).map
        return as_decoder_output(self.heads[head](shared, features.image_size)).map

    def _predictions(self, features: EncoderOutput, plain: EncoderOutput, size: Size) -> Iterator[tuple[str, Tensor]]:
        """Yield the predictions and extras by name; every decoder runs once. `plain`: features of the image alone, from
        which a head estimates the camera."""
        shared = as_decoder_output(self.decoder(features))
        unadapted = replace(features, adapters=())
        for name, head in self.heads.items():
            source = plain if name in self.camera_heads else unadapted
            x = as_decoder_output(self.decoders[name](source)) if name in self.decoders else shared
            y = as_decoder_output(head(x.map, size))
            yield name, y.map
            for key, extra in (x.extras | y.extras).items():
                yield f"{name}/{key}", extra


def as_decoder_output(x: Tensor | DecoderOutput) -> DecoderOutput:
    return x if isinstance(x, DecoderOutput) else DecoderOutput(x, {})


def is_image_sized(x: Float[Tensor, "b ..."], size: Size) -> bool:
    """Return whether these are maps at the size of the padded image."""
    return x.ndim == 4 and tuple(x.shape[-2:]) == size and not is_image_level(x)
