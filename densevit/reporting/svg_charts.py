"""Line charts as inline SVG, coloured by the page's style sheet."""

import math
from collections.abc import Sequence
from html import escape
from itertools import accumulate

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 460, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 14, 34  # margins: tick labels need room on the left and below
MANY = 120  # points from which on a curve is noise, and a smoothed one is drawn over it
MOST = 500  # points of a polyline: as many as the chart has pixels


def line_chart(name: str, points: Points) -> str:
    """One curve over training steps; its non-finite points are left out, and counted in the caption."""
    drawn = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    lost = len(points) - len(drawn)
    title = escape(name) + (f" ({lost} non-finite points not drawn)" if lost else "")
    if not drawn:
        return f'<figure class="chart"><figcaption>{title}</figcaption><p>No points.</p></figure>'
    xs, ys = axis([x for x, _ in drawn]), axis([y for _, y in drawn])
    curve = smoothed(drawn) if len(drawn) >= MANY else drawn
    body = [*(_x_tick(x, xs) for x in xs), *(_y_tick(y, ys) for y in ys)]
    body += [_polyline(drawn, xs, ys, "raw")] if len(drawn) >= MANY else []
    body += [_polyline(curve, xs, ys, "curve")]
    x, y = curve[-1]
    body += [f'<circle cx="{_x(x, xs):.1f}" cy="{_y(y, ys):.1f}" r="3"/>']
    return (
        f'<figure class="chart"><figcaption>{title}: <b>{y:.4g}</b> at {x:,.0f}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{"".join(body)}</svg></figure>'
    )


Bar = tuple[str, float, tuple[float, float] | None]


def bar_chart(name: str, bars: Sequence[Bar], ends: str = "") -> str:
    """A bar per label, with a whisker from low to high where that is known; `ends` says what the labels are."""
    title = escape(name)
    ys = axis([0.0, *(max(value, spread[1] if spread else value) for _, value, spread in bars)])
    step = (WIDTH - LEFT - RIGHT) / max(len(bars), 1)
    body = [_y_tick(y, ys) for y in ys]
    for i, (label, value, spread) in enumerate(bars):
        x, top = LEFT + i * step, _y(value, ys)
        middle = x + step / 2
        body.append(
            f'<rect class="bar" x="{x + step * 0.12:.1f}" y="{top:.1f}" width="{step * 0.76:.1f}" '
            f'height="{HEIGHT - BOTTOM - top:.1f}"/>'
        )
        if spread is not None:
            low, high = (_y(end, ys) for end in spread)
            body.append(f'<line class="whisker" x1="{middle:.1f}" x2="{middle:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>')
        told = escape(label)
        body.append(
            f'<text class="tick" x="{middle:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{told}</text>'
        )
    return (
        f'<figure class="chart"><figcaption>{title}{f" ({escape(ends)})" if ends else ""}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{"".join(body)}</svg></figure>'
    )


def axis(values: Sequence[float], count: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten apart) from at or under the least value to at or over the largest.

    >>> axis([0.13, 0.58])
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    """
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = low - max(abs(low), 1.0) / 2, high + max(abs(high), 1.0) / 2
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= rough * 0.8)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def smoothed(points: Points, share: float = 0.04) -> Points:
    """Running mean over a share of the points, cut off at the ends."""
    reach = max(1, int(len(points) * share / 2))
    sums = [0.0, *accumulate(y for _, y in points)]
    windows = ((max(0, i - reach), min(len(points), i + reach + 1)) for i in range(len(points)))
    return [(x, (sums[b] - sums[a]) / (b - a)) for (x, _), (a, b) in zip(points, windows, strict=True)]


def thinned(points: Points) -> Points:
    """At most MOST of the points or little more, evenly, the last among them."""
    step = max(1, len(points) // MOST)
    return [*points[: len(points) - 1 : step], points[-1]]


def _x(x: float, ticks: Sequence[float]) -> float:
    return LEFT + (x - ticks[0]) / (ticks[-1] - ticks[0]) * (WIDTH - LEFT - RIGHT)


def _y(y: float, ticks: Sequence[float]) -> float:
    return HEIGHT - BOTTOM - (y - ticks[0]) / (ticks[-1] - ticks[0]) * (HEIGHT - TOP - BOTTOM)


def _x_tick(x: float, ticks: Sequence[float]) -> str:
    return f'<text class="tick" x="{_x(x, ticks):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>'


def _y_tick(y: float, ticks: Sequence[float]) -> str:
    at = _y(y, ticks)
    line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
    return f'{line}<text class="tick" x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{y:g}</text>'


def _polyline(points: Points, xs: Sequence[float], ys: Sequence[float], kind: str) -> str:
    path = " ".join(f"{_x(x, xs):.1f},{_y(y, ys):.1f}" for x, y in thinned(points))
    return f'<polyline class="{kind}" points="{path}"/>'
