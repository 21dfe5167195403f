"""What every report's page is made of: a frame with style and footer, and its smaller parts. Nothing is fetched."""

from collections.abc import Iterable, Mapping
from html import escape

from densevit.evaluation.bootstrap import Interval
from densevit.evaluation.report import versions
from densevit.evaluation.style import STYLE


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
