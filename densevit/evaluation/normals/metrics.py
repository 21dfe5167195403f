"""Angular errors of surface normals (Eigen and Fergus 2015; Bae et al. 2021). h x w pixels, degrees."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Float32

from densevit.errors import DataError
from densevit.evaluation.metrics import register_metrics
from densevit.structures import Row

WITHIN = (5.0, 7.5, 11.25, 22.5, 30.0)
FORMULAE = {
    "mean": "mean(a) in degrees, with a the angle between predicted and true normal",
    "median": "median(a) in degrees",
    "rmse": "sqrt(mean(a^2)) in degrees",
}
LARGER = {f"within_{limit:g}": f"percentage of pixels with a < {limit:g} degrees" for limit in WITHIN}
register_metrics("normals", FORMULAE)
register_metrics("normals", LARGER, "max")

Normals = Float[np.ndarray, "_ _ 3"]  # maps that may not fit each other


def angular_errors(prediction: Normals, truth: Normals) -> Float32[np.ndarray, " n"]:
    """The angle of every pixel with a true normal; 180 degrees where the prediction is none (0 or not finite). Raises
    DataError if the maps differ in size."""
    if prediction.shape != truth.shape:
        raise DataError(f"the prediction is {prediction.shape}, the ground truth {truth.shape} (h, w, 3).")
    known = (truth != 0).any(axis=2)
    p, t = prediction[known].astype(np.float64), truth[known].astype(np.float64)
    lengths = np.linalg.norm(p, axis=1) * np.linalg.norm(t, axis=1)
    usable = np.isfinite(lengths) & (lengths > 0)
    cosine = np.divide((p * t).sum(1), lengths, out=np.full(len(p), -1.0), where=usable)
    angles: Float32[np.ndarray, " n"] = np.degrees(np.arccos(cosine.clip(-1, 1))).astype(np.float32)
    return angles


def summarise(errors: Float32[np.ndarray, " n"]) -> Row:
    """The scores of one or more pixels."""
    wide = errors.astype(np.float64)
    return {
        "mean": float(wide.mean()),
        "median": float(np.median(wide)),
        "rmse": float(np.sqrt((wide * wide).mean())),
        **{f"within_{limit:g}": float(100 * (wide < limit).mean()) for limit in WITHIN},
    }


def score(prediction: Normals, truth: Normals) -> Row:
    """The scores of one image; empty where no true normal is known."""
    errors = angular_errors(prediction, truth)
    return summarise(errors) if len(errors) else {}


def mean_row(rows: Sequence[Row]) -> Row:
    """The mean of each score over images."""
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
