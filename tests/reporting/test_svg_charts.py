"""Charts and tables: axes of round numbers, curves that end where their values do, cells that line up."""

import csv
import io
from xml.etree import ElementTree

import pytest

from densevit.reporting.html_page import axis, bar_chart, line_chart, smoothed, subsample
from densevit.reporting.tables import confusion_csv, name_of_cell, plain_text, rows_csv


@pytest.mark.parametrize(
    "values", [[0.13, 0.58], [5.0], [0.0, 0.0], [-3.0, 1e6], [1e-9, 3e-9], [1e9 + 1, 1e9 + 2], [0.1, 0.1], [1e-30]]
)
def test_an_axis_holds_its_values_in_a_few_round_steps(values: list[float]) -> None:
    ticks = axis(values)
    assert ticks[0] <= min(values) and max(values) <= ticks[-1] and 2 <= len(ticks) <= 10
    assert ticks == sorted(set(ticks))


def test_the_axis_of_a_constant_is_of_its_size() -> None:
    ticks = axis([3e-5, 3e-5])
    assert 0 < ticks[0] < 3e-5 < ticks[-1] < 6e-5


def test_a_curve_ends_where_its_last_value_is_and_counts_what_it_cannot_draw() -> None:
    html = line_chart("loss <train>", [(0.0, 4.0), (50.0, float("nan")), (100.0, 2.0)])
    figure = ElementTree.fromstring(html)
    assert "1 non-finite points not drawn" in html and "<b>2</b> at step 100" in html and "loss &lt;train&gt;" in html
    line, dot = figure.find("svg/polyline"), figure.find("svg/circle")
    assert line.attrib["points"].split()[-1] == f"{dot.attrib['cx']},{dot.attrib['cy']}"
    assert line_chart("loss", [(0.0, float("inf"))]).count("No points") == 1


def test_a_learning_rate_that_is_hardly_one_is_drawn() -> None:
    assert "<b>1e-30</b> at step 2" in line_chart("lr", [(1.0, 1e-30), (2.0, 1e-30)])


def test_bars_stand_on_the_axis_with_whiskers_over_their_intervals() -> None:
    figure = ElementTree.fromstring(bar_chart("error", [("near", 1.0, (0.5, 2.0)), ("far", 2.0, None)]))
    near, far = figure.findall("svg/rect")
    assert float(far.attrib["height"]) == pytest.approx(2 * float(near.attrib["height"]), abs=0.2)
    (whisker,) = figure.findall("svg/line[@class='whisker']")
    assert whisker.attrib["y2"] == far.attrib["y"]  # 2.0 both


def test_smoothing_keeps_a_constant_and_thinning_keeps_the_last() -> None:
    points = [(float(i), 3.0) for i in range(5001)]
    assert smoothed(points) == points
    assert len(subsample(points)) < 600 and subsample(points)[-1] == points[-1]


def test_no_name_is_a_formula_to_a_spreadsheet_and_numbers_stay() -> None:
    names = ["=cmd|' /C calc'!A0", "+1", "-x", "@SUM(1)"]
    text = rows_csv("name", ["abs_rel", "label"], [(name, {"abs_rel": -0.5, "label": name}) for name in names], names)
    confusion = confusion_csv(names, names, [[0] * 4] * 4)
    for row in [*csv.reader(io.StringIO(text)), *csv.reader(io.StringIO(confusion))]:
        assert not any(cell.startswith(tuple("=+-@")) and cell != "-0.5" for cell in row)
    assert text.splitlines()[2] == "'+1,-0.5,'+1" and text.splitlines()[6] == "'+1,,"


def test_reading_gives_back_every_name_that_was_escaped() -> None:
    for name in ("=1+1", "'=1+1", "''@x", "'a", "a", "-", "scene/0"):
        assert name_of_cell(plain_text(name)) == name
