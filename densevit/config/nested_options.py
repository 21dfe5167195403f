"""Options of components that choose components themselves: the sources of a mixture, a frozen encoder."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from densevit.config.schema import NonNegative, Positive, Share, described
from densevit.registry import ComponentConfig

Truth = Literal["metric", "relative", "affine", "disparity", "labels", "normals", "none"]


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """Images without ground truth: the moving average of the weights labels each in every step, and the model learns
    that from a stronger augmentation of the same image (mean teacher; UniMatch, arXiv:2410.10777)."""

    strong: tuple[ComponentConfig, ...] = ()
    """Transforms of pixel values (color, blur, ...) that only the model's view gets, not the teacher's."""
    confidence: Share = 0.95
    """Pixels whose class the teacher is less sure of are ignored."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One data set of a mixture."""

    data: ComponentConfig
    """The data set."""
    name: str = ""
    """Name in logs and in `tasks.NAME.sources`; default: the data set's type."""
    weight: NonNegative | None = None
    """Sampling weight among all sources; given for all of them, or for none: then by their number of images."""
    truth: Truth | tuple[Truth, ...] | None = None
    """What is learned: metric depth (metres), depth up to scale (relative) or up to scale and shift (affine), disparity
    up to both, labels, normals; none: images only. Default: what the data set has."""
    transforms: tuple[ComponentConfig, ...] = ()
    """Transforms of this source, applied before `data.transforms`."""
    drop_worst: Share = 0.0
    """Fraction of an image's pixels, those with the largest error, that are ignored: errors of a teacher."""
    cutmix: Share = 0.0
    """Probability that a rectangle of another image of this source is pasted in, with its ground truth."""
    consistency: Consistency | None = None
    """With `truth: none`, how images without ground truth are learned from."""
    protocol: str | None = None
    """Evaluation protocol of depth, in the validation during training; default: the task's."""


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


NESTED = {node.__name__: node for node in (Source, Consistency, AlignFeatures)}
for _node in NESTED.values():
    described(_node)
