"""A plug-in for benchmarks/2026-11-24-self-supervised.md: the transform `thin_depth` keeps a few pixels of depth."""

import zlib
from dataclasses import replace

import numpy as np

from densevit.data.transforms.affine import TRANSFORMS, Transform
from densevit.structures import Sample


@TRANSFORMS.register("thin_depth")
class ThinDepth(Transform):
    """Keeps this share of the pixels with depth, the same ones of an image in every epoch."""

    def __init__(self, *, share: float = 0.01) -> None:
        self.share = share

    def __call__(self, sample: Sample, rng: np.random.Generator) -> Sample:
        assert sample.depth is not None and sample.valid is not None
        own = np.random.default_rng(zlib.crc32(sample.name.encode()))
        valid = sample.valid & (own.random(sample.valid.shape) < self.share)
        return replace(sample, depth=np.where(valid, sample.depth, np.float32(0)), valid=valid)
