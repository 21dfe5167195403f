"""Reports are read back as they were written, and say what became slower, and only that."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from densevit.errors import DataError
from densevit.speed import dataloader
from densevit.speed.report import NO_SPEEDUP, Report, Row, regressions, summarize_overlap, three_digits
from densevit.speed.settings import Settings
from densevit.speed.timing import Spread, speedup, time_interleaved


def row(middle: float, faster: float | None = None, **options: str) -> Row:
    ratio = None if faster is None else Spread(faster, faster * 0.98, faster * 1.02)
    return Row(
        "inference", "518 x 518", "densevit", Spread(middle, middle * 0.98, middle * 1.02), "s", faster=ratio, **options
    )  # type: ignore[arg-type]


def report(*rows: Row) -> Report:
    return Report(
        date="2026-01-01",
        command="densevit benchmark",
        machine={"processor": "x", "versions": {"torch": "2"}},
        rows=list(rows),
    )


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    written = report(row(0.5, 2.0, note="85% of the peak"), row(0.25))
    markdown, json = written.write(tmp_path / "2026-01-01-benchmark")
    assert Report.read(json) == written
    text = markdown.read_text()
    assert "| 518 x 518 | densevit | 0.5 s | 0.49 to 0.51 | 2.00 | 85% of the peak |" in text
    assert "processor x, torch 2" in text


WHOLE = (
    '{"date": "", "command": "", "machine": {}, "rows": [{"section": "export", "case": "c", "who": "w", "unit": "s", '
    '"faster": null, "value": {"middle": 1, "low": 1, "high": 1}}]}'
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"rows": [{}]}',
        WHOLE.replace('"machine": {}, ', ""),
        WHOLE.replace('"machine": {}', '"machine": []'),
        WHOLE.replace('"middle": 1', '"middle": "fast"'),
        WHOLE.replace('"w"', "[]"),
        WHOLE.replace('"date"', '"day": "", "date"'),
    ],
)
def test_a_file_that_is_not_a_report_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(WHOLE)
    assert len(Report.read(tmp_path / "a.json").rows) == 1
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match="not a report"):
        Report.read(tmp_path / "a.json")


def test_ratios_decide_where_both_have_them_so_that_a_slow_machine_is_no_regression() -> None:
    before = report(row(0.5, 2.0))
    assert list(regressions(before, report(row(5.0, 2.0)))) == []
    (line,) = regressions(before, report(row(0.5, 1.5)))
    assert line == "inference, 518 x 518, densevit: 1.5 times faster than the baseline, was 2 (33% worse)."


def test_where_we_are_the_baseline_our_value_decides() -> None:
    alone = [replace(row(seconds), faster=NO_SPEEDUP) for seconds in (0.5, 5.0)]
    (line,) = regressions(report(alone[0]), report(alone[1]))
    assert line == "inference, 518 x 518, densevit: 5 s, was 0.5 (900% worse)."
    theirs = [replace(each, who="transformers") for each in alone]  # how fast others are is not ours to judge
    assert list(regressions(report(theirs[0]), report(theirs[1]))) == []


@pytest.mark.parametrize(("after", "worse"), [(0.5, 0), (0.8, 1)])
def test_ratios_over_different_baselines_are_not_compared(after: float, worse: int) -> None:
    """The reference ran beside ours before, and now ours is the baseline."""
    reference = replace(row(1.2, 1.0), who="reference, fp32", faster=NO_SPEEDUP)
    theirs = [replace(row(1.0, ratio), who="transformers") for ratio in (1.2, 0.5)]
    ours = replace(row(after), faster=NO_SPEEDUP)
    lines = list(regressions(report(reference, row(0.5, 2.4), theirs[0]), report(ours, theirs[1])))
    assert lines == ["inference, 518 x 518, densevit: 0.8 s, was 0.5 (60% worse)."] * worse


def test_what_could_not_be_compared_is_counted() -> None:
    one, other = row(0.5), replace(row(0.5), who="densevit, bf16")
    assert summarize_overlap(report(one, other), report(one)) == "1 rows compared, 1 were not measured now"
    assert summarize_overlap(report(one), report(one, other)) == "1 rows compared, 1 are new"
    assert summarize_overlap(report(other), report(one)) == "no row is in both"
    elsewhere = replace(report(one), machine={"processor": "x", "threads": 1})
    assert summarize_overlap(report(one), elsewhere) == "1 rows compared; threads: was None, is 1"
    nothing = replace(one, value=Spread(0.0, 0.0, 0.0))
    assert list(regressions(report(nothing), report(one))) == []  # no ratio to nothing


@pytest.mark.parametrize(
    ("better", "after", "worse"),
    [("lower", 0.6, True), ("lower", 0.52, False), ("higher", 0.4, True), ("higher", 0.6, False)],
)
def test_without_ratios_values_decide_beyond_a_tenth(better: str, after: float, worse: bool) -> None:
    assert bool(list(regressions(report(row(0.5, better=better)), report(row(after, better=better))))) == worse


def test_a_difference_inside_the_quartiles_and_a_new_row_are_no_regressions() -> None:
    wide = replace(row(0.5), value=Spread(0.5, 0.3, 0.9))
    assert list(regressions(report(row(0.4)), report(wide))) == []
    assert list(regressions(report(), report(row(1.0)))) == []


def test_every_implementation_runs_in_every_round_and_every_other_round_is_reversed() -> None:
    order: list[str] = []
    seconds = time_interleaved({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 3, warmup=1)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert {name: len(times) for name, times in seconds.wall.items()} == {"a": 3, "b": 3}


def test_speedup_is_the_median_of_the_ratios_round_by_round() -> None:
    # The machine was busy in the second round; both were slow, and the ratio does not show it.
    assert speedup({"slow": [2.0, 20.0, 2.0], "fast": [1.0, 10.0, 1.0]}, "fast", "slow").middle == 2.0


def test_a_quantity_that_falls_as_seconds_rise_has_its_quartiles_turned_over() -> None:
    assert Spread(2.0, 1.0, 4.0).map(lambda s: 8 / s) == Spread(4.0, 2.0, 8.0)


def test_numbers_show_three_digits() -> None:
    assert [three_digits(x) for x in (0, 0.01234, 1.234, 12.34, 1234.5)] == ["0", "0.0123", "1.23", "12.3", "1234"]


def test_the_loader_section_has_the_images_that_a_core_decodes_and_the_cores_that_a_gpu_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dataloader, "make_pairs", lambda *_: None)
    monkeypatch.setattr(dataloader, "throughput", lambda *_: 0.0)
    works = ("decode JPEG", "decode PNG16", dataloader.STANDARD, "collate")
    monkeypatch.setattr(dataloader, "stages", lambda _: dict.fromkeys(works, (lambda: None, 1)))
    monkeypatch.setattr(dataloader, "milliseconds", lambda *_: Spread.of([2.5]))
    settings = Settings(device=torch.device("cpu"), precision="fp32")
    rows = {(row.case, row.who): row.value.middle for row in dataloader.measure(settings)}
    assert rows["decode 640x480", "one core"] == pytest.approx(1000 / (2.5 + 2.5))
    # 989 TFLOP/s x 0.2 / (11.0 TFLOP / 32 images) = 575.4 images/s, where a core loads 1000 / 10.
    assert rows["nyu_dinov2_vits_dpt", "cores for an H200"] == pytest.approx(5.754, abs=1e-3)
