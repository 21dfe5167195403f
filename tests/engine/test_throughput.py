"""What the log says of a training's speed, against hand calculations, and the trace of `profile: true`."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
import torch
from test_trainer import VAL, some_run, some_trainer, train

from densevit.engine.logger import MetricLogger, read_csv
from densevit.engine.monitors import COLUMNS, Throughput, peak_flops
from densevit.structures import Batch

CPU = torch.device("cpu")


def test_waits_for_data_and_images_are_those_of_the_steps_since_the_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def slow() -> Iterator[Batch]:
        nonlocal now
        for seconds in (50, 50, 1, 1, 3):
            now += seconds
            yield next(train(0))

    speed, rows = Throughput(some_run(tmp_path), CPU, "fp32", slow()), []
    for _ in range(5):
        with speed.step():
            next(speed)
            now += 1
        now += 100  # a validation
        rows.append(speed.row())
    assert [row["data_wait"] for row in rows] == pytest.approx([50 / 51, 50 / 51, 1 / 2, 1 / 2, 3 / 4])
    assert [row["images_per_s"] for row in rows] == pytest.approx([4 / 51, 4 / 51, 2, 2, 1])
    monkeypatch.setitem(sys.modules, "resource", None)  # as on Windows
    assert [*speed.row()] == ["images_per_s", "data_wait"]
    # Three steps in 8 seconds, 5 of them waiting: without those that warmed up.
    assert speed.summary().startswith("speed       1.5 images/s, 62% waiting for data")


@pytest.mark.parametrize("compiled", [False, True])
def test_mfu_is_of_the_operations_of_the_step(tmp_path: Path, compiled: bool) -> None:
    trainer = some_trainer(some_run(tmp_path))
    if compiled:
        trainer.model.compile(backend="eager")
    speed = Throughput(trainer.run, CPU, "bf16", train(0))
    speed.peak = 1e6
    for _ in range(2):
        with speed.step():
            trainer.train_step(speed, Event())
    # 4 images of 16 pixels: 3 -> 8 channels, of whose products images need no gradient, and 8 -> 1.
    assert speed.flops == 2 * 4 * 16 * (2 * 3 * 8 + 3 * 8)
    part = speed.whole
    assert speed.row()["mfu"] == pytest.approx(speed.flops * part.steps / part.seconds / 1e6)


def test_a_device_is_the_longest_name_of_the_table_and_unknown_ones_have_no_peak() -> None:
    assert peak_flops("NVIDIA H100 80GB HBM3", "bf16") == 989e12
    assert peak_flops("NVIDIA H100 PCIe", "tf32") == 378e12
    assert peak_flops("NVIDIA A100-SXM4-80GB", "fp16") == 312e12
    for unknown in ("NVIDIA RTX A1000", "NVIDIA GeForce RTX 4090 Laptop GPU", "a stand-in"):
        assert peak_flops(unknown, "bf16") is None
    assert peak_flops("NVIDIA H100 80GB HBM3", "fp32") is None


def test_every_row_and_the_last_lines_have_the_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some_trainer(some_run(tmp_path)).fit(train, VAL)
    for row in read_csv(tmp_path / "train.csv"):
        assert set(COLUMNS) - row.keys() == {"mfu"}
        assert row["images_per_s"] > 0 and 0 <= row["data_wait"] <= 1 and row["peak_memory_gb"] > 0.01
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("speed       ") and "images/s" in last and "waiting for data" in last
    assert not (tmp_path / "profile").exists()


def test_a_log_takes_further_columns_when_it_goes_on_elsewhere(tmp_path: Path) -> None:
    for start, row in (
        (0, {"loss": 1.0, "a, b": 2.0}),
        (1, {"loss": 0.5, "mfu": 0.25, "a, b": 4.0}),
        (2, {"loss": 0.25}),
    ):
        log = MetricLogger(tmp_path, start=start)
        log.scalars("train", start + 1, row)
        log.close()
    assert read_csv(tmp_path / "train.csv") == [
        {"step": 1, "loss": 1, "a, b": 2},
        {"step": 2, "loss": 0.5, "a, b": 4, "mfu": 0.25},
        {"step": 3, "loss": 0.25},
    ]


def test_profile_writes_five_steps_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some_trainer(some_run(tmp_path, profile=True)).fit(train, VAL)
    path = tmp_path / "profile/from-step-6.json"
    names = [event.get("name", "") for event in json.loads(path.read_text())["traceEvents"]]
    assert sorted({name for name in names if name.startswith("ProfilerStep#")}) == [
        f"ProfilerStep#{n}" for n in range(5, 10)
    ]
    assert "aten::convolution" in names
    some_trainer(some_run(tmp_path / "short", profile=True, steps=3)).fit(train, VAL)
    said = capsys.readouterr().out
    assert f"profile     {path}" in said and "none: the run ended before step 6" in said
