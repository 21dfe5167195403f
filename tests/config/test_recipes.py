"""Configs by name, and what the command line may shorten."""

import re
from pathlib import Path

import pytest
from shell import Shell
from small import small_folder

from densevit.builder.plan import load_plan
from densevit.config import parser
from densevit.config.parser import find_config, folder
from densevit.errors import ConfigError

MINIMAL = """
model: {encoder: {type: vit}, decoder: {type: linear}, heads: {depth: {type: sigmoid}}}
data: {train: {type: folder, root: a, depth_scale: 256}, val: {type: folder}}
epochs: 3
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "run.yaml").write_text(MINIMAL)
    return tmp_path / "run.yaml"


@pytest.mark.parametrize(
    "name",
    [
        "nyu_dinov2_vits_dpt",
        "nyu_dinov2_vits_dpt.yaml",
        "depth/nyu_dinov2_vits_dpt",
        "configs/depth/nyu_dinov2_vits_dpt.yaml",
    ],
)
def test_a_recipe_goes_by_name_from_any_folder(name: str, here: Path) -> None:
    assert find_config(name) == folder() / "depth/nyu_dinov2_vits_dpt.yaml"
    run, _ = parser.read(name, ["data.root=/somewhere"])
    assert (run.data.train["root"], (run.data.val or {})["root"]) == ("/somewhere", "/somewhere")


def test_a_file_of_ones_own_goes_before_a_recipe(here: Path) -> None:
    (here / "digits_vit").write_text(MINIMAL)
    assert find_config("digits_vit") == Path("digits_vit")


def test_what_is_no_config_is_told_with_its_neighbours_and_the_nearest_recipes(config: Path) -> None:
    with pytest.raises(ConfigError, match=r"rum\.yaml: no such config file\. There are: run\.yaml\."):
        find_config(config.with_name("rum.yaml"))
    with pytest.raises(ConfigError, match=r"Did you mean the recipe 'nyu_dinov2_vits_dpt'\? `densevit list recip"):
        find_config("nyu_dinov2_vit_dpt")
    with pytest.raises(ConfigError, match="'depth/rooms' or 'multitask/rooms' or "):
        find_config("rooms")  # of depth, of segmentation or of both
    with pytest.raises(ConfigError, match="a folder; expected a config file"):
        parser.read(config.parent, [])
    assert find_config("multitask/rooms").parent.name == "multitask"


def test_steps_on_the_command_line_replace_the_epochs_of_the_file(config: Path) -> None:
    run, _ = parser.read(config, ["steps=4"])
    assert (run.steps, run.epochs, run.problems()) == (4, None, [])
    run, _ = parser.read(config, ["steps=4", "epochs=2"])
    assert any("give either steps or epochs, got both" in problem for problem in run.problems())
    run, _ = parser.read(config, ["epochs=null", "steps=4"])
    assert (run.steps, run.epochs) == (4, None)


def test_root_and_depth_scale_are_given_once_for_both_splits(config: Path) -> None:
    run, _ = parser.read(config)
    assert run.data.train == {"type": "folder", "root": "a", "depth_scale": 256}
    config.write_text(MINIMAL.replace("data: {", "data: {root: b, depth_scale: 1000, "))
    run, _ = parser.read(config)  # the file's own for train go before
    assert (run.data.train["root"], run.data.train["depth_scale"]) == ("a", 256)
    assert run.data.val == {"type": "folder", "root": "b", "depth_scale": 1000}
    run, _ = parser.read(config, ["data.root=c", "data.val.root=d"])  # the command line goes before the file
    assert (run.data.train["root"], (run.data.val or {})["root"]) == ("c", "d")


def test_an_option_that_a_data_set_does_not_have_is_told_where_it_was_given(config: Path) -> None:
    from densevit.config import validation

    with pytest.raises(ConfigError) as caught:
        validation.check(parser.Draft.read(config, ["data.train={type: nyu}", "data.val=null", "data.depth_scale=5"]))
    assert "'data.depth_scale=5': data.train.depth_scale: no such option." in str(caught.value)


@pytest.mark.parametrize("name", ["voc_dinov2_vits_linear", "segmentation/voc_dinov2_vits_linear"])
def test_check_data_takes_a_recipe_by_its_name(shell: Shell, name: str) -> None:
    told = shell("check-data", name, "data.root=/nowhere", code=2).out
    assert "[val] no data at /nowhere" in told
    told = shell("check-data", name, "--root", "/nowhere", code=2).err
    assert f"{name} is a config: --root, --data-options and --splits are for a data set" in told


@pytest.mark.parametrize("name", ["kitti", "camvid", "recording"])  # recipes are called so, too
def test_check_data_takes_a_data_set_by_its_name_before_a_recipe(shell: Shell, name: str, tmp_path: Path) -> None:
    assert str(tmp_path) in shell("check-data", name, "--root", tmp_path, code=2).out


def test_the_walks_recipe_goes_on_from_the_network_of_the_demo() -> None:
    video, demo = (parser.read(name, ["data.root=x"])[0].model for name in ("video/rooms", "multitask/rooms"))
    assert (video.encoder, video.decoder, video.resize) == (demo.encoder, demo.decoder, demo.resize)
    assert video.heads["depth"] == demo.heads["depth"]


@pytest.mark.parametrize("recipe", ["multitask/folder", "multitask/my_room"])
def test_a_null_task_leaves_out_its_head_where_a_folder_has_depth_only(tmp_path: Path, recipe: str) -> None:
    overrides = [f"data.root={small_folder(tmp_path)}", "data.val=null"]
    if recipe == "multitask/folder":
        overrides.append("model.encoder={type: vit, dim: 32, depth: 4, heads: 2}")
    words = re.findall(
        "Without any classes add (.*)\\.\n", find_config(recipe).read_text(encoding="utf-8"), re.IGNORECASE
    )
    plan = load_plan(recipe, [*overrides, *words[0].split()]).open()
    assert (list(plan.run.model.heads), plan.run.model.decoders, list(plan.run.tasks)) == (["depth"], {}, ["depth"])
