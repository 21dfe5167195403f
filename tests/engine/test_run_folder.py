"""Two trainings never write into one folder, and a start that fails leaves none behind."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from shell import Shell
from small import small_config

from densevit.cli.main import main
from densevit.utils.lock import NAME, FolderLock
from densevit.weights import checkpoint


def test_a_second_training_into_one_output_is_refused_before_the_data_is_read(tmp_path: Path, shell: Shell) -> None:
    config, output = small_config(tmp_path), tmp_path / "run"
    first = FolderLock(output, "output")
    first.acquire()
    for words in ([], ["--resume"], [f"data.train.root={tmp_path / 'missing'}"]):
        assert f"output: {output} is in use by another run (host" in shell.refused("train", config, *words)
    assert [path.name for path in output.iterdir()] == [NAME]
    first.release()


def test_a_killed_run_is_resumed_at_once_and_says_where_it_goes_on(tmp_path: Path, shell: Shell) -> None:
    config, output = small_config(tmp_path), tmp_path / "run"
    said = shell("train", config, "steps=4").out
    for text in (
        "parameters  0.",
        "images      6 for training, 6 for validation",
        "steps       4 of 4 images",
        "step 4/4",
    ):
        assert text in said
    assert "going on from" not in said and f"tensorboard --logdir {output}" in said
    dead = replace(FolderLock(output, "").owner, process_start="1")  # whose number another process has by now
    (output / NAME).write_text(json.dumps(asdict(dead)))
    assert "steps       8 of 4 images; going on from step 4" in shell("train", config, "--resume").out
    assert not (output / NAME).exists()


@pytest.mark.parametrize("words", [["data.val.root=missing"], ["--resume", "missing"]])
def test_a_start_that_fails_leaves_no_folder(tmp_path: Path, words: list[str]) -> None:
    assert main(["train", str(small_config(tmp_path)), *words]) == 2
    assert not (tmp_path / "run").exists()


def test_a_finished_run_ends_with_the_scores_of_its_best_checkpoint(tmp_path: Path, shell: Shell) -> None:
    # The learning rate of the last steps ruins what the first have learned.
    config = small_config(tmp_path)
    assert main(["train", str(config), "steps=4", "validate_every=2"]) == 0
    said = shell("train", config, "--resume", "steps=6", "validate_every=2", "optim.lr=30").out
    done, _, names, scores = said.splitlines()[-4:]
    best = checkpoint.locate(tmp_path / "run")
    assert checkpoint.step_of(best) < 6 and done.endswith(f"best {best.name}")
    printed = dict(zip(names.split(), scores.split(), strict=True))
    assert printed["abs_rel"] == f"{checkpoint.verify(best).scores['abs_rel']:.4f}"


@pytest.mark.slow
def test_a_run_that_was_copied_with_links_followed_is_resumed(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    assert main(["train", str(config), "steps=4", f"output={tmp_path / 'first'}"]) == 0
    shutil.copytree(tmp_path / "first", tmp_path / "run")  # follows links
    folder = tmp_path / "run/checkpoints"
    assert not (folder / "last").is_symlink()
    assert main(["train", str(config), "steps=6"]) == 2  # it holds a run
    assert main(["train", str(config), "steps=6", "--resume"]) == 0
    assert (folder / "last").readlink() == Path("step-00000006")


@pytest.mark.slow
def test_a_step_folder_that_was_renamed_does_not_win(tmp_path: Path, shell: Shell) -> None:
    config, folder = small_config(tmp_path), tmp_path / "run/checkpoints"
    assert main(["train", str(config), "steps=4"]) == 0
    shutil.copytree(folder / "step-00000004", folder / "step-00000500")
    said = shell("train", config, "steps=6", "--resume").err
    assert "renamed, it holds step 4" in said and "Set aside as damaged-step-00000500" in said
    assert [path.name for path in checkpoint.steps(folder)][-1] == "step-00000006"
