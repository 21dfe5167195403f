"""Photometric transforms, and a wrapper of every image-only transform of albumentations.

albumentations is imported here only, and only when a transform needs it: that takes two seconds. Its transforms
keep a random generator of their own, which forked workers would share and repeat; here each call is seeded from `rng`.
"""

import os
import warnings
from dataclasses import replace
from types import ModuleType
from typing import Annotated, Any, cast

import cv2
import numpy as np
from jaxtyping import Float64, UInt8
from pydantic import Field

from densevit.data.transforms.affine import TRANSFORMS, Transform
from densevit.data.transforms.geometric import Factor, Probability, ordered
from densevit.errors import ConfigError, DataError
from densevit.registry import did_you_mean
from densevit.structures import Sample

Image = UInt8[np.ndarray, "h w 3"]
Range = tuple[Factor, Factor]
Turn = Annotated[float, Field(ge=-0.5, le=0.5)]


def albumentations() -> ModuleType:
    # Its import asks PyPI for a newer version otherwise.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    import albumentations as library  # type: ignore[import-untyped]

    return cast(ModuleType, library)


@TRANSFORMS.register("color")
class Color(Transform):
    """Colour jitter: each factor is drawn uniformly from its range.

    The defaults are those of BTS on NYU (`bts_dataloader.py`; AdaBins and its followers keep them); on KITTI its
    brightness is (0.9, 1.1).

    Args:
        gamma: exponent of values in [0, 1].
        brightness: factor of all channels.
        channels: factor of each channel, drawn for each.
        contrast: factor of the distance to the mean of the image.
        saturation: 0 is grey, 1 unchanged.
        hue: shift of the hue as a fraction of a full turn, as in torchvision.
    """

    def __init__(
        self,
        *,
        gamma: Range = (0.9, 1.1),
        brightness: Range = (0.75, 1.25),
        channels: Range = (0.9, 1.1),
        contrast: Range = (1.0, 1.0),
        saturation: Range = (1.0, 1.0),
        hue: tuple[Turn, Turn] = (0.0, 0.0),
        p: Probability = 0.5,
    ) -> None:
        self.gamma = ordered("color.gamma", gamma)
        self.brightness = ordered("color.brightness", brightness)
        self.channels = ordered("color.channels", channels)
        self.contrast = ordered("color.contrast", contrast)
        self.saturation = ordered("color.saturation", saturation)
        self.hue = ordered("color.hue", hue)
        self.p = p
        tinted = saturation != (1.0, 1.0) or hue != (0.0, 0.0)
        self.jitter = albumentations().ColorJitter(p=1) if tinted else None

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        if rng.random() >= self.p:
            return sample
        return replace(sample, image=self._shift_saturation_and_hue(self._adjust_light(sample.image, rng), rng))

    def _adjust_light(self, image: Image, rng: np.random.Generator) -> Image:
        contrast, gamma, brightness = (rng.uniform(*r) for r in (self.contrast, self.gamma, self.brightness))
        factors = brightness * rng.uniform(*self.channels, size=3)
        mean = sum(cv2.mean(image)[:3]) / (3 * 255) if contrast != 1 else 0.0
        return cast(Image, cv2.LUT(image, light_table(mean, contrast, gamma, factors)))

    def _shift_saturation_and_hue(self, image: Image, rng: np.random.Generator) -> Image:
        if self.jitter is None:
            return image
        saturation, hue = rng.uniform(*self.saturation), rng.uniform(*self.hue)
        factors = {"brightness": 1.0, "contrast": 1.0, "saturation": saturation, "hue": hue}
        return cast(Image, self.jitter.apply(image, **factors, order=[2, 3]))


