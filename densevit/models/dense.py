"""DenseModel: an encoder, a decoder and one head per task. b images, h x w pixels, k numbers per pixel."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from densevit.models.decoders.base import Decoder, DecoderOutput
from densevit.models.encoders.base import Encoder
from densevit.models.heads.base import Head
from densevit.models.layers.motion import MotionBlocks
from densevit.models.layers.prompt import PromptBlocks, describe
from densevit.models.layers.ray_embedding import RayEmbedding
from densevit.ops.camera import Camera
from densevit.ops.resize import centre, crop, is_image_level
from densevit.structures import EncoderOutput, Size


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
        stretch: bool = False,
        rays: RayEmbedding | None = None,
        temporal: MotionBlocks | None = None,
        prompt: PromptBlocks | None = None,
    ) -> None:
        """
        Args:
            decoder: for every head without a decoder of its own.
            decoders: decoders of single heads, by the name of the head.
            stretch: resize the prediction for a padded image to the unpadded size instead of cropping it: an error in
                DINOv2 and DINOv3 that their heads were trained with.
            rays: adds viewing directions to the encoder's features; the model then takes cameras.
            temporal: what `decoder` applies between its levels where the images are frames of clips.
            prompt: what `decoder` applies after its fusions where depth was measured at some points.
        """
        super().__init__()
        self.stretch, self.rays, self.temporal, self.prompt = stretch, rays, temporal, prompt
        self.encoder = encoder
        self.decoder = decoder
        self.heads = nn.ModuleDict(heads)
        self.focal_heads = {name for name, head in heads.items() if head.output.kind == "focal"}
        self.decoders = nn.ModuleDict(decoders or {})
        blocks = [one.encoder_blocks for one in (decoder, *(decoders or {}).values())]
        if any(blocks):
            encoder.detach_last_blocks(max(blocks), out_indices=not all(blocks))

    @property
    def takes_camera(self) -> bool:
        return self.rays is not None

    @property
    def takes_clips(self) -> bool:
        return self.temporal is not None

    @property
    def takes_points(self) -> bool:
        return self.prompt is not None

    def forward(
        self,
        image: Float[Tensor, "b 3 h w"],
        output_size: Size | None = None,
        camera: Float[Tensor, "b 4"] | None = None,
        features: EncoderOutput | None = None,
        clip_length: int = 1,
        points: Float[Tensor, "b 1 h w"] | None = None,
    ) -> dict[str, Tensor]:
        """Predictions by the name of the head, for `image` in [0, 1].

        In training there may also be extras, tensors of a decoder or head for its losses, as `head/name`. Those that
        are maps at the size of the padded image are cropped like predictions.

        Args:
            output_size: of the predictions if the model stretches them; by default that of the image.
            camera: fx, fy, cx, cy in pixels of `image`, NaN where unknown; only a model with `rays` uses it.
            features: of the encoder for `image`, where they are known; it is not run then, and of `image` only the size
                and type count.
            clip_length: the images are clips of so many frames, each one's consecutive. At 1 the motion blocks are not
                run.
            points: measured depth, 0 where none, in the unit of the metric head; only a model with `prompt` uses it.
                An image without any is predicted as if none were given.
        """
        size = (image.shape[-2], image.shape[-1])
        features = self.encoder(image) if features is None else features.map(lambda x: x.to(image.dtype))
        without_rays = features
        offset = centre(size, features.image_size)
        if self.rays is not None and camera is not None:
            features = self.rays(features, Camera(camera).cropped(-offset[0], -offset[1]))
        if self.temporal is not None and clip_length > 1:
            blocks = self.temporal
            features = replace(features, motion=lambda i, x: blocks[i](x, clip_length))
        if self.prompt is not None and points is not None:
            features = self._with_points(self.prompt, features, points, offset)
        if self.stretch:
            return dict(self._predictions(features, without_rays, output_size or size))
        padded = features.image_size
        predictions = self._predictions(features, without_rays, padded)
        return {name: crop(y, offset, size) if is_image_sized(y, padded) else y for name, y in predictions}

    def _with_points(
        self, prompt: PromptBlocks, features: EncoderOutput, points: Float[Tensor, "b 1 h w"], offset: Size
    ) -> EncoderOutput:
        """The features for a second pass through the decoder, which corrects what the first is off by at the points."""
        (height, width), (h, w), (top, left) = features.image_size, points.shape[-2:], offset
        padded = F.pad(points, (left, width - w - left, top, height - h - top))
        with torch.no_grad():
            shared = as_decoder_output(self.decoder(features)).map
            depth = as_decoder_output(self.heads[prompt.head](shared, features.image_size)).map
            given = describe(padded, depth)
        return replace(features, prompt=partial(prompt.apply_to, points=given))

    def _predictions(
        self, features: EncoderOutput, without_rays: EncoderOutput, size: Size
    ) -> Iterator[tuple[str, Tensor]]:
        """Predictions and extras by name; every decoder runs once.

        Args:
            without_rays: features of the image alone, from which a head estimates the camera.
        """
        shared = as_decoder_output(self.decoder(features))
        still = replace(features, motion=None, prompt=None)
        for name, head in self.heads.items():
            given = without_rays if name in self.focal_heads else still
            x = as_decoder_output(self.decoders[name](given)) if name in self.decoders else shared
            y = as_decoder_output(head(x.map, size))
            yield name, y.map
            for key, extra in (x.extras | y.extras).items():
                yield f"{name}/{key}", extra


def as_decoder_output(x: Tensor | DecoderOutput) -> DecoderOutput:
    return x if isinstance(x, DecoderOutput) else DecoderOutput(x, {})


def is_image_sized(x: Float[Tensor, "b ..."], size: Size) -> bool:
    """Whether these are maps at the size of the padded image."""
    return x.ndim == 4 and tuple(x.shape[-2:]) == size and not is_image_level(x)
