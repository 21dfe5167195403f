"""Geometric transforms of samples: flip, rotation, crops, scale; consecutive ones of image, ground truth and camera in
one warp. Sizes are (h, w) in pixels.

Pixels from outside the image are black, depth and normals 0, not valid, label 255 (`data/fields.py`).
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Int64
from pydantic import Field

from densevit.data.fields import FIELDS, warp_sample
from densevit.data.transforms.affine import TRANSFORMS, AffineStep, Transform
from densevit.errors import ConfigError, DataError
from densevit.ops.crops import KB, NYU_SIZE, NYU_WITHOUT_BORDER, kb_box
from densevit.ops.geometry import mirror, rotate, scale, shift
from densevit.structures import IGNORE, Sample, Size

Positive = Annotated[int, Field(gt=0, le=65536)]
Sides = tuple[Positive, Positive]
Probability = Annotated[float, Field(ge=0, le=1, description="probability that the transform is applied")]
Factor = Annotated[float, Field(gt=0)]
Metric = Literal["depth", "intrinsics"]
"""What scaling by s changes. `intrinsics`: fx and fy are multiplied by s, as by a longer lens, and depth stays.
`depth`: depth is divided by s, as by a nearer camera, and fx and fy stay; exact for a fronto-parallel surface."""

TRIES = 10  # windows that a random crop draws for one with several classes


class GeometricTransform(Transform):
    """A transform that only moves pixels. `Compose` applies consecutive ones in one warp."""

    @abstractmethod
    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        """Draw the parameters for an image of this size."""

    def draw_for(self, view: "LazySample", rng: np.random.Generator) -> AffineStep:
        """Draw the parameters for this sample; most transforms need its size only."""
        return self.draw(view.size, rng)

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        view = LazySample.of(sample)
        return view.transform(self.draw_for(view, rng)).render()


class Compose(Transform):
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


def compose(transforms: Sequence[Transform]) -> Compose:
    """Return all of them in order; a pipeline among them counts as its transforms, so that its last warp joins the
    next."""
    steps = (step.transforms if isinstance(step, Compose) else (step,) for step in transforms)
    return Compose([transform for step in steps for transform in step])


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


@TRANSFORMS.register("hflip")
class HFlip(GeometricTransform):
    """Horizontal flip; the principal point is mirrored along."""

    def __init__(self, *, p: Probability = 0.5) -> None:
        self.p = p

    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        return AffineStep(size, mirror(size[1])) if rng.random() < self.p else AffineStep(size)


@TRANSFORMS.register("rotate")
class Rotate(GeometricTransform):
    """Random rotation about the centre by up to +-`degrees`; BTS uses 2.5 on NYU and 1 on KITTI.

    It is a roll of the camera about its optical axis, so depth values stay; corners from outside are not valid.
    """

    def __init__(self, *, degrees: Annotated[float, Field(ge=0, le=180)] = 2.5, p: Probability = 1.0) -> None:
        self.degrees = degrees
        self.p = p

    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        applies, angle = rng.random() < self.p, rng.uniform(-self.degrees, self.degrees)
        return AffineStep(size, rotate(angle, size)) if applies else AffineStep(size)


@TRANSFORMS.register("random_crop")
class RandomCrop(GeometricTransform):
    """Random crop of `size`; a smaller image is padded, at a random place in the window.

    With `max_share` below 1 the first of ten windows is taken that has two classes or more, none with that share of
    the labelled pixels; else the last (mmsegmentation's `cat_max_ratio`, 0.75 in its recipes).
    """

    def __init__(self, *, size: Sides, max_share: Annotated[float, Field(gt=0, le=1)] = 1.0) -> None:
        self.size = size
        self.max_share = max_share

    def draw_for(self, view: LazySample, rng: np.random.Generator) -> AffineStep:
        step = self.draw(view.size, rng)
        for _ in range(TRIES - 1 if self.max_share < 1 else 0):
            labels = view.transform(step).labels()
            if labels is None or has_several_classes(labels, self.max_share):
                break
            step = self.draw(view.size, rng)
        return step

    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        margins = [old - new for old, new in zip(size, self.size, strict=True)]
        top, left = (int(rng.integers(min(0, s), max(0, s) + 1)) for s in margins)
        return window(top, left, self.size)


@TRANSFORMS.register("center_crop")
class CenterCrop(GeometricTransform):
    """Centre crop of `size`; a smaller image is padded on all sides."""

    def __init__(self, *, size: Sides) -> None:
        self.size = size

    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        top, left = ((old - new) // 2 for old, new in zip(size, self.size, strict=True))
        return window(top, left, self.size)


@TRANSFORMS.register("crop_box")
class CropBox(GeometricTransform):
    """Crops rows [a, b) and columns [a, b) of every image."""

    def __init__(self, *, rows: tuple[int, int], columns: tuple[int, int]) -> None:
        for name, (start, stop) in {"rows": rows, "columns": columns}.items():
            if not 0 <= start < stop:
                raise ConfigError(f"crop_box.{name}: needs 0 <= start < stop, got {[start, stop]}.")
        self.rows = rows
        self.columns = columns

    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        if self.rows[1] > size[0] or self.columns[1] > size[1]:
            raise DataError(
                f"rows {list(self.rows)} and columns {list(self.columns)} do not lie in a {size[0]}x{size[1]} image."
            )
        return window(self.rows[0], self.columns[0], (self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]))


@TRANSFORMS.register("nyu_crop")
class NYUCrop(CropBox):
    """Cuts the white frame off a 480x640 image of NYU Depth v2, as BTS does before its random crop."""

    def __init__(self) -> None:
        super().__init__(rows=NYU_WITHOUT_BORDER[:2], columns=NYU_WITHOUT_BORDER[2:])

    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        if size != NYU_SIZE:
            raise DataError(f"nyu_crop is for the 480x640 images of NYU Depth v2, this one is {size[0]}x{size[1]}.")
        return super().draw(size, rng)


@TRANSFORMS.register("kb_crop")
class KBCrop(GeometricTransform):
    """The bottom 352 rows and middle 1216 columns: the KITTI benchmark's crop, one size for all drives."""

    def __init__(self) -> None: ...

    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        top, _, left, _ = kb_box(size)
        return window(top, left, KB)


@TRANSFORMS.register("resize")
class Resize(GeometricTransform):
    """Resizes to `size`, or to `short_side` or `long_side` at the same aspect ratio. Intrinsics scale; depth stays."""

    def __init__(
        self, *, size: Sides | None = None, short_side: Positive | None = None, long_side: Positive | None = None
    ) -> None:
        if [size, short_side, long_side].count(None) != 2:
            raise ConfigError("resize: give one of size (h, w), short_side and long_side.")
        self.size = size
        self.short_side = short_side
        self.long_side = long_side

    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        factor = self.short_side / min(size) if self.short_side else (self.long_side or 0) / max(size)
        return zoom(size, self.size or _scaled(size, factor))


@TRANSFORMS.register("random_scale")
class RandomScale(GeometricTransform):
    """Scales the image by a factor drawn uniformly from `range`; a crop usually follows."""

    def __init__(
        self, *, range: tuple[Factor, Factor] = (1.0, 1.5), metric: Metric = "depth", p: Probability = 1.0
    ) -> None:
        self.range = ordered("random_scale.range", range)
        self.metric = metric
        self.p = p

    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        applies, factor = rng.random() < self.p, rng.uniform(*self.range)
        return zoom(size, _scaled(size, factor), self.metric) if applies else AffineStep(size)


@TRANSFORMS.register("random_resized_crop")
class RandomResizedCrop(GeometricTransform):
    """Crop a window of the aspect ratio of `size` and resize it to `size`.

    The sides of the window are a share, drawn from `range`, of those of the largest one that fits.

    Only the share is a zoom, which `metric` says how to account for. The largest window changes neither depth nor the
    field of view, as `resize` does for validation and prediction.
    """

    def __init__(
        self,
        *,
        size: Sides,
        range: tuple[Annotated[float, Field(gt=0, le=1)], Annotated[float, Field(gt=0, le=1)]] = (0.5, 1.0),
        metric: Metric = "depth",
    ) -> None:
        self.size = size
        self.range = ordered("random_resized_crop.range", range)
        self.metric = metric

    def draw(self, size: Size, rng: np.random.Generator) -> AffineStep:
        share = rng.uniform(*self.range)
        largest = min(size[0] / self.size[0], size[1] / self.size[1])
        side = _scaled(self.size, largest * share)
        top, left = (int(rng.integers(old - new + 1)) for old, new in zip(size, side, strict=True))
        zoomed = zoom(side, self.size).matrix @ shift(-left, -top)
        divisor = largest * math.sqrt(self.size[0] * self.size[1] / (side[0] * side[1]))
        return AffineStep(self.size, zoomed, divisor if self.metric == "depth" else 1.0, crops=True)


def has_several_classes(labels: Int64[np.ndarray, "h w"], max_share: float) -> bool:
    """Return whether at least two classes occur, none with this share of the labelled pixels or more."""
    counts = np.bincount(labels[labels != IGNORE])
    return bool(np.count_nonzero(counts) > 1 and counts.max() < max_share * counts.sum())


def window(top: int, left: int, size: Size) -> AffineStep:
    return AffineStep(size, shift(-left, -top), crops=True)


def zoom(size: Size, to: Size, metric: Metric = "intrinsics") -> AffineStep:
    y, x = (new / old for new, old in zip(to, size, strict=True))
    return AffineStep(to, scale(x, y), depth_divisor=math.sqrt(x * y) if metric == "depth" else 1.0)


def ordered(option: str, bounds: tuple[float, float]) -> tuple[float, float]:
    if bounds[0] > bounds[1]:
        raise ConfigError(f"{option}: the first is the smaller one, got {list(bounds)}.")
    return bounds


def _scaled(size: Size, factor: float) -> Size:
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))
