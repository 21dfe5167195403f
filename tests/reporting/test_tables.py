"""Tables of a report as CSV."""

import csv
import io

from densevit.reporting.tables import confusion_csv, name_of_cell, plain_text, rows_csv


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
