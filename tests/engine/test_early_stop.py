"""A run ends after validations without a better score, also a resumed one; scores that fit no line are tables; whether
one batch is learned."""

import math
import shutil
from pathlib import Path

import pytest
from small import small_config

from densevit.api.training import Run
from densevit.cli.main import main
from densevit.engine.logger import WIDTH, format_scores
from densevit.engine.trials import judge_overfitting, validations_since_best
from densevit.errors import Diverged


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


def train(config: Path, *words: str) -> int:
    return main(["train", str(config), "optim.lr=1e-12", "steps=40", "validate_every=2", "keep_last=0", *words])


@pytest.mark.slow
def test_a_run_ends_where_no_score_got_better_and_a_resumed_one_counts_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, stop = small_config(tmp_path), "early_stop=3"
    assert train(config, stop) == 0
    assert [row["step"] for row in Run(tmp_path / "run").val_log] == [2, 4, 6, 8]
    assert "early_stop: abs_rel is no better (validations since: 3); run ends at step 8." in capsys.readouterr().out
    shutil.rmtree(tmp_path / "run/checkpoints/step-00000008")
    assert train(config, stop, "--resume") == 0
    assert [row["step"] for row in Run(tmp_path / "run").val_log] == [2, 4, 6, 8]
    assert train(config, stop, "--resume") == 0 and Run(tmp_path / "run").last.name == "step-00000008"
    assert train(config, "early_stop=5", "--resume") == 0 and Run(tmp_path / "run").last.name == "step-00000012"
    assert train(config, stop, "data.val=null", f"output={tmp_path / 'x'}") == 2
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
