"""The command line: quick help, and user errors that are one message and an exit code."""

import subprocess
import sys
from pathlib import Path

import pytest
from small import small_config

from densevit.cli.main import COMMANDS, main

TOOLS = Path(__file__).parents[2] / "tools"
HEAVY = {"torch", "timm", "albumentations", "cv2", "numpy", "pydantic", "skimage", "h5py"}


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys, contextlib; from densevit.cli.main import main\n"
        "with contextlib.suppress(SystemExit): main([w for w in [sys.argv[1], '--help'] if w])\n"
        f"print('HEAVY', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True, check=True)
    assert "usage:" in done.stdout
    assert "HEAVY []" in done.stdout


@pytest.mark.parametrize("name", [path.name for path in sorted(TOOLS.glob("*.py"))])
def test_every_tool_is_a_door(name: str) -> None:
    done = subprocess.run([sys.executable, TOOLS / name, "--help"], capture_output=True, text=True, check=True)
    assert "usage:" in done.stdout


def test_an_unknown_command_and_an_abbreviated_option_end_with_2(capsys) -> None:
    for words in (["tarin"], [], ["eval-depth", "--dat", "nyu"]):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def failing(capsys, *words: str, code: int = 2) -> str:
    assert main(words) == code
    err = capsys.readouterr().err
    assert "Traceback" not in err
    return err


def test_every_fault_of_a_config_is_told_at_once(tmp_path: Path, capsys) -> None:
    config = small_config(tmp_path)
    words = ["model.decoder.chanels=3", "model.heads.depth.max_depth=-1", "tasks.depth.losses.0.type=silgo"]
    words += ["data.transforms.0.type=crop", "data.train.depth_scale=mm", "tasks.depth.protocol=nyu", "lr=3"]
    err = failing(capsys, "train", str(config), *words[:-1])
    for word in words[:-1]:
        key = word.partition("=")[0]
        assert f"{key}: " in err
    assert "Did you mean 'silog'?" in err
    assert "optim.lr" in failing(capsys, "train", str(config), words[-1])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("data.train.root=/nowhere", "no data at /nowhere"),
        ("data.train.depth_scale=null", "depth_scale"),
        ("model.init_from=/nowhere.safetensors", "no such file"),
        ("model.encoder={type: timm, name: vit_smal_patch16_224}", "Nearest: vit_small_patch16_224"),
        ("device=cuda:99", "cuda:99"),
        ("plugins=[mine.py]", "plugins: no such file"),
    ],
)
def test_what_a_run_lacks_is_told_before_it_starts(tmp_path: Path, capsys, word: str, message: str) -> None:
    assert message in failing(capsys, "train", str(small_config(tmp_path)), word)
    assert not list(tmp_path.glob("run/*.csv"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mine.txt", "hello", "mine.txt is no Python file"),
        ("torn.py", "\ndef (", r"torn.py:2: SyntaxError"),
        ("wrong.py", "import math\nmath.nothing", r"wrong.py:2: AttributeError"),
    ],
)
def test_a_plugin_that_fails_is_told_with_its_line(tmp_path: Path, capsys, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    for _ in range(2):  # the second time is no better
        assert main(["train", str(small_config(tmp_path)), f"plugins=[{tmp_path / name}]"]) == 2
        assert message in capsys.readouterr().err


def test_a_model_that_does_not_fit_into_memory_is_told(tmp_path: Path, capsys, monkeypatch) -> None:
    def too_large(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 10 bytes")

    monkeypatch.setattr("densevit.builder.training.build_model", too_large)
    assert main(["train", str(small_config(tmp_path))]) == 2
    assert "model: does not fit into memory" in capsys.readouterr().err


def test_a_run_that_cannot_go_on_keeps_its_config(tmp_path: Path, capsys) -> None:
    path = str(small_config(tmp_path))
    assert main(["train", path, "steps=1"]) == 0
    before = (tmp_path / "run/config.yaml").read_text()
    assert main(["train", path, "model.encoder.dim=64", "--resume"]) == 2
    assert "does not fit the model" in capsys.readouterr().err
    assert (tmp_path / "run/config.yaml").read_text() == before


def test_a_missing_checkpoint_or_data_set_is_told(tmp_path: Path, capsys) -> None:
    assert "no such checkpoint" in failing(
        capsys, "eval-depth", str(tmp_path / "gone"), "--data", "middlebury_motorcycle"
    )
    assert "Did you mean 'nyu'" in failing(capsys, "eval-depth", "x", "--data", "nyuu")
    assert "either a CHECKPOINT or --predictions" in failing(capsys, "eval-depth", "--data", "middlebury_motorcycle")
    assert "no protocol" in failing(
        capsys, "eval-depth", "--predictions", str(tmp_path), "--data", "middlebury_motorcycle", "--protocol", "garg"
    )


def test_a_part_of_ones_own_works_from_a_file(tmp_path: Path, capsys) -> None:
    config = small_config(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "from densevit.models.decoders.base import DECODERS, Decoder\n"
        "from densevit.structures import FeatureSpec\n"
        "@DECODERS.register('mine_for_test')\n"
        "class Mine(Decoder):\n"
        "    def __init__(self, features, prefix_tokens, *, channels: int = 8):\n"
        "        super().__init__()\n"
        "        self.conv = nn.Conv2d(features[-1].channels, channels, 1)\n"
        "        self.output = FeatureSpec(channels, features[-1].stride)\n"
        "    def forward(self, features):\n"
        "        return self.conv(features.maps[-1])\n"
    )
    words = [
        "plugins=[mine.py]",
        "model.encoder.out_indices=1",
        "model.decoder={type: mine_for_test, channels: 4}",
        "steps=1",
    ]
    assert main(["train", str(config), *words]) == 0
