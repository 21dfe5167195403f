"""What a `Predictor` returns: a NumPy array that Jupyter shows as a picture."""

import html
from typing import Any

import numpy as np

from densevit.model_card import HeadSpec
from densevit.ops.colors import colorize, paint, palette_for, percentile_range
from densevit.reporting.figures import color_bar, lossless, shrink

TOP = 5  # classes of an image that are listed
CMAP = "turbo"
DEPTHS = {"metric": "depth in metres", "affine": "depth without unit", "disparity": "disparity without unit"}


class PredictedArray(np.ndarray):
    """A NumPy array, with the head that it came from. What is computed from it is a plain array; so is its pickle."""

    spec: HeadSpec | None  # kind, unit and classes of the head

    def __new__(cls, values: np.ndarray, spec: HeadSpec) -> "PredictedArray":
        array = np.asarray(values).view(cls)
        array.spec = spec
        return array

    def __array_finalize__(self, source: Any) -> None:
        self.spec = getattr(source, "spec", None)

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def _repr_html_(self) -> str | None:
        """Depth in colours with its scale, classes in theirs with a legend, the likeliest classes of an image."""
        values, spec = np.asarray(self), self.spec
        if spec is None or not values.size:
            return None
        if spec.output_kind.image_level:
            return class_table(values, spec) if values.shape == (len(spec.classes),) else None
        if spec.output_kind.has_classes:
            if values.ndim == 3 and len(values) == len(spec.classes):
                values = values.argmax(0)
            return classes_picture(values, spec) if values.ndim == 2 and values.dtype.kind in "iu" else None
        return depth_picture(values, spec) if values.ndim == 2 and spec.output_kind.is_depth else None


def depth_picture(values: np.ndarray, spec: HeadSpec) -> str:
    low, high = percentile_range(values)
    unit = " m" if spec.output_kind.is_metric else ""
    scale = f'{low:.3g}{unit} <img src="{color_bar(CMAP)}" alt="" style="display:inline;height:10px;width:160px"> '
    return _picture(
        shrink(colorize(values, low, high, CMAP)), values.shape, f"{DEPTHS[spec.kind]}<br>{scale}{high:.3g}{unit}"
    )


def classes_picture(ids: np.ndarray, spec: HeadSpec) -> str:
    palette = palette_for(spec)
    present = [i for i in np.unique(ids).tolist() if 0 <= i < len(palette)]
    square = "display:inline-block;width:10px;height:10px;background:rgb({},{},{})"
    legend = " ".join(
        f'<span style="{square.format(*palette[i])}"></span> {html.escape(spec.classes[i])}' for i in present
    )
    return _picture(shrink(paint(ids, palette)), ids.shape, f"classes<br>{legend}")


def class_table(logits: np.ndarray, spec: HeadSpec) -> str:
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    best = np.argsort(-shares, kind="stable")[:TOP].tolist()
    rows = "".join(f"<tr><td>{html.escape(spec.classes[i])}</td><td>{shares[i]:.1%}</td></tr>" for i in best)
    return f"<table>{rows}</table>"


def _picture(pixels: np.ndarray, size: tuple[int, ...], caption: str) -> str:
    h, w = size
    return f'<figure><img src="{lossless(pixels)}" alt=""><figcaption>{h} x {w}, {caption}</figcaption></figure>'
