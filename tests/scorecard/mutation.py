"""A copy of the code with one guard taken out, and a test run against it."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from scorecard.card import Mutant

TESTS_FAILED = 1  # pytest's exit code; 2 to 5 say that it could not run them
ROOT = Path(__file__).parents[2]
COPIED = ("densevit", "tests", "tools", "datasets", "configs", "docs", "examples", "setup.cfg", "README.md")


def copy(folder: Path) -> Path:
    """What the tests need of the repository."""
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy2(source, target)
    return folder


def apply(mutant: Mutant, folder: Path) -> None:
    """
    Raises:
        ValueError: the guard is not where the table says; the table must follow the code.
    """
    path = folder / mutant.file
    text = path.read_text()
    if (count := text.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.file}: {count} places read {mutant.old!r}, where the scorecard expects one.")
    path.write_text(text.replace(mutant.old, mutant.new))


def run(test: str, folder: Path, patience: float = 300) -> tuple[int, str]:
    """One test against the code in `folder`, with the processes it starts: pytest's exit code, and what it said.

    A test that hangs has noticed, too: it is ended, and counts as failed.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return TESTS_FAILED, f"ended after {patience:.0f} s"
    return process.returncode, said
