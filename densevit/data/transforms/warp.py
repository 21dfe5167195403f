"""Geometric transforms of samples: image, ground truth and camera; consecutive ones in one warp.

Pixels from outside the image are black, depth and normals 0, not valid, label 255 (`data/fields.py`).
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from densevit.data.fields import FIELDS, warp_sample
from densevit.data.transforms.affine import AffineStep, Transform
from densevit.structures import Sample, Size


class GeometricTransform(Transform):
    """A transform that only moves pixels. `Pipeline` applies consecutive ones in one warp."""

    @abstractmethod
    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        """Draw the parameters for an image of this size."""

    def draw_for(self, view: "LazySample", rng: np.random.Generator) -> AffineStep:
        """Draw the parameters for this sample; most transforms need its size only."""
        return self.draw(view.size, rng)

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        view = LazySample.of(sample)
        return view.transform(self.draw_for(view, rng)).render()


class Pipeline(Transform):
    """Applies transforms in order (torchvision's Compose), and resamples once for consecutive geometric ones.

    Rotation, scale, crop and flip then cost one warp of the pixels that the crop keeps. The result is that of one
    by one, except that corners which a rotation alone would leave empty are filled where the image has them.
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = tuple(transforms)

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        view = LazySample.of(sample)
        for transform in self.transforms:
            if isinstance(transform, GeometricTransform):
                view = view.transform(transform.draw_for(view, rng))
            else:
                view = LazySample.of(transform(view.render(), rng))
        return view.render()


def compose(transforms: Sequence[Transform]) -> Pipeline:
    """Return all of them in order; a pipeline among them counts as its transforms, so that its last warp joins the
    next."""
    steps = (step.transforms if isinstance(step, Pipeline) else (step,) for step in transforms)
    return Pipeline([transform for step in steps for transform in step])


@dataclass(frozen=True)
class LazySample:
    """A sample with the affine transform that is still to be applied to it."""

    sample: Sample
    pending: AffineStep

    @classmethod
    def of(cls, sample: Sample) -> "LazySample":
        h, w = sample.image.shape[:2]
        return cls(sample, AffineStep((h, w)))

    @property
    def size(self) -> Size:
        return self.pending.size

    def transform(self, step: AffineStep) -> "LazySample":
        if self.pending.crops and not step.is_exact:
            # Resampling at the border would bring back what was cropped, such as NYU's white border.
            return LazySample.of(self.render()).transform(step)
        joined = AffineStep(
            size=step.size,
            matrix=step.matrix @ self.pending.matrix,
            depth_divisor=step.depth_divisor * self.pending.depth_divisor,
            crops=step.crops or self.pending.crops,
        )
        return LazySample(self.sample, joined)

    def labels(self) -> Int64[np.ndarray, "h w"] | None:
        """Return the labels of `render` without the rest."""
        labels = self.sample.labels
        return None if labels is None else FIELDS["labels"].warp(labels, self.pending, self.sample)

    def render(self) -> Sample:
        step = self.pending
        unmoved = step.size == self.sample.image.shape[:2] and np.array_equal(step.matrix, np.eye(3))
        if unmoved and step.depth_divisor == 1:
            return self.sample
        return warp_sample(self.sample, step)
