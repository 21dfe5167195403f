import math
from pathlib import Path
from typing import Any

import pytest
import torch

from densevit.engine.checkpointer import CheckpointFolder
from densevit.engine.run_folder import newest_good
from densevit.errors import CheckpointError
from densevit.model_card import HeadSpec, ModelCard
from densevit.utils import atomic_io
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
