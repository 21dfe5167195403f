"""Calibrations of metric depth: a correction that was measured on images and is part of a model card."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from densevit.depth_corrections import Calibration
from densevit.ops.align import robust_line

FORMS = ("identity", "scale", "affine", "log_affine")
LEAST = 1e-3  # metres: no calibration gives less

Values = Float64[np.ndarray, " n"]


def calibrate(depth: Float[Tensor, "*shape"], calibration: Calibration) -> Float[Tensor, "*shape"]:
    """Depth in metres, corrected: a depth + b, or exp(a log(depth) + b)."""
    a, b = calibration.a, calibration.b
    if calibration.form == "log_affine":
        return (a * depth.clamp(min=LEAST).log() + b).exp()
    return torch.clamp(a * depth + b, min=LEAST)


def uncalibrate(depth: Float[Tensor, "*shape"], calibration: Calibration) -> Float[Tensor, "*shape"]:
    """Return the depth that `calibrate` makes this depth of."""
    a, b = calibration.a, calibration.b
    if calibration.form == "log_affine":
        return ((depth.clamp(min=LEAST).log() - b) / a).exp()
    return torch.clamp((depth - b) / a, min=LEAST)


def fit_calibration(form: Any, depth: Values, truth: Values) -> Calibration:
    """The correction of a form, robust against outliers, of relative errors."""
    if form == "scale":
        return Calibration(form=form, a=float(np.exp(np.median(np.log(truth / depth)))))
    if form == "affine":
        a, b = robust_line(depth, truth, 1 / truth)
        return Calibration(form=form, a=a, b=b)
    a, b = robust_line(np.log(depth), np.log(truth), np.ones_like(depth))
    return Calibration(form=form, a=a, b=b)
