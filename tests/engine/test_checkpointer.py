import json
import math
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from shell import Shell
from small import small_config

from densevit.cli.main import main
from densevit.engine.checkpointer import CheckpointFolder
from densevit.engine.run_folder import newest_good
from densevit.errors import CheckpointError
from densevit.model_card import HeadSpec, ModelCard
from densevit.utils import atomic_io
from densevit.utils.lock import NAME, FolderLock
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest

CARD = ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1)


def save(checkpoints: CheckpointFolder, step: int, score: float, metric: str = "abs_rel") -> None:
    manifest = Manifest(step=step, samples=step, scores={metric: score})
    checkpoints.save({"w": torch.full((2,), float(step))}, CARD, "", {}, manifest)


def kept(folder: Path) -> list[int]:
    return [checkpoint.step_of(path) for path in checkpoint.steps(folder)]


@pytest.mark.parametrize(("keep", "left"), [(0, [1, 2, 3, 4, 5]), (1, [2, 5]), (3, [2, 3, 4, 5])])
def test_the_best_and_the_last_stay(tmp_path: Path, keep: int, left: list[int]) -> None:
    checkpoints = CheckpointFolder(tmp_path, ("abs_rel", "min"), keep)
    for step, score in enumerate([0.5, 0.1, 0.4, math.nan, 0.3], start=1):
        save(checkpoints, step, score)
    assert kept(tmp_path) == left
    assert checkpoint.locate(tmp_path / "best").resolve().name == "step-00000002"
    assert (tmp_path / "last").resolve().name == "step-00000005"


def test_nan_never_is_the_best_and_a_tie_keeps_the_older(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path, ("d1", "max"), 9)
    bests = []
    for step, score in enumerate([math.nan, 0.5, 0.5, math.nan], start=1):
        save(checkpoints, step, score, "d1")
        best = checkpoints.best()
        bests.append(None if best is None else checkpoint.step_of(best))
    assert bests == [None, 2, 2, 2]


def test_a_damaged_best_gives_way_to_the_next(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path, ("abs_rel", "min"), 9)
    save(checkpoints, 1, 0.1)
    (tmp_path / "step-00000001" / checkpoint.MANIFEST).write_bytes(b"")
    save(checkpoints, 2, 0.2)
    assert (tmp_path / "best").resolve().name == "step-00000002"


def test_the_best_is_not_hashed_again_for_its_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, hashed, sha256 = CheckpointFolder(tmp_path, ("abs_rel", "min"), 9), [], atomic_io.sha256
    save(checkpoints, 1, 0.1)
    monkeypatch.setattr(atomic_io, "sha256", lambda path: hashed.append(path.parent.name) or sha256(path))
    save(checkpoints, 2, 0.2)
    assert set(hashed) == {"step-00000002"}


def test_the_only_checkpoint_stays_until_the_next_has_been_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = CheckpointFolder(tmp_path, ("abs_rel", "min"), 1)
    save(checkpoints, 1, math.nan)
    write = checkpoint.write

    def write_badly(folder: Path, *rest: Any) -> None:
        write(folder, *rest)
        (folder / checkpoint.STATE).write_bytes(b"a disk that lies")

    monkeypatch.setattr(checkpoint, "write", write_badly)
    with pytest.raises(CheckpointError, match="step-00000002.*damaged"):
        save(checkpoints, 2, math.nan)
    assert checkpoint.verify(tmp_path / "last").step == 1
    assert newest_good(tmp_path)[0].name == "step-00000001"  # type: ignore[index]


def test_an_old_checkpoint_that_cannot_be_removed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = CheckpointFolder(tmp_path, ("abs_rel", "min"), 1)
    save(checkpoints, 1, 0.5)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("densevit.engine.checkpointer.remove", refuse)
    save(checkpoints, 2, 0.4)
    assert f"warning: {tmp_path / 'step-00000001'}: old checkpoint could not be removed" in capsys.readouterr().err
    assert checkpoint.verify(tmp_path / "last").step == 2


def test_a_step_that_is_saved_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    checkpoints = CheckpointFolder(tmp_path, ("abs_rel", "min"), 1)
    save(checkpoints, 3, math.nan)
    save(checkpoints, 3, 0.5)
    assert checkpoint.verify(tmp_path / "step-00000003").scores == {"abs_rel": 0.5}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "last", "step-00000003"]


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
