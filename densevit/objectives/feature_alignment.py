"""The last features of the trained encoder beside those of a frozen one, as a loss of a training step."""

from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from densevit.config.schema import Positive
from densevit.errors import ConfigError
from densevit.registry import ComponentConfig
from densevit.structures import Batch, EncoderOutput, FeatureSpec
from densevit.utils.device import Precision, autocast


@dataclass(frozen=True, kw_only=True)
class AlignFeatures:
    """A frozen encoder whose features those of the trained one stay close to (Depth Anything, arXiv:2401.10891)."""

    encoder: ComponentConfig
    """The frozen encoder; its last map must have the channels of the trained one's."""
    weight: Positive = 1.0
    """Weight of this loss."""
    margin: Annotated[float, Field(gt=-1, le=1)] = 0.85
    """Features of this cosine similarity or more are close enough."""
    sources: tuple[str, ...] = ()
    """Sources of a mixture whose images are compared; default: all."""


class FeatureAlignment:
    """Compares the maps that the encoder gave in its last forward pass with the frozen encoder's for the same images.

    Args:
        encoder: in training.
        frozen: in evaluation mode, without gradients; nothing of it is saved.

    Raises:
        ConfigError: the last maps differ in channels or stride.
    """

    def __init__(self, encoder: nn.Module, frozen: nn.Module, options: AlignFeatures) -> None:
        trained, other = last_features(encoder), last_features(frozen)
        if (trained.channels, trained.stride) != (other.channels, other.stride):
            raise ConfigError(
                f"objective.align_features.encoder: its last map has {other.channels} channels at stride "
                f"{other.stride}, that of model.encoder {trained.channels} at {trained.stride}; take an encoder of the "
                "same width and patch."
            )
        self.frozen, self.options = frozen.requires_grad_(False).eval(), options
        self.seen: tuple[Tensor, EncoderOutput] | None = None
        encoder.register_forward_hook(self._keep)

    def _keep(self, module: nn.Module, inputs: tuple[Tensor], output: EncoderOutput) -> None:
        if torch.is_grad_enabled():
            self.seen = inputs[0], output

    def loss(self, batch: Batch, precision: Precision) -> Tensor:
        """Return the loss of the images of the sources that are compared, times their share of the batch and the
        weight."""
        assert self.seen is not None
        (image, output), self.seen = self.seen, None
        student = output.maps[-1]
        selected = self.options.sources
        rows = [i for i, source in enumerate(batch.sources or ("",) * len(batch)) if not selected or source in selected]
        if not rows:
            return student[:0].sum().float()
        with torch.no_grad(), autocast(precision, image.device):
            frozen: Tensor = self.frozen(image[rows]).maps[-1]
        share = len(rows) / len(batch)
        return self.options.weight * share * feature_alignment(student[rows], frozen, self.options.margin)


@runtime_checkable
class HasFeatures(Protocol):
    features: list[FeatureSpec]


def last_features(encoder: nn.Module) -> FeatureSpec:
    assert isinstance(encoder, HasFeatures)
    return encoder.features[-1]


def feature_alignment(
    student: Float[Tensor, "b c h w"], frozen: Float[Tensor, "b c h w"], margin: float = 0.85
) -> Float[Tensor, ""]:
    """Return 1 - cosine of each cell's features, 0 where the cosine is the margin or more, averaged over all cells.

    Depth Anything (arXiv:2401.10891, eq. 9 and its tolerance margin alpha): a frozen DINOv2 gives all parts of an
    object alike features, so that depth, which differs inside it, must not be held to them exactly.
    """
    cosine = F.cosine_similarity(student.float(), frozen.float(), dim=1)
    return ((1 - cosine) * (cosine < margin)).mean()
