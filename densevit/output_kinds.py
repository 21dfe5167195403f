"""Output kinds: what the numbers of a head are, and how predictions of each kind are mirrored, averaged and finished.

An output kind is data and a few small functions of tensors; `register` adds one of a plug-in. Tasks, scores, writers
and scorers are found by the name of the kind. Nothing here imports torch: model cards are read without it.
b images, h x w pixels, k channels.
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, ClassVar

from densevit.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from densevit.structures import IGNORE

TINY = 2.0**-126  # the smallest normal float32: probabilities are kept above it
LEAST_SCALE = 9.1e-4  # exp(-7), the least that heads predict (LOG_SCALE in models/heads/depth.py)


class OutputKind:
    """What a head predicts; subclasses override what differs.

    Attributes:
        name: as `HeadSpec.kind` and model cards store it.
        meaning: in a few words, for messages.
        task: the task of `densevit eval` that scores it; empty if it is not scored by itself.
        auxiliary: it serves another head and is not predicted for itself.
        image_level: one prediction for the whole image, b k 1 1.
        is_depth: depth or disparity, metric or not.
        is_metric: depth in metres.
        has_classes: one channel for each class of the head.
        estimates_camera: it is predicted from the image alone, whatever the network takes beside it.
        averaged: predictions for windows, mirrored and resized images have a mean.
        channels: otherwise their number; 0 if it is that of the model's queries.
    """

    auxiliary: ClassVar[bool] = False
    image_level: ClassVar[bool] = False
    is_depth: ClassVar[bool] = False
    is_metric: ClassVar[bool] = False
    has_classes: ClassVar[bool] = False
    estimates_camera: ClassVar[bool] = False
    averaged: ClassVar[bool] = True
    channels: ClassVar[int] = 1

    def __init__(self, name: str, meaning: str, task: str = "") -> None:
        self.name, self.meaning, self.task = name, meaning, task

    def mirrored(self, y: "Tensor") -> "Tensor":
        """Return the values of a map that has been flipped left to right."""
        return y

    def of_width(self, y: "Tensor", share: float) -> "Tensor":
        """Return what is predicted for an image, of a window or padded image that is `share` as wide."""
        return y

    def before_mean(self, y: "Tensor") -> "Tensor":
        """Return what is averaged over windows, flips and scales."""
        return y

    def after_mean(self, y: "Tensor") -> "Tensor":
        """Return the prediction from the mean of `before_mean`."""
        return y

    def finished(self, y: "Tensor") -> "Tensor":
        """Return the prediction after the last resize."""
        return y


class DepthKind(OutputKind):
    """Depth up to scale and shift, or disparity, without unit."""

    is_depth = True


class MetricDepthKind(DepthKind):
    """Depth in metres."""

    is_metric = True


class ClassesKind(OutputKind):
    """Logits of classes, for each image."""

    has_classes = True
    image_level = True


class LabelsKind(OutputKind):
    """Logits of classes, for each pixel; averaged as probabilities."""

    has_classes = True

    def before_mean(self, y: "Tensor") -> "Tensor":
        return y.softmax(1)

    def after_mean(self, y: "Tensor") -> "Tensor":
        return y.clamp_min(TINY).log()


class NormalsKind(OutputKind):
    """Unit vectors in camera axes (right, down, forward), towards the camera."""

    channels = 3

    def mirrored(self, y: "Tensor") -> "Tensor":
        return y * y.new_tensor([-1.0, 1.0, 1.0])[:, None, None]

    def before_mean(self, y: "Tensor") -> "Tensor":
        return self.finished(y)

    def finished(self, y: "Tensor") -> "Tensor":
        lengths: Tensor = y.norm(2, 1, keepdim=True)
        return y / lengths.clamp_min(1e-12)


class UncertaintyKind(OutputKind):
    """The scale of the error of a depth head."""

    auxiliary = True

    def finished(self, y: "Tensor") -> "Tensor":
        return y.clamp_min(LEAST_SCALE)  # which bicubic resizing overshoots, even below 0


class FocalKind(OutputKind):
    """The focal length over the width of the image."""

    auxiliary = True
    image_level = True
    estimates_camera = True

    def of_width(self, y: "Tensor", share: float) -> "Tensor":
        return y * share


class SegmentsKind(OutputKind):
    """Logits of the masks of queries; their classes come as `HEAD/classes` (densevit.ops.segments merges them)."""

    averaged = False
    channels = 0

    def before_mean(self, y: "Tensor") -> "Tensor":
        raise ConfigError(f"flip and scales: the queries of {self.meaning} are those of one image; leave them out.")


class QueryClassesKind(OutputKind):
    """Logits of the classes of queries, q k numbers; the last class of each query is `no object`."""

    auxiliary = True
    image_level = True
    averaged = False
    channels = 0


OUTPUT_KINDS: dict[str, OutputKind] = {}
"""By name."""


def register(*kinds: OutputKind) -> None:
    """Add output kinds. Raises ConfigError: a kind of that name exists."""
    for kind in kinds:
        if kind.name in OUTPUT_KINDS:
            raise ConfigError(f"output kind '{kind.name}' is registered twice.")
        OUTPUT_KINDS[kind.name] = kind


register(
    MetricDepthKind("metric", "metric depth", "depth"),
    DepthKind("affine", "depth up to scale and shift", "depth"),
    DepthKind("disparity", "disparity", "depth"),
    ClassesKind("class", "classes of whole images", "classification"),
    LabelsKind("labels", "classes of pixels", "segmentation"),
    NormalsKind("normals", "surface normals", "normals"),
    UncertaintyKind("uncertainty", "the scale of the error of depth"),
    FocalKind("focal", "the focal length"),
    SegmentsKind("panoptic", "panoptic segments", "panoptic"),
    SegmentsKind("instances", "instances", "instances"),
    QueryClassesKind("query_classes", "the classes of queries"),
)

DEPTH_KINDS = tuple(name for name, kind in OUTPUT_KINDS.items() if kind.is_depth)
"""Names of the kinds that are depth, metric first."""


def scored_kinds(name: str) -> Collection[str]:
    """Return the kinds of ground truth (`DepthKind`) that depth of a kind is scored by: metres; of depth without unit,
    which is aligned, also what is known up to a scale."""
    return ("metric",) if name == "metric" else ("metric", "relative")


def output_kind(name: str) -> OutputKind:
    """Return the output kind of this name. Raises ConfigError: there is none; a plug-in may have to be loaded."""
    if name not in OUTPUT_KINDS:
        raise ConfigError(f"no output kind '{name}'; it may come from a plug-in. Known: {', '.join(OUTPUT_KINDS)}.")
    return OUTPUT_KINDS[name]


def meanings(names: Iterable[str]) -> str:
    """Return the meanings of some kinds as one phrase: `metric depth or disparity`."""
    return " or ".join(output_kind(name).meaning for name in names)


def argmax_or_ignore(logits: Float[Tensor, "b k h w"]) -> Int64[Tensor, "b h w"]:
    """Return the class of each pixel; IGNORE where the logits are not all finite, as outside a window."""
    return torch.where(logits.isfinite().all(1), logits.argmax(1), IGNORE)
