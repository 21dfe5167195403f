"""A newcomer follows a command through few modules; see walk.py for what is counted."""

import subprocess
import sys
from pathlib import Path

import pytest
from small import small_config

WALK = Path(__file__).with_name("walk.py")


@pytest.mark.slow
def test_a_command_is_followed_through_few_modules(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    data = ["--data", "folder", "--root", str(tmp_path / "data"), "--data-option", "depth_scale=1000"]
    for words, most in (
        (["train", str(config), "steps=1"], 28),  # the aim is 21
        (["eval-depth", str(tmp_path / "run"), *data], 25),
        (
            ["export-depth", str(tmp_path / "run"), str(tmp_path / "data/images"), "--output", str(tmp_path / "maps")],
            20,
        ),
    ):
        done = subprocess.run([sys.executable, WALK, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        opened = done.stdout[done.stdout.index(" modules:") - 3 :].split()
        assert int(opened[0]) <= most, done.stdout
