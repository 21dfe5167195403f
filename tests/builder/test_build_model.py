"""Components that do not keep to their interface, and what a run is warned of before its first step."""

from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest
from opened import WORLD
from shell import Shell
from small import small_config, small_folder
from small_scenes import CONFIG as SCENES
from small_scenes import small_scenes
from torch import nn

from densevit.builder.checkpoint import parse_model
from densevit.builder.model import build_model
from densevit.builder.plan import describe_data, load_plan
from densevit.builder.sanity_checks import run_sanity_checks
from densevit.builder.training import build_trainer
from densevit.errors import CheckpointError, ConfigError
from densevit.models.decoders.base import DECODERS

MODEL = {
    "encoder": {"type": "vit", "dim": 16, "depth": 1, "heads": 1, "patch_size": 8, "image_size": 16, "out_indices": 1},
    "decoder": {"type": "mine"},
    "heads": {"depth": {"type": "metric"}},
}


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DECODERS, "components", dict(DECODERS.components))


@pytest.mark.parametrize(
    ("initialises", "message"),
    [
        (True, "model.decoder: decoder 'mine' sets no `output`; densevit/models/decoders/"),
        (False, r"decoder 'mine' must call `super\(\).__init__\(\)` first"),
    ],
)
def test_a_component_that_is_not_whole_is_told_so(mine: None, initialises: bool, message: str) -> None:
    @DECODERS.register("mine")
    class Mine(nn.Module):
        def __init__(self, features: object, prefix_tokens: int) -> None:
            if initialises:
                super().__init__()
            self.layer = nn.Identity()

    with pytest.raises(ConfigError, match=message):
        build_model(parse_model(MODEL, "test"))


def test_components_that_nobody_registered_are_named_without_a_guess() -> None:
    with pytest.raises(CheckpointError, match=r"^test: decoder 'mine': not registered here. Look at the file"):
        parse_model(MODEL, "test")


def test_a_batch_larger_than_the_data_is_warned_of(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    for size, warned in ((6, False), (7, True)):
        plan = load_plan(config, [f"batch_size={size}", "data.val=null"]).open()
        trainer = build_trainer(plan, WORLD)
        warnings = run_sanity_checks(plan, trainer.card, trainer.tasks)
        assert any(f"batch_size: {size} images a step, where data.train has 6" in text for text in warnings) is warned


@pytest.mark.parametrize("depth", ["kept", "of zeros", "removed"])
def test_a_validation_that_has_nothing_to_score_is_warned_of_before_training(depth: str, tmp_path: Path) -> None:
    config, val = small_config(tmp_path), small_folder(tmp_path / "val", 2)
    for path in (val / "depths").iterdir():
        np.save(path.with_suffix(".npy"), np.full((60, 80), depth == "kept", np.float32))
        path.unlink()
    if depth == "removed":
        rmtree(val / "depths")
    plan = load_plan(config, [f"data.val.root={val}", "data.val.require_depth=false"]).open()
    trainer = build_trainer(plan, WORLD)
    told = "data.val: no sample looked at has ground truth to score 'depth' by"
    assert any(told in text for text in run_sanity_checks(plan, trainer.card, trainer.tasks)) is (depth != "kept")


def test_labels_without_segments_teach_no_panoptic_head(tmp_path: Path) -> None:
    config, root = tmp_path / "scenes.yaml", small_scenes(tmp_path / "data", 2)
    config.write_text(SCENES.format(root=root, output=tmp_path / "run"))
    words = ["model.heads={panoptic: {type: panoptic}}", "tasks={panoptic: {type: panoptic}}"]
    plan = load_plan(config, [*words, "model.decoder={type: eomt, queries: 4, blocks: 1, segments: true}"]).open()
    trainer = build_trainer(plan, WORLD)
    warnings = run_sanity_checks(plan, trainer.card, trainer.tasks)
    assert "data.train: no sample looked at has what 'panoptic' learns from (segments)." in warnings
    assert "data.val: no sample looked at has ground truth to score 'panoptic' by (segments)." in warnings


def test_a_training_without_valid_ground_truth_is_refused(tmp_path: Path, shell: Shell) -> None:
    config = small_config(tmp_path)
    for path in (tmp_path / "data/depths").iterdir():
        np.save(path.with_suffix(".npy"), np.full((60, 80), np.nan, np.float32))
        path.unlink()
    assert "nothing to learn from: none of all 6 samples" in shell.refused("train", config)


def test_no_run_is_written_among_the_files_of_its_data(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    with pytest.raises(ConfigError, match=r"output: .*data is the folder of the data set; name another one"):
        load_plan(config, [f"output={tmp_path / 'data'}"])
    for place in ("data/runs/mine", "database"):
        assert load_plan(config, [f"output={tmp_path / place}"]).run.output == tmp_path / place


def test_a_plan_has_its_data_only_when_it_is_open(tmp_path: Path) -> None:
    plan = load_plan(small_config(tmp_path))
    assert plan.opened == {} and plan.run.validate_every == 4 and "classes" not in plan.run.data.train
    opened = plan.open()
    assert (len(opened.train), opened.val is not None) == (6, True)
    assert opened.run.data.train["depth_range"] == [0.001, 80.0]  # every default is spelled out


def test_a_card_names_the_data_and_no_folder_of_the_machine() -> None:
    mine = {"type": "folder", "root": "/home/me/garden", "split": "train", "depth_scale": 1000}
    assert describe_data(mine) == "folder garden, split train"
    assert describe_data({"type": "nyu"}) == "nyu"
    assert describe_data({"type": "mix", "sources": [{"data": mine}, {"data": {"type": "nyu"}}]}) == (
        "folder garden, split train + nyu"
    )