def light_table(
    mean: float, contrast: float, gamma: float, factors: Float64[np.ndarray, "3"]
) -> UInt8[np.ndarray, "1 256 3"]:
    """Return what each of the 256 values of each channel becomes: all steps in one look-up, rounded once. `mean`: of
    the image in [0, 1]; contrast leaves it where it is."""
    values = np.linspace(0, 1, 256)[:, None]
    stretched = np.clip((values - mean) * contrast + mean, 0, 1)
    table: UInt8[np.ndarray, "256 3"] = np.rint(np.clip(stretched**gamma * factors, 0, 1) * 255).astype(np.uint8)
    return table[None]


class ImageOnlyTransform(Transform):
    """An image-only transform of albumentations, seeded from our generator."""

    def __init__(self, transform: Any, p: float) -> None:
        self.transform = transform
        self.p = p

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        if rng.random() >= self.p:
            return sample
        self.transform.set_random_seed(int(rng.integers(2**32)))
        image = self.transform(image=sample.image)["image"]
        if image.shape != sample.image.shape:
            name, came = type(self.transform).__name__, sample.image.shape
            raise DataError(
                f"albumentations' {name} makes {image.shape} of an image {came}; a transform keeps its shape."
            )
        return replace(sample, image=image)


@TRANSFORMS.register("blur")
class Blur(ImageOnlyTransform):
    """Gaussian blur with a sigma, in pixels, drawn from a range."""

    def __init__(self, *, sigma: Range = (0.3, 1.5), p: Probability = 0.1) -> None:
        sigma = ordered("blur.sigma", sigma)
        super().__init__(albumentations().GaussianBlur(blur_limit=0, sigma_limit=sigma, p=1), p)


@TRANSFORMS.register("noise")
class Noise(ImageOnlyTransform):
    """Gaussian noise of each pixel and channel; `std` is a share of the full range."""

    def __init__(self, *, std: Range = (0.01, 0.04), p: Probability = 0.1) -> None:
        std = ordered("noise.std", std)
        super().__init__(albumentations().GaussNoise(std_range=std, p=1), p)


@TRANSFORMS.register("grayscale")
class Grayscale(ImageOnlyTransform):
    """Luminance in all three channels."""

    def __init__(self, *, p: Probability = 0.05) -> None:
        super().__init__(albumentations().ToGray(num_output_channels=3, p=1), p)


@TRANSFORMS.register("albumentations")
class Albumentations(ImageOnlyTransform):
    """Any image-only transform of albumentations, by its class name there.

    Geometric ones are refused: albumentations knows neither intrinsics nor that scaling changes metric depth.
    """

    def __init__(self, *, name: str, options: dict[str, Any] | None = None, p: Probability = 0.5) -> None:
        library = albumentations()
        base = library.ImageOnlyTransform
        names = [key for key, value in vars(library).items() if isinstance(value, type) and issubclass(value, base)]
        if name not in names:
            raise ConfigError(f"albumentations.name: no image-only transform '{name}'.{did_you_mean(name, names)}")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # which is all that albumentations has to say of an unknown option
                transform = getattr(library, name)(**(options or {}), p=1)
        except (TypeError, ValueError, UserWarning) as error:
            raise ConfigError(f"albumentations.options: {name} refuses {options}: {error}") from error
        super().__init__(transform, p)


@TRANSFORMS.register("depth_range")
class DepthRange(Transform):
    """Depth outside [near, far] metres counts as not measured, and so do normals there, which may follow from it."""

    def __init__(self, *, near: Annotated[float, Field(ge=0)] = 1e-3, far: Factor = 80.0) -> None:
        if near >= far:
            raise ConfigError(f"depth_range: near must lie below far, got {near} and {far}.")
        self.near = near
        self.far = far

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        if sample.depth is None or sample.valid is None:
            return sample
        valid = sample.valid & (sample.depth >= self.near) & (sample.depth <= self.far)
        normals = None if sample.normals is None else sample.normals * (valid | ~sample.valid)[..., None]
        return replace(sample, depth=np.where(valid, sample.depth, np.float32(0)), valid=valid, normals=normals)
