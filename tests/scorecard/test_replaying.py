"""A step that went wrong is kept, and goes wrong again in the same way."""

import json
from pathlib import Path

import pytest
from forked import ForkServer
from PIL import Image
from small import config_with_loss, small_config

from densevit.engine import skipped_steps
from densevit.engine.logger import read_csv

# The truth of one sample is spoilt as some files are: finite in the file, infinite in half precision's range.
PLUGIN = """
import torch

from densevit.losses.depth import DEPTH_LOSSES, DepthLoss


@DEPTH_LOSSES.register("moody")
class Moody(DepthLoss):
    def forward(self, pred, target, valid):
        loss = (pred - target).abs().mean()
        return loss * float("inf") * 0 if self.step == 3 else loss
"""


@pytest.fixture(scope="module")
def spoilt(folder: Path, fork_server: ForkServer) -> tuple[Path, str]:
    """A run whose fourth step can never be taken, and what it said."""
    words = [*config_with_loss(folder, PLUGIN, "silog", "moody"), "model.encoder.drop_path=0.3", "grad_accum_steps=2"]
    text = fork_server.run("train", *words, "ema=0.9", "data.workers=2", "steps=9", code=4)
    return folder / "run", text


def test_bad_steps_are_named_counted_and_recorded_and_end_the_run_with_4(spoilt: tuple[Path, str]) -> None:
    run, text = spoilt
    assert text.count("loss or gradient is not finite; step skipped. Rank 0 had: ") == 4
    assert "4 steps in a row were not finite, the last at step 7; try a lower optim.lr" in text
    assert [path.name for path in sorted((run / "skipped_steps").iterdir())] == [f"step-0000000{i}" for i in (4, 5, 6)]
    bad = skipped_steps.read(run / "skipped_steps/step-00000004")
    assert (bad.step, bad.samples, bad.seed) == (4, 12, 0)
    assert len(bad.parts[0].names) == 4 and list(bad.parts[0].losses) == ["silog", "moody"]
    assert all(name in text for name in bad.parts[0].names)
    assert read_csv(run / "train.csv")[-1]["skipped"] == 3  # after the sixth; the seventh ended it


@pytest.mark.parametrize(
    ("words", "told"),
    [([], ["The same, bit for bit.", "gradients are not finite: encoder."]), (["seed=1"], ["Not the same"])],
    ids=["the same images", "others"],
)
def test_a_recorded_step_goes_wrong_again_bit_for_bit_on_the_same_images(
    spoilt: tuple[Path, str], fork_server: ForkServer, words: list[str], told: list[str]
) -> None:
    run, _ = spoilt
    step, plugin = run / "skipped_steps/step-00000004", run.parent / "plugin.py"
    text = fork_server.run("replay", step, *words, "--plugins", plugin)
    assert [words for words in told if words not in text] == []


@pytest.mark.slow
def test_a_step_from_given_weights_with_frozen_updates_can_be_done_again(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    words = [*config_with_loss(tmp_path, PLUGIN, "silog", "moody"), "data.val=null"]
    fork_server.run("train", *words, "model.encoder.lora={rank: 2}", "steps=1", f"output={tmp_path / 'first'}")
    start = [f"model.init_from={tmp_path / 'first'}", "model.encoder=null", "model.freeze_encoder=true"]
    fork_server.run("train", *words, *start, "max_skipped=1", code=4)
    text = fork_server.run("replay", tmp_path / "run/skipped_steps/step-00000004", "--plugins", tmp_path / "plugin.py")
    assert "The same, bit for bit." in text, text


@pytest.mark.slow
def test_the_part_of_either_process_can_be_done_again(tmp_path: Path, fork_server: ForkServer) -> None:
    words = [*config_with_loss(tmp_path, PLUGIN, "silog", "moody"), "data.val=null"]
    fork_server.finish(2, "train", *words, "model.encoder.drop_path=0.3", "max_skipped=1", code=4)
    folder = tmp_path / "run/skipped_steps/step-00000004"
    names = [part["names"] for part in json.loads((folder / skipped_steps.RECORD).read_text())["parts"]]
    assert not set(names[0]) & set(names[1])
    for rank in (0, 1):
        text = fork_server.run("replay", folder, "--rank", rank, "--plugins", tmp_path / "plugin.py")
        assert "The same, bit for bit." in text, text
        assert ", ".join(names[rank]) in text
    text = fork_server.run("replay", folder, "--rank", 2, "--plugins", tmp_path / "plugin.py", code=2)
    assert "2 processes took part" in text


@pytest.mark.slow
def test_one_batch_can_be_overfitted_or_is_told_not_to_fit(tmp_path: Path, fork_server: ForkServer) -> None:
    config = small_config(tmp_path)
    text = fork_server.run("train", config, "--overfit-one-batch", "steps=60", "optim.lr=5e-3")
    assert "one batch is learned: loss" in text
    text = fork_server.run("train", config, "--overfit-one-batch", "steps=20", "optim.lr=1e-9", code=4)
    assert "one batch is not learned: loss" in text and "densevit check-data" in text
    assert not (tmp_path / "run").exists()


def test_the_loss_of_one_batch_is_that_of_all_processes_and_none_without_ground_truth_is_told(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    words = ["train", small_config(tmp_path), "--overfit-one-batch", "steps=2", "optim.lr=1e-9"]
    texts = [child.err.read_text() for child in fork_server.finish(2, *words, code=4)]
    courses = {text[text.index("loss ") : text.index(" in 2 steps")] for text in texts}
    assert len(courses) == 1
    for path in (tmp_path / "data/depths").glob("00[0-4].png"):
        Image.new("I;16", (80, 60)).save(path)
    text = fork_server.run(*words, "batch_size=1", "data.val=null", code=4)
    assert "its loss is 0: its images have no ground truth" in text
