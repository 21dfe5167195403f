"""The order of the layers as a table: an import may only run down, and some neighbours never meet."""

import ast
from pathlib import Path

import pytest

import densevit

LAYERS = [
    {"errors", "model_card", "registry", "structures", "utils", "version"},
    {"config", "losses", "ops"},
    {"reporting"},
    {"data", "evaluation", "models", "tasks", "weights"},
    {"engine", "inference"},
    {"registries"},
    {"builder"},
    {"evaluators"},
    {"api"},
    {"benchmark"},
    {"cli"},
    {"__main__"},
]
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
FREE_WITHIN = (0,)  # the lowest layer's modules may import each other
FORBIDDEN = {"engine": {"data", "models"}}
ROOT = Path(densevit.__file__).parent
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT or path.stem != "__init__"]


def imported(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [f"{node.module}.{a.name}" for node in nodes if isinstance(node, ast.ImportFrom) for a in node.names]
    found = {name.split(".")[1] for name in names if name.startswith("densevit.")}
    return {name for name in found if name in LAYER}


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_only_run_down(file: Path) -> None:
    own = file.relative_to(ROOT).parts[0].removesuffix(".py")
    allowed = {
        name
        for name, layer in LAYER.items()
        if layer < LAYER[own] or name == own or (layer == LAYER[own] and layer in FREE_WITHIN)
    } - FORBIDDEN.get(own, set())
    assert imported(file) <= allowed


def test_every_folder_has_its_layer() -> None:
    assert {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES} == LAYER.keys()


def test_only_one_file_imports_albumentations_and_one_calls_torch_load() -> None:
    def containing(text: str) -> list[str]:
        return [str(path.relative_to(ROOT)) for path in FILES if text in path.read_text()]

    assert containing("import albumentations") == ["data/transforms/photometric.py"]
    assert containing("torch.load(") == ["weights/readers.py"]


def test_only_the_command_line_parses_arguments() -> None:
    using = {str(path.relative_to(ROOT)) for path in FILES if "argparse" in path.read_text()}
    below = {name for name in using if not name.startswith("cli/")}
    assert below == {"weights/safe_unpickle.py"}  # which names a class that old checkpoints pickle
