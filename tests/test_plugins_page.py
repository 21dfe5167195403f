"""docs/plugins.md and examples/plugin.py: the page shows the example, and its checkpoint goes through the commands."""

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch

import densevit
from densevit.cli.main import main
from densevit.data.datasets.base import DATASETS
from densevit.errors import CheckpointError, ConfigError
from densevit.losses.depth import DEPTH_LOSSES
from densevit.models.decoders.base import DECODERS
from densevit.weights.readers import read_safetensors

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/plugins.md").read_text()
PLUGIN = ROOT / "examples/plugin.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("plugin") / "run"
    words = ["steps=4", "batch_size=2", "data.train.count=4", "data.val.count=2", "device=cpu", f"output={output}"]
    assert main(["train", str(ROOT / "examples/plugin.yaml"), *words]) == 0
    return output


def test_the_page_shows_the_decoder_of_the_example_and_names_every_registry() -> None:
    (block,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if ".register(" in text)
    assert block in PLUGIN.read_text()
    for path in re.findall(r"`(densevit/[\w/]+\.py)`", PAGE):
        assert (ROOT / path).is_file(), path
    for registry, path in re.findall(r"^\| `(\w+)` \| `(\S+)`", PAGE, re.MULTILINE):
        assert f"{registry} = Registry" in (ROOT / path).read_text()


@pytest.fixture
def unregistered(monkeypatch: pytest.MonkeyPatch, run: Path) -> Path:
    """The run as a process sees it that has not read the plugin."""
    for registry, name in ((DECODERS, "weighted_sum"), (DATASETS, "ramps"), (DEPTH_LOSSES, "charbonnier")):
        monkeypatch.delitem(registry.components, name)
    monkeypatch.delitem(sys.modules, "densevit_plugin_plugin")
    return run


def test_a_checkpoint_of_a_plugin_names_the_file_and_takes_it_from_the_user(
    unregistered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckpointError, match=r"decoder 'weighted_sum': not registered here") as caught:
        densevit.load(unregistered, device="cpu")
    assert f"trained with {PLUGIN}" in str(caught.value) and "--plugins FILE" in str(caught.value)
    monkeypatch.setenv("DENSEVIT_PLUGINS", f"{PLUGIN}{os.pathsep}/not/there.py")
    predictor = densevit.load(unregistered, device="cpu")
    assert predictor(np.zeros((32, 40, 3), np.uint8)).shape == (32, 40)


def test_plugins_in_the_environment_serve_every_command(
    unregistered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those that load no model of theirs."""
    config = tmp_path / "mine.yaml"
    config.write_text((ROOT / "examples/plugin.yaml").read_text().replace("plugins: [plugin.py]", ""))
    train = ["train", str(config), "steps=1", "batch_size=2", "device=cpu", f"output={tmp_path / 'run'}"]
    with pytest.raises(ConfigError, match=rf"'ramps', needs --plugins {PLUGIN}"):
        densevit.evaluate(unregistered)
    monkeypatch.setenv("DENSEVIT_PLUGINS", str(PLUGIN))
    for words in (["list", "components", "decoder", "weighted_sum"], ["check-data", "ramps"], train):
        assert main(words) == 0
    monkeypatch.delenv("DENSEVIT_PLUGINS")
    assert f"- {PLUGIN}" in (tmp_path / "run/config.yaml").read_text()


@pytest.mark.parametrize("form", ["{0}/evil.py", "evil.py", "/proc/self/cwd/evil.py", "{0}/link.py", "~/evil.py"])
def test_no_file_is_run_because_a_checkpoint_names_it(
    form: str, run: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever path: absolute, relative, by the working folder, or through a link."""
    (here / "evil.py").write_text(f"open({str(here / 'ran')!r}, 'w').close()")
    (here / "link.py").symlink_to(here / "evil.py")
    tensors, metadata = read_safetensors(run / "checkpoints/last/model.safetensors")
    card = json.loads(metadata["densevit"])
    card["config"]["plugins"] = [form.format(here)]
    card["model"]["decoder"]["type"] = "unheard_of"
    copied = here / "model.safetensors"
    safetensors.torch.save_file(tensors, copied, {"densevit": json.dumps(card)})
    monkeypatch.setenv("HOME", str(here))
    with pytest.raises(CheckpointError, match="decoder 'unheard_of': not registered here"):
        densevit.load(copied, device="cpu")
    assert not (here / "ran").exists()
