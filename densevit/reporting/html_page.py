"""HTML reports, by Jinja2, and their charts as inline SVG. A page is one file: images lie in it, nothing is fetched."""

import math
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from itertools import accumulate, count
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from densevit.reporting.tables import Interval
from densevit.utils.atomic_io import write_text
from densevit.version import __version__

EVALUATION: Mapping[str, object] = {
    "warning": "", "samples": (), "note": "", "columns": (), "metrics": (), "further": "", "times": {}, "protocol": "",
    "summary": "", "skipped": (), "card": {}, "config": "", "inference": {},
}  # fmt: skip
"""What the page of an evaluation may hold, and what stands for nothing. Its `cards`: name, value, note."""


def render(template: str, **values: object) -> Markup:
    """Return a template with its values; text in them is escaped. Pages that extend `base.html` need a `title`."""
    return Markup(_ENVIRONMENT.get_template(template).render(values))


def write_page(path: str | Path, template: str, *, title: str, subtitle: str = "", **values: object) -> Path:
    """Render a page that extends `base.html`, with date, version and command under its title, and write it. Raises
    StorageError if it cannot be written."""
    head = {"title": title, "subtitle": subtitle, "versions": versions(), "command": command_line()}
    date = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    write_text(path, with_contents(render(template, date=date, **head, **values)))
    return Path(path)


def with_contents(page: str) -> str:
    """Return a page with links to its sections under its title, if it has three or more."""
    titles, numbers = re.findall("<h2>(.*?)</h2>", page), count()
    if len(titles) < 3:
        return page
    links = "".join(f'<a href="#section-{i}">{title}</a>' for i, title in enumerate(titles))
    page = re.sub("<h2>", lambda _: f'<span id="section-{next(numbers)}"></span><h2>', page)
    return page.replace("</code></p>\n", f"</code></p>\n<nav>{links}</nav>\n", 1)


def versions() -> dict[str, str]:
    """Return what computed the numbers of a report."""
    others = {name: version(name) for name in ("torch", "numpy")}
    return {"densevit": __version__, "python": platform.python_version(), **others}


def command_line() -> str:
    """Return how this process was started, for a shell."""
    program = Path(sys.argv[0])
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name
    return f"{name} {shlex.join(sys.argv[1:])}".rstrip()


def interval_text(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval[0]:.4f} – {interval[1]:.4f}"


def duration(seconds: float) -> str:
    """Return seconds as text.

    >>> duration(3723.4), duration(63.4), duration(0.0123)
    ('1 h 02 min', '1 min 03 s', '12.3 ms')
    """
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min {rest:02} s"


_ENVIRONMENT = Environment(
    loader=PackageLoader("densevit.reporting"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["duration"] = duration


Points = Sequence[tuple[float, float]]
Bar = tuple[str, float, Interval | None]
"""Label, value, and its interval where one is known."""

WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 446, 14, 206  # of the plot area: tick labels need room on the left and below
NOISY = 120  # points from which on a curve is noise, and a smoothed one is drawn over it
MAX_POINTS = 500  # of a polyline: as many as the chart has pixels


def line_chart(name: str, points: Points, *, reference: Points = ()) -> Markup:
    """Return one curve over training steps; its non-finite points are left out, and counted in the caption.
    `reference`: a second curve, drawn thin."""
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    lost = len(points) - len(finite)
    title = name + (f" ({lost} non-finite points not drawn)" if lost else "")
    if not finite:
        return render("chart.html", title=title, last=None, empty=True)
    xs, ys = (axis([point[i] for point in (*finite, *reference)]) for i in (0, 1))
    noisy = len(finite) >= NOISY
    curve = smoothed(finite) if noisy else finite
    curves = [("raw", reference)] * bool(reference) + [("raw", finite)] * noisy + [("curve", curve)]
    x, y = curve[-1]
    return _chart(
        title,
        ys,
        last=(f"{y:.4g}", f"step {x:,.0f}"),
        x_ticks=[(_x(x, xs), f"{x:g}") for x in xs],
        curves=[(kind, [(_x(x, xs), _y(y, ys)) for x, y in subsample(line)]) for kind, line in curves],
        dot=(_x(x, xs), _y(y, ys)),
    )


def bar_chart(title: str, bars: Sequence[Bar]) -> Markup:
    """Return a bar per label, with a whisker over its interval."""
    ys = axis([0.0, *(max(value, interval[1] if interval else value) for _, value, interval in bars)])
    step = (RIGHT - LEFT) / max(len(bars), 1)
    middles = [round(LEFT + (i + 0.5) * step, 1) for i in range(len(bars))]
    return _chart(
        title,
        ys,
        x_ticks=[(x, label) for x, (label, *_) in zip(middles, bars, strict=True)],
        bars=[(x - 0.38 * step, _y(value, ys), 0.76 * step) for x, (_, value, _) in zip(middles, bars, strict=True)],
        whiskers=[
            (x, *(_y(end, ys) for end in interval)) for x, (*_, interval) in zip(middles, bars, strict=True) if interval
        ],
    )


def _chart(title: str, y_axis: Sequence[float], **parts: object) -> Markup:
    nothing: dict[str, object] = {"last": None, "bars": (), "whiskers": (), "curves": (), "dot": None}
    frame = {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "bottom": BOTTOM, "empty": False}
    y_ticks = [(_y(y, y_axis), f"{y:g}") for y in y_axis]
    return render("chart.html", **{**nothing, **frame, "title": title, "y_ticks": y_ticks, **parts})


def axis(values: Sequence[float], count: int = 5) -> list[float]:
    """Return the round numbers (1, 2 or 5 times a power of ten apart) from at or under the least value to at or over
    the largest.

    >>> axis([0.13, 0.58])
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    """
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        reach = max(abs(low), abs(high)) / 2 or 0.5
        low, high = low - reach, high + reach
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= rough * 0.8)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def smoothed(points: Points, share: float = 0.04) -> Points:
    """Return the running mean over a share of the points, cut off at the ends."""
    reach = max(1, int(len(points) * share / 2))
    sums = [0.0, *accumulate(y for _, y in points)]
    windows = ((max(0, i - reach), min(len(points), i + reach + 1)) for i in range(len(points)))
    return [(x, (sums[b] - sums[a]) / (b - a)) for (x, _), (a, b) in zip(points, windows, strict=True)]


def subsample(points: Points) -> Points:
    """Return at most MAX_POINTS of the points or little more, evenly, the last among them."""
    step = max(1, len(points) // MAX_POINTS)
    return [*points[: len(points) - 1 : step], points[-1]]


def _x(x: float, ticks: Sequence[float]) -> float:
    return round(LEFT + (x - ticks[0]) / (ticks[-1] - ticks[0]) * (RIGHT - LEFT), 1)


def _y(y: float, ticks: Sequence[float]) -> float:
    return round(BOTTOM - (y - ticks[0]) / (ticks[-1] - ticks[0]) * (BOTTOM - TOP), 1)
