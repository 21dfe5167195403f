"""The order of the layers as a table: an import may only run down, and some neighbours never meet."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import densevit

LAYERS = [
    {
        "depth_corrections",
        "errors",
        "model_card",
        "model_inputs",
        "output_kinds",
        "preprocess_config",
        "registry",
        "structures",
        "utils",
        "version",
    },
    {"config", "losses", "ops"},
    {"reporting"},
    {"data", "evaluation", "models", "tasks", "weights"},
    {"engine", "inference"},
    {"objectives"},
    {"registries"},
    {"builder"},
    {"scorers"},
    {"api"},
    {"app", "speed"},
    {"cli"},
    {"__main__"},
]
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
FREE_WITHIN = (0,)  # the lowest layer's modules may import each other
FORBIDDEN = {"engine": {"data", "models"}}
ROOT = Path(densevit.__file__).parent
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT or path.stem != "__init__"]
MODULES = {file for file in FILES if file.stem != "__init__"}  # an __init__.py only hands names on
MOST_MODULES = 17


@cache
def nodes_of(file: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(file.read_text())))


def imported(file: Path) -> set[str]:
    nodes = nodes_of(file)
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [f"{node.module}.{a.name}" for node in nodes if isinstance(node, ast.ImportFrom) for a in node.names]
    found = {name.split(".")[1] for name in names if name.startswith("densevit.")}
    return {name for name in found if name in LAYER}


def test_imports_only_run_down() -> None:
    upward = {}
    for file in FILES:
        own = file.relative_to(ROOT).parts[0].removesuffix(".py")
        within = LAYERS[LAYER[own]] if LAYER[own] in FREE_WITHIN else {own}
        below = {name for name, layer in LAYER.items() if layer < LAYER[own]} - FORBIDDEN.get(own, set())
        upward[str(file.relative_to(ROOT))] = imported(file) - below - within
    assert not {file: names for file, names in upward.items() if names}


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
    assert below == {"weights/readers.py"}  # which names a class that old checkpoints pickle


def imports(file: Path) -> set[Path]:
    """The package's modules that a file imports anywhere in it: in functions, and for types, too."""
    found = set()
    for node in nodes_of(file):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        paths = [ROOT.parent.joinpath(*name.split(".")).with_suffix(".py") for name in names]
        found |= {path for path in paths if path in MODULES}
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    above: dict[Path, set[Path]] = {file: imports(file) for file in MODULES}
    while leaves := {file for file, below in above.items() if not below & above.keys()}:
        above = {file: below for file, below in above.items() if file not in leaves}
    assert not above, f"in circles, or above one: {sorted(str(file.relative_to(ROOT)) for file in above)}"


def test_no_folder_holds_more_modules_than_a_reader_surveys() -> None:
    counts = Counter(str(file.parent.relative_to(ROOT)) for file in MODULES)
    del counts["cli/commands"]  # one file a command
    assert not {folder: count for folder, count in counts.items() if count > MOST_MODULES}


def test_the_renderer_imports_the_package_and_never_the_other_way() -> None:
    assert [str(path.relative_to(ROOT)) for path in FILES if "densevit_rooms" in path.read_text()] == []
