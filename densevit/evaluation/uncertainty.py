"""How well a predicted uncertainty matches the error (Ilg et al. 2018), and intervals for a given share of pixels.

AUSE and AURG are those of mono-uncertainty (Poggi et al. 2020): `evaluate.py` of mattpoggi/mono-uncertainty.
"""

from collections.abc import Iterable
from itertools import pairwise
from math import ceil

import numpy as np
from jaxtyping import Float64

from densevit.depth_corrections import Interval
from densevit.errors import DataError
from densevit.ops.calibration import area, laplace_interval, sparsification, widths
from densevit.structures import Row

LEVEL = 0.9  # of intervals that were not calibrated
LEAST = 0.01  # share of an image's pixels in a range of distance under which it says nothing of it
CURVE = range(0, 100, 10)  # percent taken out, at which the curve is reported

Pixels = Float64[np.ndarray, " n"]


def uncertainty_metrics(
    prediction: Pixels, depth: Pixels, scale: Pixels, interval: Interval | None, distances: tuple[int, ...]
) -> Row:
    """
    Args:
        prediction: metres, aligned where the model gives no unit.
        scale: relative: of the error of the natural logarithm.
        interval: as calibrated; None takes the Laplace distribution's own interval of 90 %.
        distances: metres at which the ranges of distance begin and end.
    """
    logs = np.log(prediction / depth)
    covered = np.abs(logs) <= widths(prediction, scale, interval or laplace_interval(LEVEL))
    row = {"coverage": float(covered.mean())}
    for name, metres in (("coverage", depth), ("coverage_predicted", prediction)):
        which = np.digitize(metres, distances) - 1
        for i, (near, far) in enumerate(pairwise(distances)):
            inside = which == i
            if inside.mean() >= LEAST:
                row[f"{name}@{near}-{far}m"] = float(covered[inside].mean())
    relative = np.abs(prediction - depth) / depth
    squares = (prediction - depth) ** 2
    outside = (np.abs(logs) >= np.log(1.25)).astype(np.float64)
    # The absolute scale: what is large in metres ranks the RMSE.
    kinds = {
        "abs_rel": (relative, scale, relative),
        "rmse": (squares, scale * prediction, squares),
        "d1": (outside, scale, np.abs(logs)),
    }
    for name, (errors, ranking, truth) in kinds.items():
        model, oracle = sparsification(errors, ranking), sparsification(errors, truth)
        if name == "rmse":
            model, oracle = np.sqrt(model), np.sqrt(oracle)
        random = np.append(np.full(len(model) - 1, model[0]), 0.0)
        row[f"ause_{name}"] = area(model) - area(oracle)
        row[f"ause_{name}_random"] = area(random) - area(oracle)
        row[f"aurg_{name}"] = area(random) - area(model)
        if name == "abs_rel":
            for percent in CURVE:
                index = percent * (len(model) - 1) // 100
                row[f"sparsification@{percent}%"] = float(model[index])
                row[f"oracle@{percent}%"] = float(oracle[index])
    return row


FORMULAE = {
    "coverage": "share of pixels whose true depth lies in the predicted interval; by true distance",
    "coverage_predicted": "the same by predicted distance, at which intervals are calibrated",
    "sparsification": "AbsRel without the share of pixels that the model is least certain of",
    "oracle": "AbsRel without the share of pixels whose errors are largest",
    **{
        name: text
        for error, what in (("abs_rel", "AbsRel"), ("rmse", "RMSE"), ("d1", "the share outside of 1.25"))
        for name, text in (
            (f"ause_{error}", f"area between the sparsification curve of {what} and that of the true errors"),
            (f"ause_{error}_random", "the same of a random uncertainty"),
            (f"aurg_{error}", f"area between the curve of {what} of a random uncertainty and the model's"),
        )
    },
}


BINS = 8  # of predicted distance, each with as many pixels
PIXELS = 5000  # of each image, at most

Scores = tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, " n"]]
"""Predicted metres and score of some pixels of an image."""


def image_scores(
    prediction: Float64[np.ndarray, " n"], depth: Float64[np.ndarray, " n"], scale: Float64[np.ndarray, " n"]
) -> Scores:
    """Return the scores of evenly spaced pixels of an image, all of them with true depth."""
    some = np.linspace(0, len(depth) - 1, min(PIXELS, len(depth))).astype(int)
    p, d, b = prediction[some], depth[some], scale[some]
    return p, np.abs(np.log(p / d)) / b


def fit_interval(images: Iterable[Scores], level: float, data: str) -> Interval:
    """Return the interval that holds `level` of the pixels: split conformal prediction by predicted distance.

    The score of a pixel is |ln p - ln d| / b with its predicted scale b (Angelopoulos and Bates 2021, section 2.3), and
    the factor of a distance is a quantile of the scores of pixels predicted there (Mondrian conformal prediction, Vovk
    et al. 2003). Pixels of an image are not exchangeable, images are: the quantile's correction counts images, and what
    is guaranteed is the coverage of pixels of further images of the same kind on average, not of each single image.
    `data`: which the images were, for the card. Raises DataError: too few images for this level.
    """
    measured = [(p, s) for p, s in images if len(p)]
    n = len(measured)
    least = ceil(level / (1 - level) - 1e-9)
    if n < least:
        raise DataError(f"{n} images with true depth: intervals of {level:.0%} need {least} or more.")
    depths, scores = (np.concatenate([image[i] for image in measured]) for i in (0, 1))
    share = min(level * (n + 1) / n, 1.0)
    logs = np.log(depths)
    edges = np.quantile(logs, np.linspace(0, 1, BINS + 1))
    which = np.clip(np.searchsorted(edges, logs, side="right") - 1, 0, BINS - 1)
    used = [i for i in range(BINS) if (which == i).any()]  # depths that are all the same fill one
    centres = np.array([np.median(logs[which == i]) for i in used])
    factors = np.array([np.quantile(scores[which == i], share) for i in used])
    centres, first = np.unique(centres, return_index=True)
    factors = factors[first]
    # Between the bins factors are interpolated; what that changes overall is put right by one number.
    factors *= np.quantile(scores / np.interp(logs, centres, factors), share)
    return Interval(
        level=level,
        depths=tuple(float(x) for x in np.exp(centres)),
        factors=tuple(float(x) for x in factors),
        images=n,
        data=data,
    )
