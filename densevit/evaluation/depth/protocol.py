"""Evaluation protocols: which pixels are scored, and how predictions are aligned, resized and clamped before that.

Maps are h x w numpy arrays; depth in metres. The published ones are in `published_protocols.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Float64, Shaped

from densevit.depth_corrections import Interval
from densevit.errors import ConfigError, DataError
from densevit.evaluation.depth.metrics import METRIC_SETS, LogBase, MetricInput, SilogForm, depth_metrics, find_sets
from densevit.evaluation.depth.preprocess import (
    SAMPLINGS,
    FixedBox,
    RelativeBox,
    Resize,
    fill_background,
    paste_or_resize,
)
from densevit.model_card import Kind
from densevit.ops.align import ALIGNMENTS, OF_DISPARITY, Aligned, NothingToFit
from densevit.ops.crops import kb_box
from densevit.ops.geometry import field_of_view, shift
from densevit.registry import did_you_mean
from densevit.structures import Box, Row

COUNTS = ("pixels", "invalid_predictions", "clamped", "resized")
"""Counts of a row: pixels scored; those predicted NaN, infinite or not over 0; others that were clamped; 1 if the
prediction was resized."""

NEAREST = 1e-3
"""Metres as which an invalid prediction is scored, where the protocol has no lower limit."""

Map = Shaped[np.ndarray, "..."]
Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What is compared, where, and how."""

    name: str
    description: str  # whose it is
    source: str = ""  # the program it repeats, `repository: file`
    data: tuple[str, ...] = ()  # the data sets it belongs to; none: any
    range: Range  # metres between which ground truth counts
    range_of_data: bool = False  # the range is the data set's to say
    ends: Literal["excluded", "included"] = "excluded"  # whether the ends of the range count
    min_pixels: int = 1  # pixels with ground truth under which an image is left out
    region: RelativeBox | FixedBox | None = None  # the part of the frame that counts; None is all of it
    region_of: Literal["frame", "window"] = "frame"  # what the region's shares are shares of
    window: Literal["kb"] | None = None  # the part of the frame that the network sees; None is all of it
    resize: Resize = "corners"  # which pixels coincide when a prediction is resized, bilinearly (`preprocess.stretch`)
    # metres to which predictions are clamped; `range` is that of the ground truth, None leaves them
    clamp: Range | Literal["range"] | None = "range"
    clamp_first: bool = False  # before the prediction is resized, not after
    # units per metre of a 16-bit file to which predictions are truncated (not rounded) first
    png_scale: float | None = None
    fill: bool = False  # the holes of a prediction are filled in first, as KITTI's development kit does
    flip: bool = False  # the published numbers are means of the predictions of an image and of its mirror image
    # how predictions without unit are fitted to each image's ground truth; None takes them for metres
    align: str | None = None
    fit_on: Literal["grid64", "columns1024"] | None = None  # the measured pixels that the fit sees; None is all
    # what predictions are; None is what the alignment reads
    prediction_type: Literal["depth", "disparity"] | None = None
    silog: SilogForm = "percent"  # the form of this metric
    rmse_log: LogBase = "ln"  # the logarithm of this metric
    epsilon: float = 0.0  # is added to the ground truth in AbsRel's fraction
    metrics: tuple[str, ...] = ()  # sets of metrics that it reports beside the usual nine
    digits: int | None = None  # to which the published program rounds the means; here they are not rounded

    def __post_init__(self) -> None:
        low, high = self.range
        if not 0 <= low < high or (self.clamp == "range" and low == 0):
            raise ConfigError(
                f"protocol '{self.name}': a range is 0 < near < far in metres, got {low} to {high}; only where "
                "predictions are not clamped to it may it begin at 0."
            )
        if self.align is not None and self.align not in ALIGNMENTS:
            raise ConfigError(f"no alignment '{self.align}'.{did_you_mean(self.align, ALIGNMENTS)}")
        find_sets(self.metrics)

    @property
    def limits(self) -> Range | None:
        """Metres to which predictions are clamped."""
        return self.range if self.clamp == "range" else self.clamp

    @property
    def compared_as(self) -> Literal["depth", "disparity"]:
        """Whether depth or disparity is compared with the ground truth."""
        return "disparity" if self.align in OF_DISPARITY else "depth"

    @property
    def inverts(self) -> bool:
        """Whether predictions must be inverted: depth where disparity is compared, or the other way round."""
        return self.prediction_type not in (None, self.compared_as)

    def input_box(self, h: int, w: int) -> Box | None:
        """Return the window of an h x w frame that the network sees; None is the whole. Raises DataError if the frame
        is smaller than the window."""
        return kb_box((h, w)) if self.window == "kb" else None

    def score_box(self, h: int, w: int) -> Box:
        """Return the pixels of an h x w frame that count, if they have ground truth. Raises DataError if the protocol
        is not defined at this size."""
        if self.region is None:
            return 0, h, 0, w
        top, bottom, left, right = self._window(h, w) if self.region_of == "window" else (0, h, 0, w)
        y0, y1, x0, x1 = self.region.box((bottom - top, right - left))
        return top + y0, top + y1, left + x0, left + x1

    def check_size(self, h: int, w: int) -> None:
        """Raise DataError if the protocol is not defined for h x w frames."""
        self.score_box(h, w)
        self.input_box(h, w)

    def for_range(self, near: float, far: float) -> "Protocol":
        """Return the protocol with the depth range of a data set, in metres, if it has none of its own."""
        return replace(self, range=(near, far)) if self.range_of_data else self

    def aligned(self, how: str) -> "Protocol":
        """Return the same for predictions without unit, under a name of its own. Raises ConfigError: an unknown
        alignment."""
        return replace(self, name=f"{self.name}+{how}", align=how)

    def for_kind(self, kind: Kind) -> "Protocol":
        """Return the protocol for predictions of a kind: aligned if they have no unit, inverted if it compares the
        inverse."""
        if self.align is None:
            usual = {"affine": "lstsq", "disparity": "lstsq_disparity"}.get(kind)
            return self if usual is None else self.aligned(usual)
        space: Literal["depth", "disparity"] = "disparity" if kind == "disparity" else "depth"
        return self if space == (self.prediction_type or self.compared_as) else replace(self, prediction_type=space)

    def score(
        self,
        prediction: Float[np.ndarray, "_ _"],
        depth: Float[np.ndarray, "h w"],
        valid: Bool[np.ndarray, "h w"],
        intrinsics: Float[np.ndarray, "3 3"] | None = None,
        uncertainty: Float[np.ndarray, "_ _"] | None = None,
        interval: Interval | None = None,
        kind: Kind = "metric",
        *,
        metrics: Sequence[str] = (),
    ) -> Row:
        """Return the metrics and counts of one image; empty where no ground truth counts.

        A prediction of NaN or not over the nearest depth is scored as that, an infinite one as the furthest: published
        programs do so in silence, here they are counted. Raises DataError: maps that do not fit each other or the
        protocol.

        Args:
            intrinsics: of the frame, in pixels; for point clouds and fields of view.
            uncertainty: the predicted Laplace scale (densevit.models.heads.depth), of the prediction's size.
            interval: as calibrated.
            kind: of the prediction, which says what its uncertainty is a share of.
            metrics: names of further sets (`METRIC_SETS`).
        """
        _check(prediction, depth, valid)
        y0, y1, x0, x1 = self.score_box(*depth.shape)
        gt = depth[y0:y1, x0:x1]
        counted = valid[y0:y1, x0:x1] & self._counts(gt)
        if np.count_nonzero(counted) < self.min_pixels:
            return {}
        frame, resized, lost, cut = self._placed(prediction, depth.shape)
        shown = frame[y0:y1, x0:x1]
        p, d = shown[counted].astype(np.float64), gt[counted].astype(np.float64)
        move = self._alignment(p, d, counted)
        p, invalid, clamped = self._finished(move(p))
        row = depth_metrics(p, d, silog=self.silog, rmse_log=self.rmse_log, epsilon=self.epsilon)
        if sets := find_sets((*self.metrics, *metrics)):
            whole = self._finished(move(shown.astype(np.float64)))[0]
            camera = None if intrinsics is None else shift(-x0, -y0) @ intrinsics
            fov = None if intrinsics is None else field_of_view(depth.shape[1], float(intrinsics[0, 0]))
            scale = None if uncertainty is None else self._scale(uncertainty, depth.shape, counted, p, kind)
            inputs = MetricInput(
                p, d, whole, gt.astype(np.float64), counted, camera, self.range, fov=fov, scale=scale, interval=interval
            )
            row |= {name: value for key in sets for name, value in METRIC_SETS[key].compute(inputs).items()}
        counts = (d.size, invalid + lost, clamped + cut, resized)
        return row | {name: float(count) for name, count in zip(COUNTS, counts, strict=True)}

    def render(
        self, prediction: Float[np.ndarray, "_ _"], depth: Float[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"]
    ) -> Float[np.ndarray, "h w"]:
        """Return the prediction as it is scored, on the whole frame, in metres. Raises DataError: maps that do not fit
        each other or the protocol, or no ground truth that counts."""
        _check(prediction, depth, valid)
        y0, y1, x0, x1 = self.score_box(*depth.shape)
        counted = valid[y0:y1, x0:x1] & self._counts(depth[y0:y1, x0:x1])
        frame = self._placed(prediction, depth.shape)[0].astype(np.float64)
        move = self._alignment(frame[y0:y1, x0:x1][counted], depth[y0:y1, x0:x1][counted].astype(np.float64), counted)
        return np.asarray(self._finished(move(frame))[0].astype(np.float32))

    def _window(self, h: int, w: int) -> Box:
        return self.input_box(h, w) or (0, h, 0, w)

    def _counts(self, depth: Float[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
        low, high = self.range
        if self.ends == "included":
            return (depth >= low) & (depth <= high)
        return (depth > low) & (depth < high)

    def _placed(self, prediction: Float[np.ndarray, "_ _"], size: tuple[int, ...]) -> tuple[Map, bool, int, int]:
        """Return the prediction on the frame, as depth or as disparity, whichever the alignment reads. Returns it,
        whether it was resized, and how many of its pixels were no depth, or were clamped, before that."""
        h, w = size
        lost = cut = 0
        if self.fill:
            prediction = fill_background(prediction)
        if self.clamp_first and self.limits is not None and prediction.shape != size:
            usable, clamped = (prediction > 0) & (prediction < np.inf), prediction.clip(*self.limits)
            lost = int(np.count_nonzero(~usable & ~np.isnan(prediction)))
            cut = int(np.count_nonzero(usable & (prediction != clamped)))
            prediction = clamped
        if self.png_scale is not None:
            prediction = _cut_to_units(prediction, self.png_scale)
        frame, resized = paste_or_resize(prediction, (h, w), self._window(h, w), self.resize)
        if self.inverts:
            with np.errstate(over="ignore"):
                frame = np.divide(1, frame, out=np.full_like(frame, np.nan), where=frame > 0)
        return frame, resized, lost, cut

    def _scale(
        self,
        uncertainty: Float[np.ndarray, "_ _"],
        size: tuple[int, ...],
        counted: Bool[np.ndarray, "h w"],
        p: Float64[np.ndarray, " n"],
        kind: Kind,
    ) -> Float64[np.ndarray, " n"]:
        """Return the scale of the relative error of the pixels that count; `p` is their depth as it is scored."""
        h, w = size
        y0, y1, x0, x1 = self.score_box(h, w)
        frame, _ = paste_or_resize(uncertainty, (h, w), self._window(h, w), self.resize)
        scale = frame[y0:y1, x0:x1][counted].astype(np.float64)
        if kind == "metric":
            return np.asarray(scale)
        # Of a map without unit it is a share of the deviation of that map's own values.
        values = 1 / p if kind == "disparity" else p
        return np.asarray(scale * np.abs(values - np.median(values)).mean() / values)

    def _alignment(
        self, p: Float64[np.ndarray, " n"], d: Float64[np.ndarray, " n"], counted: Bool[np.ndarray, "h w"]
    ) -> Aligned:
        if self.align is None:
            return lambda values: values
        furthest = self.range[1] if self.limits is None else self.limits[1]
        if self.fit_on is not None:
            fitted = np.searchsorted(np.flatnonzero(counted), SAMPLINGS[self.fit_on](counted))
            p, d = p[fitted], d[fitted]
        try:
            return ALIGNMENTS[self.align](p, d, furthest)
        except NothingToFit:  # nowhere a depth: scored and counted as that, and no reason to stop
            return lambda values: np.full_like(values, np.nan)

    def _finished(self, p: Float64[np.ndarray, "..."]) -> tuple[Float64[np.ndarray, "..."], int, int]:
        """Return the values clamped, every one a positive finite number; how many were not, and how many others were
        clamped."""
        low, high = self.limits or (max(self.range[0], NEAREST), self.range[1])
        least, most, invalid = p.min(initial=np.inf), p.max(initial=0), 0  # NaN, if there is one
        if not (least > 0 and most < np.inf):
            usable = (p > 0) & (p < np.inf)
            invalid = int(p.size - np.count_nonzero(usable))
            p = np.where(usable, p, np.where((p == np.inf) & np.isfinite(high), high, low or NEAREST))
        elif low <= least and most <= high:
            return p, 0, 0
        if self.limits is None:
            return p, invalid, 0
        return p.clip(low, high), invalid, int(np.count_nonzero((p < low) | (p > high)))


def _check(prediction: Map, depth: Map, valid: Map) -> None:
    if prediction.ndim != 2 or prediction.dtype.kind != "f" or not prediction.size:
        raise DataError(f"a prediction is an h x w map of floats, got {prediction.dtype} of shape {prediction.shape}.")
    if depth.ndim != 2 or depth.shape != valid.shape:
        raise DataError(f"the ground truth is {depth.shape} and its mask {valid.shape}; both are h x w.")


def _cut_to_units(metres: Float[np.ndarray, "h w"], units: float) -> Float[np.ndarray, "h w"]:
    """Truncate to whole units, as a 16-bit file does; values read from one stay (0.007 * 1000 < 7 in
    float32)."""
    with np.errstate(over="ignore"):
        stored = metres * units
    nearest = np.rint(stored)
    whole = np.where((nearest / units).astype(metres.dtype) == metres, nearest, np.floor(stored))
    return np.asarray(whole / units)
