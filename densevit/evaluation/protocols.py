"""The field's evaluation protocols: one table of frozen rows, each a way to turn a depth map into numbers.

Maps are h x w numpy arrays; depth in metres. docs/evaluation.md shows what each counts in a frame of each size.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Shaped

from densevit.errors import ConfigError, DataError
from densevit.evaluation.depth_metrics import depth_metrics
from densevit.evaluation.placing import place
from densevit.evaluation.regions import EIGEN_NYU, GARG, Box, Fixed, Share, kb_box, spell
from densevit.ops.align import ALIGNMENTS

Row = dict[str, float]
"""The scores of one image: its metrics and its counts; empty where no truth counts."""

COUNTS = ("pixels", "invalid_predictions", "resized")
"""Counts of a row: pixels scored; those predicted NaN, infinite or not over 0; 1 if the prediction was resized."""

Map = Shaped[np.ndarray, "..."]
Alignment = Literal["median", "lstsq", "lstsq_disparity"]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What is compared, where, and how.

    Attributes:
        words: whose it is.
        range: metres between which truth counts, the ends excluded, and to which predictions are clamped.
        range_of_data: the range is the data set's to say.
        region: the part of the frame that counts; None is all of it.
        region_of: what the region's shares are shares of.
        window: the part of the frame that the network is shown; None is all of it.
        align: how predictions without unit are fitted to each image's truth; None takes them for metres.
    """

    name: str
    words: str
    range: tuple[float, float]
    range_of_data: bool = False
    region: Share | Fixed | None = None
    region_of: Literal["frame", "window"] = "frame"
    window: Literal["kb"] | None = None
    align: Alignment | None = None

    def __post_init__(self) -> None:
        low, high = self.range
        if not 0 < low < high < np.inf:
            raise ConfigError(
                f"protocol '{self.name}': a range is 0 < near < far < inf in metres, got {low} to {high}."
            )

    def input_box(self, h: int, w: int) -> Box | None:
        """The window of an h x w frame that the network is shown; None is the whole.

        Raises:
            DataError: the frame is smaller than the window.
        """
        return kb_box((h, w)) if self.window == "kb" else None

    def score_box(self, h: int, w: int) -> Box:
        """The pixels of an h x w frame that count, if they have truth.

        Raises:
            DataError: the protocol is not defined at this size.
        """
        if self.region is None:
            return 0, h, 0, w
        top, bottom, left, right = self._window(h, w) if self.region_of == "window" else (0, h, 0, w)
        y0, y1, x0, x1 = self.region.box((bottom - top, right - left))
        return top + y0, top + y1, left + x0, left + x1

    def for_range(self, near: float, far: float) -> "Protocol":
        """Itself with the range of a data set, in metres, if the protocol leaves that open; else unchanged."""
        return replace(self, range=(near, far)) if self.range_of_data else self

    def aligned(self, how: Alignment) -> "Protocol":
        """The same for predictions without unit, under a name of its own.

        Raises:
            ConfigError: an unknown alignment.
        """
        if how not in ALIGNMENTS:
            raise ConfigError(f"no alignment '{how}'. Known: {', '.join(ALIGNMENTS)}.")
        return replace(self, name=f"{self.name}+{how}", align=how)

    def score(
        self, prediction: Float[np.ndarray, "_ _"], depth: Float[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"]
    ) -> Row:
        """Metrics and counts of one image; empty where no truth counts.

        A prediction of NaN or not over the nearest depth is scored as that, an infinite one as the furthest: published
        programs do so in silence, here they are counted.

        Raises:
            DataError: maps that do not fit each other or the protocol.
        """
        _check(prediction, depth, valid)
        h, w = depth.shape
        low, high = self.range
        frame, resized = place(prediction, (h, w), self._window(h, w))
        y0, y1, x0, x1 = self.score_box(h, w)
        d = depth[y0:y1, x0:x1]
        counted = valid[y0:y1, x0:x1] & (d > low) & (d < high)
        if not counted.any():
            return {}
        p, d = frame[y0:y1, x0:x1][counted].astype(np.float64), d[counted].astype(np.float64)
        if self.align is not None:
            p = ALIGNMENTS[self.align](p, d, high)
        usable = (p > 0) & (p < np.inf)
        p[np.isnan(p)] = low
        scores = depth_metrics(p.clip(low, high, out=p), d)
        return scores | {
            "pixels": float(p.size),
            "invalid_predictions": float(p.size - np.count_nonzero(usable)),
            "resized": float(resized),
        }

    def describe(self, h: int | None = None, w: int | None = None) -> str:
        """The protocol in plain words, with the pixels it means in an h x w frame where one is given.

        Raises:
            DataError: it is not defined at this size.
        """
        near, far = (f"{metres:g} m" for metres in self.range)
        where = "in the whole frame" if self.region is None else self.region.words(self.region_of)
        if h is not None and w is not None:
            box = spell(self.score_box(h, w))
            where += "" if box in where else f" ({box} of a {h}x{w} frame)"
        return " ".join(
            [
                f"{self.name}: {self.words}",
                f"Truth counts {where}, where it is over {near} and under {far}.",
                SHOWN[self.window],
                FITTED[self.align],
                f"It is clamped to {near} and {far}, NaN to {near}; NaN, infinity and what is not over 0 are counted.",
                "Metrics are taken per image and averaged over images; images without truth that counts are named.",
            ]
        )

    def _window(self, h: int, w: int) -> Box:
        return self.input_box(h, w) or (0, h, 0, w)


SHOWN = {
    None: "A prediction of another size than its truth is resized (bilinear, corners aligned).",
    "kb": (
        "The network is shown the 352x1216 benchmark window, at the frame's bottom centre. A prediction of its size is "
        "pasted there, one of the frame's size stands as it is, any other is the window resized (bilinear, corners "
        "aligned)."
    ),
}
FITTED = {
    None: "The prediction is taken for metres.",
    "median": "The prediction is scaled by median(truth) / median(prediction), per image.",
    "lstsq": "The prediction is scaled and shifted onto the truth by least squares, per image.",
    "lstsq_disparity": "The prediction is scaled and shifted onto 1 / truth by least squares, per image, and inverted.",
}

PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            name="plain",
            words="every pixel with truth, in the data set's own range.",
            range=(1e-3, 80.0),
            range_of_data=True,
        ),
        Protocol(
            name="nyu_eigen",
            words="NYU Depth v2 as bts, AdaBins and ZoeDepth score it (Eigen's crop).",
            range=(1e-3, 10.0),
            region=EIGEN_NYU,
        ),
        Protocol(
            name="kitti_eigen_garg",
            words="KITTI's Eigen split as bts scores saved maps: Garg's crop of the whole frame.",
            range=(1e-3, 80.0),
            region=GARG,
            window="kb",
        ),
        Protocol(
            name="kitti_eigen_garg_kb",
            words="KITTI's Eigen split as AdaBins, ZoeDepth and bts in training score it: Garg's crop of the window.",
            range=(1e-3, 80.0),
            region=GARG,
            region_of="window",
            window="kb",
        ),
    )
}
"""Name -> protocol. One more is one more row."""


def _check(prediction: Map, depth: Map, valid: Map) -> None:
    if prediction.ndim != 2 or prediction.dtype.kind != "f" or not prediction.size:
        raise DataError(f"a prediction is an h x w map of floats, got {prediction.dtype} of shape {prediction.shape}.")
    if depth.ndim != 2 or depth.shape != valid.shape:
        raise DataError(f"the truth is {depth.shape} and its mask {valid.shape}; both are h x w.")
