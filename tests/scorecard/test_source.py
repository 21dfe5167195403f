"""What the code itself must not do: run what a file says, guess, hide errors, or call anybody without being asked."""

import configparser
import re
import socket
import sys
import textwrap
from pathlib import Path

import pytest
from small import small_config, small_folder

from densevit.cli.main import main

ROOT = Path(__file__).parents[2]
SEARCHED = [
    path for room in ("densevit", "tools", "datasets", "examples") for path in sorted((ROOT / room).rglob("*.py"))
]
# Arguments and a method that open what is closed by default; pyproject.toml forbids pickles, shells, `eval` and more.
OPENERS = re.compile(r"(allow_pickle|trust_remote_code)=(?!False)|weights_only=(?!True)|\.extractall\(")


def test_the_source_opens_nothing_that_is_closed_by_default() -> None:
    assert len(SEARCHED) > 250
    assert [(path, found[0]) for path in SEARCHED for found in OPENERS.finditer(path.read_text())] == []


def test_dependencies_have_a_floor_and_torch_is_one_whose_loading_is_safe() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    needed = setup["options"]["install_requires"].split()
    assert all(">=" in requirement for requirement in needed)
    (torch,) = (requirement for requirement in needed if requirement.startswith("torch>="))
    assert tuple(map(int, torch.removeprefix("torch>=").split("."))) >= (2, 10)


@pytest.mark.slow
def test_training_evaluation_and_export_open_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    connect = socket.socket.connect

    def refused(self: socket.socket, address: object) -> None:
        if self.family == socket.AF_UNIX:
            return connect(self, address)  # type: ignore[arg-type]
        asked.append(address)
        raise OSError("offline")

    def unknown(*address: object, **options: object) -> None:
        asked.append(address)
        raise OSError("offline")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket.socket, "connect_ex", refused)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    config, run, root = small_config(tmp_path), tmp_path / "run", small_folder(tmp_path / "data")
    assert main(["check-data", str(config), "--no-cache"]) in (0, 2)
    assert main(["train", str(config), "steps=2", "data.workers=1"]) == 0
    timm = [f"output={tmp_path / 'timm'}", "model.encoder={type: timm, name: test_vit}"]
    assert main(["train", str(config), "steps=1", *timm]) == 0
    data = ["--data", "folder", "--root", str(root), "--data-options", "depth_scale=1000"]
    assert main(["eval", "--task", "depth", str(run), *data, "--output", str(tmp_path / "scores")]) == 0
    assert main(["predict", str(run), str(root / "images"), "--output", str(tmp_path / "maps")]) == 0
    assert asked == []


def test_a_plugin_is_the_one_way_to_run_code_and_must_be_named(tmp_path: Path) -> None:
    """A file beside the config, however it is called, is not run."""
    config = small_config(tmp_path)
    for name in ("plugin.py", "conftest.py", "sitecustomize.py", "densevit_plugin.py"):
        (tmp_path / name).write_text(
            textwrap.dedent(f"import pathlib\npathlib.Path({str(tmp_path)!r}, 'ran').touch()\n")
        )
    before = list(sys.path)
    assert main(["train", str(config), "steps=1", "data.val=null"]) == 0
    assert not (tmp_path / "ran").exists() and sys.path == before
