"""HTML reports, by Jinja2. A page is one file: images lie in it, nothing is fetched."""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from densevit.reporting.tables import Interval
from densevit.utils.atomic_io import write_text
from densevit.version import versions

EVALUATION: Mapping[str, object] = {
    "warning": "", "samples": (), "note": "", "columns": (), "metrics": (), "further": "", "times": {}, "protocol": "",
    "summary": "", "skipped": (), "card": {}, "config": "", "inference": {},
}  # fmt: skip
"""What the page of an evaluation may hold, and what stands for nothing."""


def render(template: str, **values: object) -> Markup:
    """A template with its values; text in them is escaped. Pages that extend `base.html` need a `title`."""
    return Markup(_ENVIRONMENT.get_template(template).render(values))


def write_page(path: str | Path, template: str, *, title: str, subtitle: str = "", **values: object) -> Path:
    """Renders a page that extends `base.html`, with date, version and command under its title, and writes it. Raises
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


def write_evaluation_page(
    path: str | Path,
    *,
    cards: Sequence[tuple[str, str, str]],
    template: str = "evaluation_report.html",
    **values: object,
) -> Path:
    """Writes the page of an evaluation; what is not given is left out. Raises StorageError if it cannot be written.

    Args:
        cards: the numbers to see first: name, value, note.
        template: `evaluation_report.html`, or one that extends it.
        values: of `write_page`, and of the template.
    """
    return write_page(path, template, cards=cards, **{**EVALUATION, **values})  # type: ignore[arg-type]


def command_line() -> str:
    """How this process was started, for a shell."""
    program = Path(sys.argv[0])
    name = f"python -m {program.parent.name}" if program.name == "__main__.py" else program.name
    return f"{name} {shlex.join(sys.argv[1:])}".rstrip()


def interval_text(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval[0]:.4f} – {interval[1]:.4f}"


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


_ENVIRONMENT = Environment(
    loader=PackageLoader("densevit.reporting"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters["duration"] = duration
