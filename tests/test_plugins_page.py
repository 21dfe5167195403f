"""docs/plugins.md and examples/plugin.py: the page shows the example, and its checkpoint goes through the commands."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import densevit
from densevit.cli.main import main
from densevit.errors import CheckpointError
from densevit.models.decoders.base import DECODERS

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
    (block,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "register" in text)
    assert block in PLUGIN.read_text()
    for path in re.findall(r"`(densevit/[\w/]+\.py)`", PAGE):
        assert (ROOT / path).is_file(), path
    for registry, path in re.findall(r"^\| `(\w+)` \| `(\S+)`", PAGE, re.MULTILINE):
        assert f"{registry} = Registry" in (ROOT / path).read_text()


@pytest.fixture
def unregistered(monkeypatch: pytest.MonkeyPatch, run: Path) -> Path:
    """The run as a process sees it that has not read the plugin."""
    import sys

    from densevit.data.datasets.base import DATASETS
    from densevit.losses.base import DEPTH_LOSSES

    for registry, name in ((DECODERS, "weighted_sum"), (DATASETS, "ramps"), (DEPTH_LOSSES, "charbonnier")):
        monkeypatch.delitem(registry.components, name)
    monkeypatch.delitem(sys.modules, "densevit_plugin_plugin")
    return run


def test_a_checkpoint_finds_the_plugin_that_it_was_trained_with_and_says_so(
    unregistered: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Image.fromarray(np.zeros((32, 40, 3), np.uint8)).save(tmp_path / "a.png")
    assert main(["export-depth", str(unregistered), str(tmp_path / "a.png"), "--output", str(tmp_path / "maps")]) == 0
    assert (tmp_path / "maps/a.png").is_file()
    assert f"running {PLUGIN} for decoder 'weighted_sum'" in caplog.text


def test_a_plugin_that_is_not_there_is_named_and_can_be_given(
    unregistered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("densevit.builder.checkpoint.load_plugins_of", lambda card: None)
    with pytest.raises(CheckpointError, match=r"decoder 'weighted_sum': not registered here") as caught:
        densevit.load(unregistered, device="cpu")
    assert f"trained with {PLUGIN}" in str(caught.value) and "--plugin FILE" in str(caught.value)
    predictor = densevit.load(unregistered, device="cpu", plugins=[PLUGIN])
    assert predictor(np.zeros((32, 40, 3), np.uint8)).shape == (32, 40)


def test_only_absolute_plugin_paths_of_a_checkpoint_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from densevit.builder.checkpoint import load_plugins_of
    from densevit.model_card import ModelCard

    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    model = {"encoder": {"type": "unheard_of"}, "decoder": {"type": "linear"}, "heads": {}}
    load_plugins_of(ModelCard(outputs={}, multiple=1, model=model, config={"plugins": ["evil.py"]}))
