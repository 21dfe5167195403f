"""The colour camera of NYU Depth v2, and the windows of its 480 x 640 images."""

from dataclasses import replace

import numpy as np

from densevit.ops.geometry import pinhole
from densevit.structures import Sample, cut

# From the data set's toolbox (camera_params.m).
INTRINSICS = pinhole(518.8579, 519.4696, 325.5824, 253.7362)

# Top, bottom, left, right. Outside PROJECTED no depth was projected, and the published test images are black; the
# images are undistorted and so have a white frame, which lies outside FRAMED (both from bts).
PROJECTED = (7, 474, 7, 632)
FRAMED = (45, 472, 43, 608)


def blackened(sample: Sample) -> Sample:
    """The image black outside PROJECTED."""
    top, bottom, left, right = PROJECTED
    image = np.zeros_like(sample.image)
    image[top:bottom, left:right] = sample.image[top:bottom, left:right]
    return replace(sample, image=image)


def masked(sample: Sample) -> Sample:
    """No depth outside FRAMED."""
    if sample.depth is None or sample.valid is None:
        return sample
    top, bottom, left, right = FRAMED
    inside = np.zeros_like(sample.valid)
    inside[top:bottom, left:right] = True
    return replace(sample, depth=np.where(inside, sample.depth, np.float32(0)), valid=sample.valid & inside)


def framed(sample: Sample) -> Sample:
    """Cut to FRAMED: 427 x 565."""
    return cut(sample, *FRAMED)
