"""Counts the modules that a reader opens to follow a command: `python tests/walk.py eval-depth RUN ...`.

A module counts if during the command a function of it calls into another module of the package: there the reader has to
go on. What is called and calls nothing further explains itself by name and docstring. Components (models, losses),
operations and utilities are not part of the way.
"""

import sys
import threading
from pathlib import Path
from types import FrameType

import densevit
import densevit.api
import densevit.builder.training
import densevit.registries
from densevit.cli.main import main

ROOT = f"{Path(densevit.__file__).parent}/"
LEAVES = ("models/", "losses/", "ops/", "utils/", "registry.py", "errors.py")


def module_of(frame: FrameType | None) -> str | None:
    """The module of the package that a frame, or its nearest caller, belongs to; None during imports."""
    while frame is not None and not frame.f_code.co_filename.startswith(ROOT):
        frame = frame.f_back
    return None if frame is None or frame.f_code.co_name == "<module>" else frame.f_code.co_filename[len(ROOT) :]


def modules_opened(argv: list[str]) -> list[str]:
    calls: set[tuple[str, str]] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ROOT) and frame.f_code.co_name != "<module>":
            called, caller = module_of(frame), module_of(frame.f_back)
            if called and caller and called != caller:
                calls.add((caller, called))

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        code = main(argv)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    assert code == 0, f"{argv[0]} ended with {code}"
    return sorted(
        {caller for caller, called in calls if not caller.startswith(LEAVES) and not called.startswith(LEAVES)}
    )


if __name__ == "__main__":
    opened = modules_opened(sys.argv[1:])
    print(f"{len(opened)} modules:", *opened, sep="\n  ")
