"""How well a predicted uncertainty tells the error: coverage of intervals, and sparsification (Ilg et al. 2018).

AUSE and AURG are those of mono-uncertainty (Poggi et al. 2020): `evaluate.py` of mattpoggi/mono-uncertainty.
"""

from itertools import pairwise

import numpy as np
from jaxtyping import Float64

from densevit.depth_corrections import Interval
from densevit.ops.intervals import area, laplace_interval, sparsification, widths
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
                place = percent * (len(model) - 1) // 100
                row[f"sparsification@{percent}%"] = float(model[place])
                row[f"oracle@{percent}%"] = float(oracle[place])
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
