"""Describes protocols in words."""

from collections.abc import Iterable

import numpy as np

from densevit.evaluation.depth.preprocess import box_text
from densevit.evaluation.depth.protocol import Protocol


def describe(protocol: Protocol, h: int | None = None, w: int | None = None) -> str:
    """Return the protocol in words, with the pixels it means in an h x w frame where one is given. Raises DataError if
    it is not defined at this size."""
    sentences = [
        f"{protocol.name}: {protocol.description}",
        f"Pixels are scored {where(protocol, h, w)}, where ground truth is {between(protocol)}.",
        f"Images with fewer than {protocol.min_pixels} such pixels are left out." if protocol.min_pixels > 1 else "",
        FILLED if protocol.fill else "",
        RESIZING[protocol.window].format(resize=f"bilinear, {RESIZED[protocol.resize]}"),
        ALIGNMENT_TEXT[protocol.align],
        FIT_PIXELS[protocol.fit_on],
        f"Predictions are {protocol.prediction_type}, inverted before that." if protocol.inverts else "",
        clamping(protocol),
        UNITS.format(1 / protocol.png_scale) if protocol.png_scale else "",
        "Published numbers are means of an image's and its mirror image's prediction." if protocol.flip else "",
        SILOG[protocol.silog],
        "RMSElog is of log10." if protocol.rmse_log == "log10" else "",
        f"AbsRel divides by the ground truth + {protocol.epsilon:g} m." if protocol.epsilon else "",
        "Metrics are taken per image and averaged over images; images without ground truth that counts are listed.",
        f"The published program rounds the means to {protocol.digits} digits." if protocol.digits else "",
        f"Source: {protocol.source}." if protocol.source else "",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def where(protocol: Protocol, h: int | None = None, w: int | None = None) -> str:
    """Return the region."""
    words = "in the whole frame" if protocol.region is None else protocol.region.describe(protocol.region_of)
    if h is not None and w is not None:
        box = box_text(protocol.score_box(h, w))
        words += "" if box in words else f" ({box} of a {h}x{w} frame)"
    return words


def between(protocol: Protocol) -> str:
    """Return the range."""
    near, far = (f"{metres:g} m" for metres in protocol.range)
    if np.isinf(protocol.range[1]):
        return f"over {near}"
    return f"over {near} and under {far}" if protocol.ends == "excluded" else f"from {near} to {far}"


def clamping(protocol: Protocol) -> str:
    if protocol.limits is None:
        return (
            "It is not clamped; NaN, infinity and values that are not positive are counted, and scored as the end of "
            "the range, or 1 mm."
        )
    near, far = (f"{metres:g} m" for metres in protocol.limits)
    when = " before it is resized" if protocol.clamp_first else ""
    return (
        f"It is clamped to {near} and {far}{when}, NaN to {near}; NaN, infinity and values that are not positive are "
        "counted."
    )


RESIZED = {"corners": "corners aligned", "borders": "borders aligned", "opencv": "borders aligned, by OpenCV"}

FILLED = "Holes of a prediction are filled in first: along rows with the nearer end, then upwards and downwards."

RESIZING = {
    None: "A prediction of another size than its ground truth is resized ({resize}).",
    "kb": (
        "The network sees the 352x1216 benchmark window, at the frame's bottom centre. A prediction of its size is "
        "pasted there, one of the frame's size is used as it is, any other is the window resized ({resize})."
    ),
}

ALIGNMENT_TEXT = {
    None: "The prediction is scored as it is, in metres.",
    "median": "The prediction is scaled by median(depth) / median(prediction), per image.",
    "median_lower": (
        "The prediction is scaled by median(depth) / median(prediction), per image; of an even count the lower of the "
        "middle two."
    ),
    "log_scale": "The prediction is scaled by exp(mean(ln depth - ln prediction)), per image.",
    "lstsq": "The prediction is scaled and shifted onto the ground truth by least squares, per image.",
    "lstsq_log": "Log prediction is scaled and shifted onto log depth by least squares, per image.",
    "lstsq_disparity": (
        "The prediction is scaled and shifted onto 1 / depth by least squares, per image, floored at 1 / the furthest "
        "depth, and inverted."
    ),
    "lstsq_disparity_positive": (
        "The prediction is scaled and shifted onto 1 / depth by least squares where it is over 0, per image, floored "
        "at 1e-3, and inverted."
    ),
    "lstsq_disparity_truth": (
        "The prediction is scaled and shifted onto 1 / depth by least squares, per image, floored at 1 / the image's "
        "furthest ground truth, and inverted."
    ),
    "l1_scale": "The prediction is scaled by what minimises sum(|error| / depth), per image.",
    "l1": "The prediction is scaled and shifted by what minimises sum(|error| / depth), per image.",
}

FIT_PIXELS = {
    None: "",
    "grid64": "The fit uses of each cell of a 64 x 64 grid the measured pixel nearest to its middle.",
    "columns1024": "In frames with a side over 1024 the fit uses evenly thinned columns.",
}

UNITS = "On its way it is cut to whole units of {:g} m, as its 16-bit file does."

SILOG = {
    "percent": "",
    "half": "SILog is sqrt(mean(e^2) - mean(e)^2 / 2), not times 100.",
    "unbiased": "SILog divides by n - 1.",
    "log10": "SILog is of log10, not times 100.",
}


def summary(protocols: Iterable[Protocol]) -> str:
    """Return a line for each: data, range, region, resizing, clamp, alignment, mirror image, SILog, and whose it is."""
    head = ("name", "data", "ground truth", "region", "resized", "clamped", "aligned", "flip", "silog", "")
    lines = [head, *(_cells(protocol) for protocol in protocols)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
    return "\n".join(
        "  ".join([*(f"{cell:{width}}" for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    )


def _cells(protocol: Protocol) -> tuple[str, ...]:
    low, high = protocol.range
    clamp = "no" if protocol.limits is None else "{:g} to {:g}".format(*protocol.limits)
    return (
        protocol.name,
        ", ".join(protocol.data) or "any",
        f"{low:g} to {high:g} m" + " with ends" * (protocol.ends == "included"),
        "all" if protocol.region is None else f"{protocol.region.name}, {protocol.region_of}",
        protocol.resize,
        clamp + ", first" * protocol.clamp_first,
        protocol.align or "no",
        "yes" if protocol.flip else "no",
        protocol.silog,
        protocol.description,
    )
