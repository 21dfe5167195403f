"""Commands limit how long OpenMP's threads turn while they wait, and trainings how long garbage collections take."""

import gc
import os
import subprocess
import sys
from typing import Any

import pytest

from densevit.utils.process import frozen_garbage, limit_spinning

CODE = """
import os, sys
from densevit.cli import main
main.COMMANDS["compare"] = main.COMMANDS["compare"]._replace(interruptible=True)
main.find_function = lambda place: lambda: print(os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
main.main(["compare"])
"""


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)]
)
def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: Any) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    limit_spinning()
    assert os.environ.get("GOMP_SPINCOUNT") == expected
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)


def test_a_command_sets_it_before_torch_is_imported() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP", "OMP"))}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "10000 False"


@pytest.mark.parametrize("frozen_before", [True, False])
def test_objects_are_frozen_for_a_while_unless_the_process_has_frozen_its_own(
    monkeypatch: pytest.MonkeyPatch, frozen_before: bool
) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", lambda: int(frozen_before))
    old = [[]]
    try:
        with frozen_garbage():
            assert any(thing is old for thing in gc.get_objects()) == frozen_before  # which lists no frozen ones
        assert any(thing is old for thing in gc.get_objects())
    finally:
        gc.freeze()
