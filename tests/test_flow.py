"""How many modules take part in a command, as a measure of what a reader opens to follow it.

Counted are the modules of which a function runs, except those that a reader knows by name and need not open: the
components that a config or an option chooses (models, objectives, losses, tasks, data, trackers, formats), checkpoint
formats, tables of schemas, pure functions and utilities.
"""

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
BY_NAME = (
    "models",
    "objectives",
    "losses",
    "tasks",
    "data",
    "weights",
    "ops",
    "utils",
    "reporting",
    "engine/trackers",
    "inference/writers/png.py",
    "evaluation/bootstrap.py",
    "evaluation/records.py",
    "evaluation/depth/metrics.py",
    "evaluation/depth/extra_metrics.py",
    "cli/options/types.py",
    "config/json_schema.py",
)
NOUNS = {"errors.py", "model_card.py", "registry.py", "registries.py", "structures.py", "version.py", "__init__.py"}


@contextmanager
def modules_run() -> Iterator[list[str]]:
    """The modules of which a function runs meanwhile, in order of their first one."""
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(ROOT)) and not importing(frame):
            if frame.f_code.co_name == "write_training_report":  # runs when the training is over
                found.setdefault("write_training_report()")
            found.setdefault(str(Path(file).relative_to(ROOT)))
            if frame.f_code.co_name == "__init__" and file.endswith("engine/trainer.py"):
                found.setdefault("Trainer()")

    names: list[str] = []
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)
        names += [name for name in found if not name.startswith(BY_NAME) and name not in NOUNS]


def importing(frame: FrameType | None) -> bool:
    """Whether a module of the package is being imported, which runs decorators of what it defines."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(str(ROOT)):
            return True
        frame = frame.f_back
    return False


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("flow")
    with modules_run() as names:
        assert main(["train", str(small_config(folder)), "steps=2", "validate_every=2"]) == 0
    return folder, names


def test_training(run: tuple[Path, list[str]]) -> None:
    names = run[1]
    built, trained = names.index("Trainer()"), names.index("write_training_report()")
    before, behind = names[:built], names[built + 1 : trained]
    assert len(before) <= 17, before
    assert len(behind) <= 13, behind


def test_evaluation(run: tuple[Path, list[str]]) -> None:
    folder = run[0]
    words = ["--data", "folder", "--root", str(folder / "data"), "--data-options", "depth_scale=1000"]
    with modules_run() as names:
        assert main(["eval", "--task", "depth", str(folder / "run"), *words, "--output", str(folder / "scores")]) == 0
    assert len(names) <= 25, names


def test_export(run: tuple[Path, list[str]]) -> None:
    folder = run[0]
    with modules_run() as names:
        assert (
            main(["predict", str(folder / "run"), str(folder / "data/images"), "--output", str(folder / "maps")]) == 0
        )
    assert len(names) <= 20, names
