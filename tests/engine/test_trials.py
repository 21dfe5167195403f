"""`batch_size: auto` finds the most that fit or the fewest at full speed; `early_stop` ends a run that stands still."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small import small_config

from densevit.api import training
from densevit.api.training import Run
from densevit.cli.main import main
from densevit.engine.logger import WIDTH, format_scores
from densevit.engine.trials import choose_batch_size, judge_overfitting, validations_since_best
from densevit.errors import ConfigError, Diverged


def machine(fitting: int, rate: Callable[[int], float]) -> Callable[[int], float]:
    def measure(size: int) -> float:
        if size > fitting:
            raise ConfigError("does not fit") from MemoryError()
        return rate(size)

    return measure


def test_the_largest_power_of_two_that_fits_or_the_fewest_at_full_speed_is_chosen() -> None:
    assert choose_batch_size(machine(50, lambda n: 1.0), 1, 1024, fastest=False) == 32
    assert choose_batch_size(machine(5000, lambda n: 1.0), 1, 100, fastest=False) == 64
    assert choose_batch_size(machine(5000, lambda n: min(n, 8)), 1, 100, fastest=True) == 8
    assert choose_batch_size(machine(50, float), 3, 1024, fastest=True) == 48
    assert choose_batch_size(machine(5000, lambda n: 1.0), 6, 4, fastest=True) == 6
    with pytest.raises(ConfigError, match="does not fit"):
        choose_batch_size(machine(0, float), 1, 8, fastest=False)


@pytest.mark.slow
def test_the_number_is_measured_once_and_stands_in_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, words = small_config(tmp_path), ["batch_size=auto", "steps=4", "validate_every=4"]
    sizes: list[int] = []
    measured = training.images_per_second

    def spy(trainer, train):
        sizes.append(trainer.run.batch_size)
        assert measured(trainer, train) > 0
        return float(min(trainer.run.batch_size, 2))

    monkeypatch.setattr(training, "images_per_second", spy)
    assert main(["train", str(config), *words]) == 0
    assert sizes == [1, 2, 4] and Run(tmp_path / "run").config["batch_size"] == 2
    assert "batch_size  2, the fewest at full speed" in capsys.readouterr().out
    assert main(["train", str(config), *words, "steps=8", "--resume"]) == 0
    assert sizes == [1, 2, 4] and Run(tmp_path / "run").config["batch_size"] == 2
    assert {file.name for file in tmp_path.iterdir()} == {"data", "run", "small.yaml"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "size"),
    [
        (["data.clip=3"], 6),
        (["objective={type: dino, prototypes: 8, hidden: 8, bottleneck: 8}", "model.decoder={type: linear}"], 4),
    ],
)
def test_the_first_size_has_all_that_a_micro_batch_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], size: int
) -> None:
    config, sizes = small_config(tmp_path), []

    def spy(trainer, train):
        sizes.append(trainer.run.batch_size)
        return 1.0

    monkeypatch.setattr(training, "images_per_second", spy)
    words += ["batch_size=auto", "grad_accum_steps=2", "steps=1"]
    assert main(["train", str(config), *words]) == 0
    assert sizes == [size] and Run(tmp_path / "run").config["batch_size"] == size


@pytest.mark.slow
def test_batch_norm_gets_two_images_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """UPerNet pools to one value a channel, of which batch norm has no variance."""
    monkeypatch.setattr(training, "MOST_IMAGES", 1)
    upernet = ["model.encoder.out_indices=1", "model.decoder={type: upernet, channels: 8}"]
    words = ["batch_size=auto", "grad_accum_steps=2", "steps=1"]
    assert main(["train", str(small_config(tmp_path)), *upernet, *words]) == 0
    assert Run(tmp_path / "run").config["batch_size"] == 4


def test_validations_are_counted_from_the_best_one_up_to_a_step(tmp_path: Path) -> None:
    log = tmp_path / "val.csv"
    assert validations_since_best(log, 9, ("a", "min")) == 0
    log.write_text("step,a\n2,3\n4,1\n6,1\n8,\n10,0.5\n")
    steps = (2, 4, 6, 8, 10)
    assert [validations_since_best(log, step, ("a", "min")) for step in steps] == [0, 0, 1, 2, 0]
    assert [validations_since_best(log, step, ("a", "max")) for step in steps] == [0, 1, 2, 3, 4]
    assert validations_since_best(log, 10, ("b", "min")) == 0  # which no image had ground truth for


@pytest.mark.parametrize(("first", "learned", "not_learned"), [(2.0, 0.5, 0.7), (0.5, -0.1, 0.2), (-1.0, -1.8, -0.5)])
def test_one_batch_is_learned_where_its_loss_fell_by_most_of_what_it_was(
    first: float, learned: float, not_learned: float
) -> None:
    assert "one batch is learned" in judge_overfitting([first, *[learned] * 10])
    for last in (not_learned, math.nan):
        with pytest.raises(Diverged, match="one batch is not learned"):
            judge_overfitting([first, *[last] * 10])


def trained_on(config: Path, *words: str) -> int:
    return main(["train", str(config), "optim.lr=1e-12", "steps=40", "validate_every=2", "keep_last=0", *words])


@pytest.mark.slow
def test_a_run_ends_where_no_score_got_better_and_a_resumed_one_counts_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, stop = small_config(tmp_path), "early_stop=3"
    assert trained_on(config, stop) == 0
    assert [row["step"] for row in Run(tmp_path / "run").val_log] == [2, 4, 6, 8]
    assert "early_stop: abs_rel is no better (validations since: 3); run ends at step 8." in capsys.readouterr().out
    shutil.rmtree(tmp_path / "run/checkpoints/step-00000008")
    assert trained_on(config, stop, "--resume") == 0
    assert [row["step"] for row in Run(tmp_path / "run").val_log] == [2, 4, 6, 8]
    assert trained_on(config, stop, "--resume") == 0 and Run(tmp_path / "run").last.name == "step-00000008"
    assert trained_on(config, "early_stop=5", "--resume") == 0 and Run(tmp_path / "run").last.name == "step-00000012"
    assert trained_on(config, stop, "data.val=null", f"output={tmp_path / 'x'}") == 2
    assert "early_stop: there is no data.val" in capsys.readouterr().err


def test_scores_of_a_mixture_are_tables_that_fit_a_terminal() -> None:
    assert format_scores({"abs_rel": 0.1, "d1": 0.9}) == "abs_rel 0.1000  d1 0.9000"
    depth = {f"{source}/depth/{name}": 0.5 for source in ("nyu", "kitti") for name in ("abs_rel", "rmse", "d1")}
    lines = format_scores({**depth, "nyu/labels/miou": 0.25, "rank": 3.0}).splitlines()
    assert lines[0] == "" and max(map(len, lines)) <= WIDTH
    assert [line.split() for line in lines[1:]] == [
        ["abs_rel", "rmse", "d1"], ["nyu/depth", *["0.5000"] * 3], ["kitti/depth", *["0.5000"] * 3],
        ["miou"], ["nyu/labels", "0.2500"], ["rank"], ["3.0000"],
    ]  # fmt: skip


def test_names_longer_than_a_column_do_not_touch() -> None:
    heading = format_scores({f"normals/{name}": 1.0 for name in ("within_7.5", "within_11.25", "mean", "median", "x")})
    assert heading.splitlines()[1].split() == ["within_7.5", "within_11.25", "mean", "median", "x"]
