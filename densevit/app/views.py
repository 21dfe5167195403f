"""Maps as parts of the page: map over image, its scale or legend, and the values under the pointer."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from markupsafe import Markup

from densevit.app.inputs import GivenImage
from densevit.app.models import AppModel, ViewOptions
from densevit.data.io.readers import Rgb
from densevit.data.io.video import open_container
from densevit.inference.writers.labels import none_of
from densevit.model_card import HeadSpec
from densevit.ops.colors import colorize, colorize_normals, overlay, palette_for, percentile_range
from densevit.ops.segments import PanopticPrediction, captions, draw_segments, median_depths, segment_colours
from densevit.reporting.figures import class_table, color_bar, jpeg, lossless, shrink
from densevit.reporting.html_page import render

LEAST = 0.0005  # share of the pixels of a class in a legend
WIDTH = 1024  # pixels of an image in the page
WIDE = 2.5  # width over height of an image whose map stands below it, not beside it
Predictions = Sequence[Mapping[str, Any]]
"""Of each model, by head, as `AppModel.predict` returns them."""


def map_views(
    models: Sequence[AppModel], given: GivenImage, predictions: Predictions, options: ViewOptions
) -> list[Markup]:
    """Return one view for each model; maps in metres share one scale, so that their colours can be compared."""
    heads = [model.head(options.head) for model in models]
    shown = [
        (model.heads[head], depth_of(maps[head], model.heads[head]))
        for model, maps, head in zip(models, predictions, heads, strict=True)
        if head is not None
    ]
    metric = [values.ravel() for spec, values in shown if spec.output_kind.is_metric]
    common = percentile_range(np.concatenate(metric)) if metric else (0.0, 1.0)
    views = []
    for model, maps, head, (spec, values) in zip(models, predictions, heads, shown, strict=True):
        title = f"{model.name}: {head}"
        if isinstance(values, PanopticPrediction):
            views.append(segments_view(title, given.image, values, spec, metres_of(model, maps)))
        else:
            usual = common if spec.output_kind.is_metric else None
            views.append(map_view(title, given.image, values, spec, options, usual))
    return views


def metres_of(model: AppModel, maps: Mapping[str, Any]) -> np.ndarray | None:
    """Return the map of the model's metric head."""
    head = model.head("", ("metric",))
    return None if head is None else depth_of(maps[head], model.heads[head])


def depth_of(values: Any, spec: HeadSpec) -> Any:
    """Return the depth out of a teacher's depth and confidence."""
    return values[0] if spec.output_kind.is_depth and values.ndim == 3 else values


def map_view(
    title: str,
    image: Rgb,
    values: np.ndarray,
    spec: HeadSpec,
    options: ViewOptions,
    usual: tuple[float, float] | None = None,
) -> Markup:
    """Return one map over its image.

    Args:
        values: h w; 3 h w of normals, ids h w of classes, k of the classes of an image.
        usual: the ends of the colours unless `options` has them.
    """
    kind = spec.output_kind
    if kind.image_level:
        table = Markup(class_table(values, spec))
        parts = {"wide": False, "tall": tallness(image), "table": table, "rows": []}
        return render("map_view.html", title=title, image=jpeg(small(image)), **parts)
    legend, scale = [], None
    if is_coloured(spec):
        ends = zip(options.limits, usual or percentile_range(values), strict=True)
        low, high = (end if given is None else given for given, end in ends)
        if not low < high:  # one end was given, beyond the other, usual one
            low, high = (low, low + 1) if options.limits[1] is None else (high - 1, high)
        drawn = colorize(values, low, high, options.cmap)
        unit = f" {spec.unit}" if kind.is_metric else ""
        scale = (f"{low:.3g}{unit}", color_bar(options.cmap), f"{high:.3g}{unit}")
    elif not kind.has_classes:
        drawn = colorize_normals(values.transpose(1, 2, 0))
    else:
        drawn = overlay(image, np.where(values == none_of(spec), -1, values), palette_for(spec))
        legend = legend_of(values, spec)
    unit, names = spec.unit if kind.is_metric else "", list(spec.classes) or None
    rows = values.transpose(1, 2, 0) if values.ndim == 3 else values
    return _view(title, image, drawn, rows, unit=unit, names=names, scale=scale, legend=legend)


