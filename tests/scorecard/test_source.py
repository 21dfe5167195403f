"""What the code itself must not do: run what a file says, guess, hide errors, or call anybody without being asked."""

import ast
import configparser
import socket
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from small import small_config, small_folder

from densevit.cli.main import main

ROOT = Path(__file__).parents[2]
SEARCHED = [
    path for room in ("densevit", "tools", "datasets", "examples") for path in sorted((ROOT / room).rglob("*.py"))
]
# A call of one of these runs what a file or a text says, by way of a pickle, a shell or Python itself.
PICKLES = ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve")
RUNNERS = {
    *(f"{module}.{name}" for module in PICKLES for name in ("load", "loads", "Unpickler", "open")),
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "pandas.read_pickle"),
    *("yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all"),
    *("torch.hub.load", "torch.hub.load_state_dict_from_url", "torch.jit.load", "torch.package.PackageImporter"),
}
# A keyword with one of these values opens what is closed by default.
OPENERS = {"weights_only": False, "allow_pickle": True, "trust_remote_code": True, "shell": True}
SWITCHES = {"LOAD_TRUNCATED_IMAGES", "MAX_IMAGE_PIXELS"}  # of Pillow, for the whole process
DECODERS = ("torchvision.io", "imageio")  # crash the process on damaged PNGs, or open anything
TORCH_LOAD = "densevit/weights/readers.py"
SURE = {"weights_only": True}  # what torch.load must be told


def faults(tree: ast.AST, where: str) -> Iterator[str]:
    names = imported(tree)
    for node in ast.walk(tree):
        for fault in (*of_call(node, names, where), *of_statement(node, names)):
            yield f"{where}:{getattr(node, 'lineno', 0)}: {fault}"


def imported(tree: ast.AST) -> dict[str, str]:
    """What a name in this file stands for: `p` -> `pickle` after `import pickle as p`."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {
                a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                for a in node.names
            }
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def dotted(node: ast.AST, names: dict[str, str]) -> str:
    """`torch.load` of `t.load` after `import torch as t`; empty where it is no name."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        before = dotted(node.value, names)
        return f"{before}.{node.attr}" if before else f"?.{node.attr}"
    return ""


def of_call(node: ast.AST, names: dict[str, str], where: str) -> Iterator[str]:
    if not isinstance(node, ast.Call):
        return
    called, given = dotted(node.func, names), {word.arg: getattr(word.value, "value", None) for word in node.keywords}
    if called in RUNNERS:
        yield f"{called} runs what it is given"
    if called.endswith(".extractall"):
        yield "extractall writes where the archive says"
    if called.endswith(".extract") and "archive" in ast.dump(node.func):
        yield "extract writes where the archive says"
    if called in ("torch.load", "torch.serialization.load") and (where != TORCH_LOAD or SURE.items() - given.items()):
        yield f"torch.load belongs into {TORCH_LOAD}, with weights_only=True"
    for word, value in OPENERS.items():
        if word in given and given[word] in (value, None):
            yield f"{word} is not closed for sure"


def of_statement(node: ast.AST, names: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.ExceptHandler) and node.type is None:
        yield "a bare except hides everything, Ctrl-C too"
    if isinstance(node, ast.ExceptHandler) and len(node.body) == 1 and isinstance(node.body[0], ast.Pass):
        caught = ast.unparse(node.type) if node.type else ""
        if caught in ("Exception", "BaseException"):
            yield f"swallows every {caught}"
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if dotted(target, names).rpartition(".")[2] in SWITCHES and "." in dotted(target, names):
                yield f"{dotted(target, names)} is switched for the whole process"
    if isinstance(node, ast.Import | ast.ImportFrom):
        modules = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [f"{node.module}.{a.name}" for a in node.names]
        )
        yield from (f"imports {module}" for module in modules if module.startswith(DECODERS))
    if isinstance(node, ast.Attribute) and dotted(node, names).startswith(DECODERS):
        yield f"uses {dotted(node, names)}"


def test_the_source_has_no_call_that_runs_hides_or_opens_what_it_should_not() -> None:
    assert len(SEARCHED) > 250
    found = [fault for path in SEARCHED for fault in faults(ast.parse(path.read_text()), str(path.relative_to(ROOT)))]
    assert not found, "\n".join(found)


CAUGHT = [
    "import pickle\npickle.load(f)",
    "import pickle as p\np.loads(b)",
    "from pickle import Unpickler\nUnpickler(f).load()",
    "import joblib\njoblib.load(f)",
    "import torch\ntorch.load(f, weights_only=True)",
    "import torch as t\nt.load(f)",
    "from torch import load\nload(f, weights_only=False)",
    "import torch.hub\ntorch.hub.load('a/b', 'c')",
    "import numpy as np\nnp.load(f, allow_pickle=True)",
    "import numpy as np\nnp.load(f, allow_pickle=trusted)",
    "import yaml\nyaml.load(f, yaml.SafeLoader)",
    "import yaml\nyaml.unsafe_load(f)",
    "eval('1')",
    "exec(text)",
    "import os\nos.system('ls')",
    "import subprocess\nsubprocess.run('ls', shell=True)",
    "archive.extractall(folder)",
    "AutoModel.from_pretrained('x', trust_remote_code=True)",
    "from PIL import ImageFile\nImageFile.LOAD_TRUNCATED_IMAGES = True",
    "from PIL import Image\nImage.MAX_IMAGE_PIXELS = None",
    "import torchvision.io\ntorchvision.io.read_image(f)",
    "from torchvision.io import decode_png",
    "import torchvision\ntorchvision.io.decode_image(b)",
    "try:\n    x()\nexcept:\n    y()",
    "try:\n    x()\nexcept Exception:\n    pass",
]


def test_the_search_finds_each_of_them() -> None:
    assert [code for code in CAUGHT if not list(faults(ast.parse(code), "densevit/x.py"))] == []


def test_torch_load_is_free_where_it_belongs_and_only_when_sure() -> None:
    sure, unsure = ("import torch\ntorch.load(f, weights_only=True)", "import torch\ntorch.load(f)")
    assert not list(faults(ast.parse(sure), TORCH_LOAD)) and list(faults(ast.parse(unsure), TORCH_LOAD))


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
