"""The page: self-contained, well-formed, showing the numbers it was given."""

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from densevit.evaluation.depth.evaluate import Evaluation, evaluate
from densevit.evaluation.depth.html_report import Report, page, write_html
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.ops.colormap import UNKNOWN
from densevit.reporting.figures import Picture, row
from densevit.reporting.html_page import duration
from densevit.reporting.svg_charts import axis, line_chart, smoothed, thinned

VOID = {"meta", "img", "line", "circle", "polyline"}  # never closed, or closed in themselves


class Tree(HTMLParser):
    """Fails where tags do not nest; keeps the addresses that the page names."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def score(factor: float) -> Evaluation:
    truth = np.full((6, 8), 2, np.float32)
    return evaluate([("room", truth * np.float32(factor), truth, truth > 0)], PROTOCOLS["plain"])


def picture(**changes: object) -> Picture:
    depth = np.linspace(1, 5, 48, dtype=np.float32).reshape(6, 8)
    given = {
        "name": "room/<1>",
        "label": "worst",
        "image": np.full((6, 8, 3), 200, np.uint8),
        "depth": depth,
        "valid": depth < 4.5,
        "prediction": depth * np.float32(1.15),
        "abs_rel": 0.15,
    }
    return Picture(**(given | changes))  # type: ignore[arg-type]


def full() -> Report:
    return Report(
        title="depth of <rooms>",
        subtitle="vit & dpt",
        evaluation=score(1.25),
        baseline=score(1.5),
        curves={"loss": [(float(i), 1 / (i + 1)) for i in range(300)], "AbsRel": [(0.0, 0.5), (300.0, 0.25)]},
        pictures=[picture()],
        times={"training": 123.0},
        config="steps: 300\nname: <x>",
    )


def pixels(source: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))))


def test_the_page_nests_and_holds_all_it_shows(tmp_path: Path) -> None:
    html = write_html(tmp_path / "report.html", full()).read_text()
    sources = Tree(html).sources
    assert len(sources) == 6 and all(source.startswith("data:image/") for source in sources)
    assert not re.search(r"https?://|<script|@import|url\(", html)
    assert "prefers-color-scheme: dark" in html


def test_the_page_tells_model_constant_map_and_their_ratio() -> None:
    html = page(full())
    for told in ("0.2500", "0.5000", "0.500", "2 min 03 s", "plain: every pixel", "1 of 1 images scored, 48 pixels"):
        assert told in html


def test_names_from_outside_are_text_not_markup() -> None:
    html = page(full())
    for name in ("depth of &lt;rooms&gt;", "vit &amp; dpt", "room/&lt;1&gt;", "name: &lt;x&gt;"):
        assert name in html


def test_what_a_report_lacks_has_no_heading() -> None:
    html = page(Report(title="bare", evaluation=score(1.0)))
    assert re.findall("<h2>(.*?)</h2>", html) == ["Metrics", "Protocol"]


def test_truth_and_prediction_share_their_scale_and_unknown_is_grey() -> None:
    depth = picture().depth
    _, truth, prediction, error, *_ = (pixels(source) for source in Tree(row(picture(prediction=depth))).sources)
    valid = picture().valid
    np.testing.assert_array_equal(truth[valid], prediction[valid])
    assert (truth[~valid] == UNKNOWN).all() and (error[~valid] == UNKNOWN).all()
    assert len(np.unique(error[valid], axis=0)) == 1  # perfect everywhere


def test_sparse_truth_is_enlarged_to_be_seen_and_says_so() -> None:
    valid = np.zeros((6, 8), bool)
    valid[3, 4] = True
    html = row(picture(valid=valid))
    truth = pixels(Tree(html).sources[1])
    assert (truth != UNKNOWN).any(-1).sum() == 25 and html.count("points enlarged") == 4  # captions and their alt texts


def test_a_large_picture_is_shown_smaller() -> None:
    big = {"depth": np.ones((500, 1000), np.float32), "valid": np.ones((500, 1000), bool)}
    html = row(picture(**big, prediction=big["depth"], image=np.zeros((500, 1000, 3), np.uint8)))
    assert all(pixels(source).shape == (240, 480, 3) for source in Tree(html).sources[:4])


def test_pictures_without_a_single_truth_or_prediction_still_draw() -> None:
    Tree(row(picture(valid=np.zeros((6, 8), bool), prediction=np.full((6, 8), np.nan, np.float32))))


@pytest.mark.parametrize(
    "values", [[0.13, 0.58], [5.0], [0.0, 0.0], [-3.0, 1e6], [1e-9, 3e-9], [1e9 + 1, 1e9 + 2], [0.1, 0.1]]
)
def test_an_axis_holds_its_values_in_a_few_round_steps(values: list[float]) -> None:
    ticks = axis(values)
    assert ticks[0] <= min(values) and max(values) <= ticks[-1] and 2 <= len(ticks) <= 10
    assert ticks == sorted(set(ticks))


def test_a_curve_ends_where_its_last_value_is_and_counts_what_it_cannot_draw() -> None:
    html = line_chart("loss", [(0.0, 4.0), (50.0, float("nan")), (100.0, 2.0)])
    Tree(html)
    assert "1 non-finite points not drawn" in html and "<b>2</b> at 100" in html
    assert line_chart("loss", [(0.0, float("inf"))]).count("No points") == 1


def test_smoothing_keeps_a_constant_and_thinning_keeps_the_last() -> None:
    points = [(float(i), 3.0) for i in range(5001)]
    assert smoothed(points) == points
    assert len(thinned(points)) < 600 and thinned(points)[-1] == points[-1]


def test_durations_are_told_in_two_units_at_most() -> None:
    assert [duration(s) for s in (0.0123, 12.34, 63.4, 3723.4)] == ["12.3 ms", "12.3 s", "1 min 03 s", "1 h 02 min"]
