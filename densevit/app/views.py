"""Maps as parts of the page: the picture over the image, its scale or legend, and the values under the pointer."""

import base64
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from markupsafe import Markup

from densevit.app.inputs import GivenImage
from densevit.app.models import AppModel, ViewOptions
from densevit.data.io.depth_video import open_container
from densevit.data.io.rgb import Rgb
from densevit.inference.writers.labels import none_of
from densevit.model_card import HeadSpec
from densevit.ops.colormap import colorize, colorize_normals, percentile_range
from densevit.ops.palette import overlay, palette_for
from densevit.ops.segments import PanopticPrediction, draw_segments
from densevit.reporting.figures import color_bar, jpeg, lossless, shrink
from densevit.reporting.html_page import render
from densevit.reporting.predicted_array import class_table

LEAST = 0.0005  # share of the pixels of a class in a legend
WIDTH = 1024  # pixels of a picture in the page
Predictions = Sequence[dict[str, np.ndarray]]
"""Of each model, by head."""


def map_views(
    models: Sequence[AppModel], given: GivenImage, predictions: Predictions, options: ViewOptions
) -> list[Markup]:
    """One view for each model; maps in metres share one scale, so that their colours can be compared."""
    heads = [model.head(options.head) for model in models]
    shown = [
        (model.heads[head], depth_of(maps[head], model.heads[head]))
        for model, maps, head in zip(models, predictions, heads, strict=True)
        if head is not None
    ]
    metric = [values.ravel() for spec, values in shown if spec.output_kind.is_metric]
    common = percentile_range(np.concatenate(metric)) if metric else (0.0, 1.0)
    titles = [f"{model.name}: {head}" for model, head in zip(models, heads, strict=True)]
    return [
        map_view(title, given.image, values, spec, options, common if spec.output_kind.is_metric else None)
        for title, (spec, values) in zip(titles, shown, strict=True)
    ]


def depth_of(values: np.ndarray, spec: HeadSpec) -> np.ndarray:
    """Of a teacher's depth and confidence, the depth."""
    return values[0] if spec.output_kind.is_depth and values.ndim == 3 else values


def map_view(
    title: str,
    image: Rgb,
    values: np.ndarray,
    spec: HeadSpec,
    options: ViewOptions,
    usual: tuple[float, float] | None = None,
) -> Markup:
    """One map over its image.

    Args:
        values: h w; 3 h w of normals, ids h w of classes, k of the classes of an image, 2 h w of segments
            (`AppModel.predict`).
        usual: the ends of the colours unless `options` has them.
    """
    kind = spec.output_kind
    if kind.image_level:
        return render("map_view.html", title=title, image=jpeg(small(image)), table=Markup(class_table(values, spec)))
    picture, legend, scale = image, [], None
    if spec.classes and not kind.has_classes:
        picture, values = segments_over(image, values, spec), values[0]
        legend = legend_of(values, spec)
    elif is_coloured(spec):
        ends = zip(options.limits, usual or percentile_range(values), strict=True)
        low, high = (end if given is None else given for given, end in ends)
        if not low < high:  # one end was given, beyond the other, usual one
            low, high = (low, low + 1) if options.limits[1] is None else (high - 1, high)
        picture = colorize(values, low, high, options.cmap)
        unit = f" {spec.unit}" if kind.is_metric else ""
        scale = (f"{low:.3g}{unit}", color_bar(options.cmap), f"{high:.3g}{unit}")
    elif not kind.has_classes:
        picture = colorize_normals(values.transpose(1, 2, 0))
    else:
        picture = overlay(image, np.where(values == none_of(spec), -1, values), palette_for(spec))
        legend = legend_of(values, spec)
    rows = np.atleast_3d(values.transpose(1, 2, 0) if values.ndim == 3 else values)
    samples = small(rows.astype(np.float32))
    samples = samples[..., None] if samples.ndim == 2 else samples
    return render(
        "map_view.html",
        title=title,
        table=None,
        image=jpeg(small(image)),
        map=lossless(small(picture)),
        scale=scale,
        legend=legend,
        data={
            "size": list(image.shape[:2]),
            "shape": list(samples.shape),
            "unit": spec.unit if kind.is_metric else "",
            "classes": list(spec.classes) or None,
        },
        values=base64.b64encode(samples.astype("<f4").tobytes()).decode(),
    )


def is_coloured(spec: HeadSpec) -> bool:
    """Whether a colour map shows it."""
    kind = spec.output_kind
    return kind.channels == 1 and not spec.classes and not kind.image_level


def segments_over(image: Rgb, values: np.ndarray, spec: HeadSpec) -> Rgb:
    """The image with its segments in colours."""
    numbers, places = np.unique(values[1], return_index=True)
    classes = np.zeros(int(numbers[-1]) + 1, np.int64)
    classes[numbers] = values[0].ravel()[places]
    ones = np.ones(len(classes) - 1, np.float32)
    things = np.isin(classes[1:], spec.things) | (not spec.things)
    return draw_segments(image, PanopticPrediction(values[1].astype(np.int32), classes[1:], ones, things), spec)


def scale_of_video(path: Path) -> Markup:
    """The colours of a video and their unit, as its format notes them."""
    with open_container(path) as container:
        cmap, _, ends = container.metadata.get("comment", "").partition(": ")
    low, _, high = ends.partition(" to ")
    return render("scale.html", bars=[(low, color_bar(cmap), high)])


def legend_of(ids: np.ndarray, spec: HeadSpec) -> list[tuple[tuple[int, int, int], str]]:
    """Colour, and name with its share of the pixels, of the classes that occur, the largest first."""
    found, counts = np.unique(ids, return_counts=True)
    shares = sorted(zip((counts / ids.size).tolist(), found.tolist(), strict=True), reverse=True)
    palette = palette_for(spec)
    shown = [(share, i) for share, i in shares if i < len(palette) and share >= LEAST]
    return [(palette[i], f"{spec.classes[i]} {share:.1%}") for share, i in shown]


def small(pixels: np.ndarray) -> np.ndarray:
    """At most `WIDTH` pixels wide, and never blended: the value under the pointer is one that the model gave."""
    return shrink(pixels, cv2.INTER_NEAREST, WIDTH)
