"""What every report's page is made of: a frame with style and footer, and its smaller parts. Nothing is fetched."""

from collections.abc import Iterable, Mapping
from html import escape

from densevit.reporting.tables import Interval
from densevit.version import versions


def sheet(title: str, subtitle: str, top: str, sections: Mapping[str, str]) -> str:
    """A page of sections, HTML by their names; empty ones are left out.

    Args:
        sections: the last word of a name is the class that the style sheet knows.
        top: HTML above the first section.
    """
    body = "".join(
        f'<h2>{name}</h2><div class="{name.split()[-1].lower()}">{html}</div>'
        for name, html in sections.items()
        if html
    )
    made_with = ", ".join(f"{name} {number}" for name, number in versions().items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{escape(title)}</h1>{paragraphs(subtitle)}{top}{body}"
        f"<footer>{escape(made_with)}</footer></main></body></html>\n"
    )


def number_cards(cards: Iterable[tuple[str, str, str]]) -> str:
    """The numbers to see first: name, value, note."""
    return f'<div class="cards">{"".join(_number_card(*card) for card in cards)}</div>'


def _number_card(name: str, value: str, note: str) -> str:
    return f'<div class="card"><span>{escape(name)}</span><b>{escape(value)}</b><span>{escape(note)}</span></div>'


def span(spread: Interval | None) -> str:
    return "–" if spread is None else f"{spread[0]:.4f} – {spread[1]:.4f}"


def card(card: Mapping[str, object]) -> str:
    """What a checkpoint says of itself."""
    return details(
        "as the checkpoint tells",
        "\n".join(f"{name}: {value}" for name, value in card.items() if value not in (None, "", (), {})),
    )


def details(summary: str, text: str) -> str:
    if not text:
        return ""
    return f"<details open><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"


def times(times: Mapping[str, float]) -> str:
    if not times:
        return ""
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{duration(t)}</td></tr>" for name, t in times.items())
    return f"<table><tbody>{lines}</tbody></table>"


def duration(seconds: float) -> str:
    """
    >>> duration(3723.4), duration(63.4), duration(0.0123)
    ('1 h 02 min', '1 min 03 s', '12.3 ms')
    """
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min {rest:02} s"


def paragraphs(*texts: str) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts if text)


STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5d6878; --line: #e1e5ea; --paper: #fff; --card: #f5f7f9;
  --curve: #2563c4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #98a3b3; --line: #2d3642; --paper: #14181e; --card: #1d232b; --curve: #6ea8ff; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; }
h2 { font-size: 19px; margin: 44px 0 14px; padding-bottom: 6px; border-bottom: 1px solid var(--line); }
h3 { font-size: 15px; font-weight: 400; margin: 0 0 8px; overflow-wrap: anywhere; }
h3 span { color: var(--soft); margin-left: 8px; }
p { margin: 0 0 10px; color: var(--soft); max-width: 78ch; }
figure { margin: 0; }
figcaption { color: var(--soft); font-size: 13px; margin-top: 4px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 22px; }
.card { background: var(--card); border-radius: 10px; padding: 14px 16px; display: grid; }
.card b { font-size: 27px; line-height: 1.3; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: 13px; }
.curves, .distance { display: grid; grid-template-columns: repeat(auto-fit, minmax(340px, 1fr)); gap: 22px; }
.chart { max-width: 620px; }
.chart figcaption b { color: var(--ink); }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--line); }
.tick { fill: var(--soft); font-size: 11px; }
polyline { fill: none; stroke: var(--curve); stroke-width: 2; stroke-linejoin: round; }
polyline.raw { stroke-width: 1; opacity: .3; }
circle, .bar { fill: var(--curve); }
.bar { opacity: .75; }
.whisker { stroke: var(--ink); stroke-width: 1.5; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 6px 22px 6px 0; border-bottom: 1px solid var(--line); }
th { font-weight: 500; }
thead th, td:nth-child(n + 4), td:last-child:not(:nth-child(2)) { color: var(--soft); }
.metrics, .classes, .confusion, .configuration { overflow-x: auto; }
.confusion img { max-width: 100%; }
.classes td { color: inherit !important; padding-right: 18px; }
.swatch { display: inline-block; width: 13px; height: 13px; border-radius: 3px; margin-right: 7px; }
.sample { margin-bottom: 30px; break-inside: avoid; }
.panels { display: grid; grid-template-columns: repeat(4, 1fr); gap: 8px; }
.panels img { width: 100%; display: block; border-radius: 4px; }
.scales { display: flex; flex-wrap: wrap; gap: 6px 28px; margin-top: 8px; color: var(--soft); font-size: 13px; }
.scale { display: flex; align-items: center; gap: 8px; }
.scale img { width: 160px; height: 8px; border-radius: 4px; }
pre { background: var(--card); border-radius: 10px; padding: 14px 16px; font-size: 13px; overflow-x: auto; }
summary, footer { color: var(--soft); }
footer { margin-top: 44px; font-size: 13px; }
@media (max-width: 700px) { .panels { grid-template-columns: repeat(2, 1fr); } }
""".strip()
