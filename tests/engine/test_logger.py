"""A run's CSV files, read while they grow and after a write that was cut off."""

from pathlib import Path

from densevit.engine.logger import MetricLogger, read_csv


def test_a_line_that_is_not_whole_yet_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    assert read_csv(path) == []
    for text, steps in (("", []), ("step,lo", []), ("step,loss\r\n", []), ("step,loss\r\n20,0.5\r\n4", [20])):
        path.write_text(text, newline="")
        assert [row["step"] for row in read_csv(path)] == steps, text


def test_going_on_drops_a_row_that_was_cut_off_and_those_behind_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("step,loss\r\n20,0.5\r\n40,0.25\r\n3", newline="")
    log = MetricLogger(tmp_path, start=30)
    log.scalars("train", 50, {"loss": 0.125})
    log.close()
    assert read_csv(path) == [{"step": 20, "loss": 0.5}, {"step": 50, "loss": 0.125}]


def test_the_bar_says_that_its_score_is_of_the_last_validation(tmp_path: Path) -> None:
    log = MetricLogger(tmp_path, steps=9)
    shown: list[dict[str, str]] = []
    log.bar.set_postfix = shown.append
    log.train(1, {"loss": 0.5, "lr": 1e-3}, {"abs_rel": 0.25, "d1": 0.7})
    log.close()
    assert shown == [{"loss": "0.5000", "val abs_rel": "0.2500"}]
