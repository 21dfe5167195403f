"""The house plan as a table: an import may only run down, and some neighbours never meet."""

import ast
from pathlib import Path

import pytest

import densevit

FLOORS = [
    {"errors", "registry", "structures", "card", "files", "document", "signals", "memory", "network", "docstrings"},
    {"losses", "ops", "config", "checking", "plugins", "signatures", "first_check"},
    {"models", "data", "tasks", "evaluation", "weights"},
    {"engine", "inference"},
    {"assembly"},
    {"parts"},
    {"planning"},
    {"build", "conversion"},
    {"benchmarking"},
    {"cli"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
FREE_WITHIN = (0, 1)  # the lowest floors' nouns may know each other
STRANGERS = {"engine": {"data", "models"}}
ROOT = Path(densevit.__file__).parent
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT or path.stem != "__init__"]


def rooms_imported(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [f"{node.module}.{a.name}" for node in nodes if isinstance(node, ast.ImportFrom) for a in node.names]
    found = {name.split(".")[1] for name in names if name.startswith("densevit.")}
    return {room for room in found if room in FLOOR}


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_run_down(file: Path) -> None:
    room = file.relative_to(ROOT).parts[0].removesuffix(".py")
    allowed = {
        other
        for other, floor in FLOOR.items()
        if floor < FLOOR[room] or other == room or (floor == FLOOR[room] and floor in FREE_WITHIN)
    } - STRANGERS.get(room, set())
    assert rooms_imported(file) <= allowed


def test_every_room_stands_on_a_floor() -> None:
    rooms = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES}
    assert rooms == FLOOR.keys()


def test_only_one_file_imports_albumentations_and_one_calls_torch_load() -> None:
    def containing(text: str) -> list[str]:
        return [str(path.relative_to(ROOT)) for path in FILES if text in path.read_text()]

    assert containing("import albumentations") == ["data/transforms.py"]
    assert containing("torch.load(") == ["weights/files.py"]
