"""What was measured of a depth head after its training: a correction, and how wide intervals must be."""

from dataclasses import dataclass
from typing import Literal

FEW = 30  # images, under which the coverage of intervals is a matter of chance


@dataclass(frozen=True, kw_only=True)
class Interval:
    """How wide an interval of depth must be, as calibrated on images that were not trained on.

    The interval of a pixel is depth * exp(-+ factor * uncertainty), with the factor of its depth: linear in the
    logarithm of the depth between those given, and constant beyond.
    """

    level: float  # share of pixels that it shall hold
    depths: tuple[float, ...]  # predicted metres, ascending
    factors: tuple[float, ...]  # of the uncertainty, at these depths
    images: int  # that it was calibrated on
    data: str  # which these were

    def warning(self) -> str:
        """Return what makes the level doubtful, or ""."""
        if self.images >= FEW:
            return ""
        return (
            f"depth intervals of {self.level:.0%} were calibrated on {self.images} images: on others they hold more or "
            f"less than that, by chance. Calibrate on {FEW} or more."
        )


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A correction of metric depth that was measured on images: a depth + b, or exp(a log(depth) + b).

    Attributes:
        source: the data it was fitted to.
        images: their number.
        abs_rel: without and with it, mean over images that were left out of the fit.
        gain: the 95% interval of their difference.
    """

    form: Literal["identity", "scale", "affine", "log_affine"]
    a: float = 1.0
    b: float = 0.0
    source: str = ""
    images: int = 0
    abs_rel: tuple[float, float] | None = None
    gain: tuple[float, float] | None = None

    def describe(self) -> str:
        """Return the formula, as `1.13 depth + 0.05`."""
        if self.form == "log_affine":
            return f"exp({self.a:.4g} log(depth) {self.b:+.4g})"
        return "depth" if self.form == "identity" else f"{self.a:.4g} depth" + (f" {self.b:+.4g}" if self.b else "")
