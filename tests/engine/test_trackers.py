"""A run's CSV files, and trackers that get the same: each with its real package, offline, where that is installed."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small import small_config

import densevit
from densevit.engine.logger import PROJECT, TRACKERS, MetricLogger, Tracker, Trackers, read_csv
from densevit.errors import ConfigError

SHORT = {"steps": 2, "validate_every": 2}


class Recorder(Tracker):
    """Keeps what it gets, and fails where it is told to."""

    package = "torch"
    seen: list[Any]

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.fails_at = fails_at

    def start(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        Recorder.seen = [(name, config["optim.lr"])]

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if step == self.fails_at:
            raise RuntimeError("no route to host\nand more")
        Recorder.seen.append((step, dict(values)))

    def finish(self) -> None:
        Recorder.seen.append("finished")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    monkeypatch.setitem(TRACKERS.components, "recorder", Recorder)
    return Recorder


def test_a_tracker_gets_the_config_and_every_row(recorder: type[Recorder], tmp_path: Path) -> None:
    run = densevit.train(small_config(tmp_path), trackers=["recorder"], **SHORT)
    (name, lr), *rows, last = recorder.seen
    assert (name, lr, last) == ("run", 1e-3, "finished")
    train = {f"train/{key}": value for key, value in run.train_log[0].items() if key != "step"}
    assert rows[0][0] == 1 and rows[0][1] == pytest.approx(train, rel=1e-6)
    assert rows[-1][0] == 2 and rows[-1][1]["val/abs_rel"] == pytest.approx(run.scores["abs_rel"])
    densevit.train(small_config(tmp_path), trackers=[], resume=True, **SHORT)  # is no other run


def test_a_tracker_that_fails_ends_no_training_and_changes_no_bit(
    recorder: type[Recorder], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = small_config(tmp_path)
    plain = densevit.train(config, output=tmp_path / "plain", **SHORT)
    failing = [{"type": "recorder", "fails_at": 2}]
    run = densevit.train(config, output=tmp_path / "tracked", trackers=failing, **SHORT)
    assert "tracker recorder could not take values (no route to host); the run continues without it." in caplog.text
    assert len(recorder.seen) == 2 and len(run.train_log) == 2
    mine, other = (load_file(path.best / "model.safetensors") for path in (run, plain))
    assert all(torch.equal(mine[key], other[key]) for key in other)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("wandbb", "trackers.0.type: no tracker 'wandbb'. Did you mean 'wandb'?"),
        ({"type": "mlflow", "experimnt": "a"}, "trackers.0.experimnt: no such option. Did you mean 'experiment'?"),
        ("missing", "trackers.0: no_such_package is not installed: pip install 'densevit[missing]'."),
    ],
)
def test_what_does_not_fit_is_said_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: Any, message: str
) -> None:
    missing = type("Missing", (Recorder,), {"package": "no_such_package"})
    monkeypatch.setitem(TRACKERS.components, "missing", missing)
    with pytest.raises(ConfigError) as caught:
        densevit.train(small_config(tmp_path), trackers=[choice], **SHORT)
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def filled(folder: Path, name: str, **options: Any) -> None:
    """A tracker that got a config and two rows."""
    trackers = Trackers([{"type": name, **options}])
    trackers.start(folder, {"optim.lr": 1e-3, "data.root": Path("mine")})
    trackers.log(1, {"train/loss": 0.5, "train/lr": 1e-3})
    trackers.log(2, {"train/loss": 0.25})
    assert trackers.active
    trackers.finish()


@pytest.mark.filterwarnings("ignore")
def test_wandb_writes_a_run_to_sync_later(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    filled(tmp_path, "wandb", tags=["a"])
    (written,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    content = written.read_bytes()
    assert b"train/loss" in content and b"optim.lr" in content


@pytest.mark.filterwarnings("ignore")
def test_trackio_writes_into_the_folder_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    filled(tmp_path, "trackio")
    (database,) = (path for path in tmp_path.glob("trackio/*.db") if "densevit" in path.name)
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select step, metrics from metrics order by step").fetchall()
    assert [step for step, _ in rows] == [1, 2] and '"train/loss"' in str(rows[1][1])


@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_metrics_and_params_in_a_database(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    filled(tmp_path, "mlflow")
    client = mlflow.tracking.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (run,) = client.search_runs([client.get_experiment_by_name(PROJECT).experiment_id])
    assert run.data.params == {"optim.lr": "0.001", "data.root": "mine"} and run.info.status == "FINISHED"
    assert [metric.value for metric in client.get_metric_history(run.info.run_id, "train/loss")] == [0.5, 0.25]


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
