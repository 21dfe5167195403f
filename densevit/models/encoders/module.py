"""Any nn.Module as an encoder: a timm model with `features_only=True`, a torchvision extractor, one of your own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import ConfigError
from densevit.models.encoders.base import Encoder, load_encoder
from densevit.ops.resize import pad_to_multiple
from densevit.structures import EncoderOutput, FeatureSpec

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
PROBE = (128, 192)  # h, w of the image that tells channels and strides


class ModuleEncoder(Encoder):
    """Wraps a module that returns feature maps; channels, strides and layout are found by running it once.

    The module takes normalised images b 3 h w of any size that is a multiple of its largest stride, and returns its
    maps from shallow to deep: one tensor, a list, a tuple, a dict, or an output of transformers with `feature_maps`.
    Maps are b c h w, or b h w c as timm's Swin gives them.
    """

    def __init__(
        self, module: nn.Module, *, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
    ) -> None:
        """Raise ConfigError if it does not run on an image, or returns something else.

        Args:
            mean, std: of the images that the module expects; default: of its `pretrained_cfg` (timm), or ImageNet's.
        """
        super().__init__()
        card: Mapping[str, Any] = getattr(module, "pretrained_cfg", None) or {}
        self.set_normalisation(mean or card.get("mean") or IMAGENET[0], std or card.get("std") or IMAGENET[1])
        self.licence = str(card.get("license") or "unknown")
        self.module, self.prefix_tokens, self.channels_last = module, 0, False
        maps = self._probe()
        strides = [stride_of(map_.shape[-2:]) for map_ in maps]
        if None in strides:
            strides = [stride_of(map_.shape[1:3]) for map_ in maps]
            self.channels_last = True
        if None in strides:
            raise self._error(f"gives maps {[tuple(m.shape) for m in maps]}, not b c h w at a stride of the image")
        channels = [map_.shape[-1 if self.channels_last else 1] for map_ in maps]
        self.features = [FeatureSpec(c, s or 0, tokens=False) for c, s in zip(channels, strides, strict=True)]
        self.out_indices = tuple(range(len(maps)))
        self.patch_size = max(feature.stride for feature in self.features)

    def _probe(self) -> list[Tensor]:
        training, device = self.module.training, next((p.device for p in self.module.parameters()), None)
        self.module.eval()
        try:
            with torch.no_grad():
                return as_list(self.module(torch.zeros(1, 3, *PROBE, device=device)))
        except (AssertionError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            message = str(error).strip() or type(error).__name__
            raise self._error(
                f"fails on an image of {PROBE[0]} x {PROBE[1]} ({message.splitlines()[0]}); an encoder takes any size "
                "that is a multiple of its stride, in timm by dynamic_img_size=True"
            ) from error
        finally:
            self.module.train(training)

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"model.encoder: {type(self.module).__name__} {what}.")

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> EncoderOutput:
        x, _ = pad_to_multiple((image - self.mean) / self.std, self.patch_size)
        maps = as_list(self.module(x))
        if self.channels_last:
            maps = [map_.permute(0, 3, 1, 2) for map_ in maps]
        none = tuple(map_.new_zeros(map_.shape[0], 0, map_.shape[1]) for map_ in maps)
        return EncoderOutput(tuple(maps), none, (x.shape[-2], x.shape[-1]))

    def load_weights(self, state: Mapping[str, Tensor], source: str) -> None:
        load_encoder(self.module, dict(state), source, set())

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [list(self.module.parameters())]

    def no_weight_decay(self) -> set[str]:
        find: Callable[[], Iterable[str]] | None = getattr(self.module, "no_weight_decay", None)
        names = {f"module.{name}" for name in (find() if find else ())}
        return names & {name for name, _ in self.named_parameters()}  # timm's ViTs name tokens that they do not have

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        switch: Callable[[bool], object] | None = getattr(self.module, "set_grad_checkpointing", None)
        if switch is not None:
            switch(enable)
        elif enable:
            raise ConfigError(f"model.grad_checkpointing: {type(self.module).__name__} knows none.")


def as_list(output: Any) -> list[Tensor]:
    """Raise TypeError if it is no tensor of four axes, nor some of them."""
    output = getattr(output, "feature_maps", output)
    maps = list(output.values()) if isinstance(output, Mapping) else output
    maps = [maps] if isinstance(maps, Tensor) else list(maps)
    if not maps or not all(isinstance(map_, Tensor) and map_.ndim == 4 for map_ in maps):
        raise TypeError(f"returns {type(output).__name__}, not feature maps of four axes")
    return maps


def stride_of(size: Sequence[int]) -> int | None:
    """Return the pixels of the probe image per cell of a map; None where the map has another shape."""
    stride, rest = divmod(PROBE[0], size[0])
    return stride if rest == 0 and size[1] * stride == PROBE[1] else None


def as_encoder(value: object) -> Encoder:
    """Raise ConfigError if it is no module, or gives no feature maps."""
    if isinstance(value, Encoder):
        return value
    if isinstance(value, nn.Module):
        return ModuleEncoder(value)
    raise ConfigError(f"model.encoder: a component {{type: ...}} or an nn.Module, got {type(value).__name__}.")
