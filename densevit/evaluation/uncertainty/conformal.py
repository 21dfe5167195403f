"""Intervals of depth that hold a given share of pixels: split conformal prediction by predicted distance.

The score of a pixel is |ln p - ln d| / b with its predicted scale b (Angelopoulos and Bates 2021, section 2.3), and the
factor of a distance is a quantile of the scores of pixels predicted there (Mondrian conformal prediction, Vovk et al.
2003). Pixels of an image are not exchangeable, images are: the quantile's correction counts images, and what is
guaranteed is the coverage of pixels of further images of the same kind on average, not of each single image.
"""

from collections.abc import Iterable
from math import ceil

import numpy as np
from jaxtyping import Float64

from densevit.depth_corrections import Interval
from densevit.errors import DataError

BINS = 8  # of predicted distance, each with as many pixels
PIXELS = 5000  # of each image, at most

Scores = tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]
"""Predicted metres and score of some pixels of an image."""


def image_scores(
    prediction: Float64[np.ndarray, " n"], depth: Float64[np.ndarray, " n"], scale: Float64[np.ndarray, " n"]
) -> Scores:
    """Of evenly spaced pixels of an image, all of them with true depth."""
    some = np.linspace(0, len(depth) - 1, min(PIXELS, len(depth))).astype(int)
    p, d, b = prediction[some], depth[some], scale[some]
    return p, np.abs(np.log(p / d)) / b


def calibrate(images: Iterable[Scores], level: float, data: str) -> Interval:
    """The interval that holds `level` of the pixels. `data`: which the images were, for the card. Raises DataError: too
    few images for this level."""
    found = [(p, s) for p, s in images if len(p)]
    n = len(found)
    least = ceil(level / (1 - level) - 1e-9)
    if n < least:
        raise DataError(f"{n} images with true depth: intervals of {level:.0%} need {least} or more.")
    depths, scores = (np.concatenate([image[i] for image in found]) for i in (0, 1))
    share = min(level * (n + 1) / n, 1.0)
    logs = np.log(depths)
    edges = np.quantile(logs, np.linspace(0, 1, BINS + 1))
    which = np.clip(np.searchsorted(edges, logs, side="right") - 1, 0, BINS - 1)
    used = [i for i in range(BINS) if (which == i).any()]  # depths that are all the same fill one
    places = np.array([np.median(logs[which == i]) for i in used])
    factors = np.array([np.quantile(scores[which == i], share) for i in used])
    places, first = np.unique(places, return_index=True)
    factors = factors[first]
    # Between the bins factors are interpolated; what that changes overall is put right by one number.
    factors *= np.quantile(scores / np.interp(logs, places, factors), share)
    return Interval(
        level=level,
        depths=tuple(float(x) for x in np.exp(places)),
        factors=tuple(float(x) for x in factors),
        images=n,
        data=data,
    )
