"""Report pages: one well-formed file without addresses of others, showing the numbers that it was given."""

import base64
import io
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.evaluation.depth.scores import DepthScores, evaluate
from densevit.evaluation.segmentation.scores import count, summarise
from densevit.ops.colors import UNKNOWN, usual_palette
from densevit.reporting.figures import Figure, depth_figure, segmentation_figure
from densevit.reporting.html_page import duration, line_chart, with_contents
from densevit.version import __version__

VOID = {"meta", "img", "line", "circle", "polyline", "rect", "br"}  # never closed, or closed in themselves


class Tree(HTMLParser):
    """Fails where tags do not nest; keeps the addresses that the page names, and its ids."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.ids: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def score(*factors: float) -> DepthScores:
    truth = np.full((6, 8), 2, np.float32)
    items = ((f"room{i}", truth * np.float32(factor), truth, truth > 0) for i, factor in enumerate(factors))
    return evaluate(items, PROTOCOLS["plain"])


DEPTH = np.linspace(1, 5, 48, dtype=np.float32).reshape(6, 8)


def figure(**changes: Any) -> Figure:
    given = {
        "name": "room/<1>",
        "label": "worst",
        "score": "AbsRel 0.1500",
        "image": np.full((6, 8, 3), 200, np.uint8),
        "depth": DEPTH,
        "valid": DEPTH < 4.5,
        "prediction": DEPTH * np.float32(1.15),
    }
    return depth_figure(**(given | changes))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = score(1.25).write_page(
        tmp_path_factory.mktemp("page") / "report.html",
        title="depth of <rooms>",
        subtitle="vit & dpt",
        baseline=score(1.5).mean,
        curves=[
            line_chart("loss", [(float(i), 1 / (i + 1)) for i in range(300)]),
            line_chart("AbsRel", [(0.0, 0.5), (300.0, 0.25)]),
        ],
        figures=[figure()],
        times={"training": 123.0},
        config="steps: 300\nname: <x>",
        card={"trained_on": "rooms", "model": {"encoder": "vit"}},
    )
    return path.read_text()


def panel(shown: Figure, place: int) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(shown.panels[place][1].partition(",")[2]))))


def test_the_page_nests_and_holds_all_it_shows(page: str) -> None:
    sources = [source for source in Tree(page).sources if not source.startswith("#section")]
    assert sum(source.startswith("data:image/") for source in sources) == len(sources) - 1 == 8  # and one link inside
    assert not re.search(r"https?://|<script|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page


def test_the_first_lines_tell_date_version_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/densevit", "eval", "my maps", "--data", "nyu"])
    html = score(1.0).write_page(tmp_path / "report.html", title="bare", subtitle="").read_text()
    head = html[html.index("<h1>") : html.index("<h2>")]
    assert "<code>densevit eval &#39;my maps&#39; --data nyu</code>" in head
    assert f"densevit {__version__}" in head and re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", head)


def test_a_model_card_has_lines_that_fit_the_page(page: str) -> None:
    assert 'trained_on: rooms\nmodel: {\n  "encoder": "vit"\n}' in page


def test_names_from_outside_are_text_not_markup(page: str) -> None:
    for name in ("depth of &lt;rooms&gt;", "vit &amp; dpt", "room/&lt;1&gt;", "name: &lt;x&gt;"):
        assert name in page


def test_a_long_page_has_a_table_of_contents() -> None:
    page = '<p class="run"><code>x</code></p>\n<h2>A</h2><h2>B</h2><h2>C &amp; D</h2>'
    links = '<nav><a href="#section-0">A</a><a href="#section-1">B</a><a href="#section-2">C &amp; D</a></nav>'
    assert links in with_contents(page) and with_contents(page).count('<span id="section-') == 3
    assert with_contents(page.replace("<h2>A</h2>", "")) == page.replace("<h2>A</h2>", "")


def test_every_worst_image_has_a_thumbnail_that_leads_to_its_figure(tmp_path: Path) -> None:
    found = score(*np.linspace(1.0, 1.2, 12))
    shown = [figure(name=name, label=label) for label, name in found.examples().items()]
    page = found.write_page(tmp_path / "report.html", title="x", figures=shown).read_text()
    tree = Tree(page)
    links = [source for source in tree.sources if source.startswith("#sample")]
    assert links == [f"#sample-room{i}" for i in range(11, 6, -1)]  # room6 is the median
    assert {link[1:] for link in links} <= set(tree.ids) and len(set(tree.ids)) == len(tree.ids)
    link = page[page.index('<a href="#sample-room11">') :].partition("</a>")[0]
    assert link.count("<img") == 2 and "AbsRel" in link
    # The best, the median and the worst image come first, the other bad ones after the numbers.
    order = ["<b>best</b>", "<b>median</b>", "<b>worst</b>", "<h2>Metrics</h2>", "<b>worst 2</b>", "<h2>Protocol</h2>"]
    places = [page.index(text) for text in order]
    assert places == sorted(places) and all(page.count(text) == 1 for text in order)


@pytest.mark.parametrize("classes", [5, 50])
def test_a_confusion_matrix_is_a_table_that_scrolls_with_its_names_in_sight_or_an_image(
    classes: int, tmp_path: Path
) -> None:
    labels = np.arange(60 * 80).reshape(60, 80) % classes
    predicted = np.where(np.arange(80) < 20, (labels + 1) % classes, labels)
    names = [f"class <{i}>" for i in range(classes)]
    scores = summarise([("street/<1>", count(predicted, labels, classes))], names, usual_palette(classes))
    html = scores.write_page(tmp_path / "report.html", title="seg").read_text()
    Tree(html)
    assert ('<table class="confusion">' in html) == (classes == 5)
    assert re.search(r"\.confusion tbody th \{ position: sticky", html)
    if classes == 5:
        row = html[html.index('<table class="confusion">') :]
        row = row[row.index("<tr><th>class &lt;0&gt;</th>") :].partition("</tr>")[0]
        assert re.findall(r">(\d*)</td>", row) == ["75", "25", "", "", ""]
    assert "<td>class &lt;0&gt;</td><td>class &lt;1&gt;</td><td>25%</td>" in html


def test_a_segmentation_figure_shows_where_classes_differ() -> None:
    labels = np.zeros((4, 6), np.int64)
    labels[0] = 255
    predicted = np.zeros((4, 6), np.int64)
    predicted[3] = 1
    shown = segmentation_figure(
        name="a", label="best", score="", image=np.zeros((4, 6, 3), np.uint8), labels=labels, predicted=predicted,
        classes=["wall", "floor"], palette=usual_palette(2),
    )  # fmt: skip
    wrong = panel(shown, 3)
    assert (wrong[0] == 255).all() and (wrong[3] == (198, 40, 40)).all() and (wrong[1:3] == (222, 226, 230)).all()
    assert [name for _, name in shown.legend] == ["wall", "floor"]


def test_sparse_ground_truth_is_enlarged_to_be_seen_and_says_so() -> None:
    valid = np.zeros((6, 8), bool)
    valid[3, 4] = True
    shown = figure(valid=valid)
    assert (panel(shown, 1) != UNKNOWN).any(-1).sum() == 25
    assert sum("points enlarged" in caption for caption, _ in shown.panels) == 2


def test_durations_are_told_in_two_units_at_most() -> None:
    assert [duration(s) for s in (0.0123, 12.34, 63.4, 3723.4)] == ["12.3 ms", "12.3 s", "1 min 03 s", "1 h 02 min"]