def segments_view(
    title: str, image: Rgb, found: PanopticPrediction, spec: HeadSpec, depth: np.ndarray | None
) -> Markup:
    """Return the segments over their image, and a table of them, the largest first.

    Args:
        depth: in metres, for the distances of the objects.
    """
    metres = median_depths(found, depth)
    areas = np.bincount(found.segments.ravel(), minlength=len(found.classes) + 1)[1:]
    columns = {
        "score": [f"{score:.2f}" for score in found.scores],
        "median distance": ["" if value is None else f"{value:.2f} m" for value in metres],
        "share of the image": [f"{area / found.segments.size:.1%}" for area in areas],
    }
    if all(value is None for value in metres):
        del columns["median distance"]
    colours = [tuple(colour) for colour in segment_colours(found, spec).round().astype(int).tolist()]
    order = np.argsort(-areas, kind="stable").tolist()
    rows = [(colours[i], spec.classes[found.classes[i]], [cells[i] for cells in columns.values()]) for i in order]
    names = ["no segment", *captions(found, spec, metres)]
    drawn = draw_segments(image, found, spec)
    return _view(title, image, drawn, found.segments, names=names, columns=list(columns), rows=rows)


def _view(
    title: str, image: Rgb, drawn: Rgb, values: np.ndarray, *, unit: str = "", names: list[str] | None, **parts: Any
) -> Markup:
    samples = small(values.astype(np.float32))
    samples = samples[..., None] if samples.ndim == 2 else samples
    return render(
        "map_view.html",
        title=title,
        image=jpeg(small(image)),
        map=lossless(small(drawn)),
        wide=image.shape[1] > WIDE * image.shape[0],
        tall=tallness(image),
        data={"size": list(image.shape[:2]), "shape": list(samples.shape), "unit": unit, "classes": names},
        values=base64.b64encode(samples.astype("<f4").tobytes()).decode(),
        **{"table": None, "scale": None, "legend": [], "rows": [], **parts},
    )


def tallness(image: Rgb) -> float:
    """Return height over width."""
    return float(round(image.shape[0] / image.shape[1], 4))


def is_coloured(spec: HeadSpec) -> bool:
    """Return whether a colour map shows it."""
    kind = spec.output_kind
    return kind.channels == 1 and not spec.classes and not kind.image_level


def scale_of_video(path: Path) -> Markup:
    """Return the colours of a video and their unit, as its format notes them."""
    with open_container(path) as container:
        cmap, _, ends = container.metadata.get("comment", "").partition(": ")
    low, _, high = ends.partition(" to ")
    unit = high.partition(" ")[2]
    return render("scale.html", bars=[(f"{low} {unit}".rstrip(), color_bar(cmap), high)])


def legend_of(ids: np.ndarray, spec: HeadSpec) -> list[tuple[tuple[int, int, int], str]]:
    """Return the colour, and name with its share of the pixels, of the classes that occur, the largest first."""
    found, counts = np.unique(ids, return_counts=True)
    shares = sorted(zip((counts / ids.size).tolist(), found.tolist(), strict=True), reverse=True)
    palette = palette_for(spec)
    shown = [(share, i) for share, i in shares if i < len(palette) and share >= LEAST]
    return [(palette[i], f"{spec.classes[i]} {share:.1%}") for share, i in shown]


def small(pixels: np.ndarray) -> np.ndarray:
    """Return at most `WIDTH` pixels wide, and never blended: the value under the pointer is one that the model gave."""
    return shrink(pixels, cv2.INTER_NEAREST, WIDTH)
