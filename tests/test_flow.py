"""How many modules take part in a command: all of which a function runs, as a measure of what a change can touch."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from small import small_config

import densevit
from densevit.cli.main import main

ROOT = Path(densevit.__file__).parent


@contextmanager
def modules_run() -> Iterator[set[str]]:
    """Collect the modules of which a function runs meanwhile; not of what runs while a module is imported."""
    names: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(ROOT)) and file.endswith(".py") and not importing(frame):
            names.add(str(Path(file).relative_to(ROOT)))

    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)


def importing(frame: FrameType | None) -> bool:
    """Whether a module of the package is being imported, which runs decorators of what it defines."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(str(ROOT)):
            return True
        frame = frame.f_back
    return False


@pytest.fixture(scope="module")
def trained(folder: Path, report_images: None) -> tuple[Path, set[str]]:
    with modules_run() as names:
        assert main(["train", str(small_config(folder)), "steps=2", "validate_every=2"]) == 0
    return folder, names


def test_training(trained: tuple[Path, set[str]]) -> None:
    assert len(trained[1]) <= 102, sorted(trained[1])


def test_evaluation(trained: tuple[Path, set[str]], tmp_path: Path) -> None:
    folder = trained[0]
    words = ["--data", "folder", "--root", str(folder / "data"), "--data-options", "depth_scale=1000"]
    with modules_run() as names:
        assert main(["eval", str(folder / "run"), *words, "--output", str(tmp_path)]) == 0
    assert len(names) <= 69, sorted(names)


def test_prediction(trained: tuple[Path, set[str]], tmp_path: Path) -> None:
    folder = trained[0]
    with modules_run() as names:
        assert main(["predict", str(folder / "run"), str(folder / "data/images"), "--output", str(tmp_path)]) == 0
    assert len(names) <= 47, sorted(names)
