"""What a user of pip gets: the wheel with recipes and data files, and an sdist from which the same wheel is built."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

import densevit

ROOT = Path(__file__).parents[1]
in_clone = pytest.mark.skipif(not (ROOT / ".github").is_dir(), reason="an sdist has no workflows")
# Neither belongs to the source, nor is any of it tracked.
NOT_SOURCE = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "runs", "demo")
# Module -> the distribution that holds it, where the names differ.
DISTRIBUTIONS = {
    "PIL": "pillow", "cv2": "opencv_python_headless", "yaml": "pyyaml", "skimage": "scikit_image",
    "sklearn": "scikit_learn",
}  # fmt: skip
BUILD = "import sys; from setuptools import build_meta as backend; print(getattr(backend, sys.argv[1])(sys.argv[2]))"

# Imports every module of the installed package, from there; prints how many.
IMPORT_ALL = """
import pkgutil, sys, importlib, densevit, densevit_rooms
packages = (densevit, densevit_rooms)
names = [m.name for package in packages for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
names += [package.__name__ for package in packages]
names.remove("densevit.__main__")
files = [importlib.import_module(name).__file__ for name in names]
assert all(file.startswith(sys.argv[1]) for file in files), files
print(len(files) + 1)
"""


def build(kind: str, source: Path, target: Path) -> Path:
    command = [sys.executable, "-c", BUILD, f"build_{kind}", str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.split()[-1]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_sdist_is_whole_and_the_wheel_built_from_it_holds_recipes_and_data(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=NOT_SOURCE)
    for data in (path for path in (source / "datasets").iterdir() if path.is_dir()):
        shutil.rmtree(data)
    tracked = files(source)
    with tarfile.open(build("sdist", source, tmp_path)) as sdist:
        sdist.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert tracked - files(unpacked) == set()
    wheel = zipfile.ZipFile(build("wheel", unpacked, tmp_path))
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    expected = {name for name in tracked if name.startswith(("densevit/", "densevit_rooms/"))}
    assert packed == expected | {f"densevit/{name}" for name in tracked if name.startswith("configs/")}
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(installed)]
    done = subprocess.run([*pip, str(wheel.filename)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    env = {"PYTHONPATH": str(installed), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, str(installed)], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0 and int(done.stdout) == sum(name.endswith(".py") for name in packed), done.stderr
    script = installed / "bin/densevit"
    done = subprocess.run([sys.executable, script, "--version"], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == densevit.__version__
    done = subprocess.run(
        [sys.executable, "-m", "densevit", "train", "nyu_dinov2_vits_dtp"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "Did you mean the recipe 'nyu_dinov2_vits_dpt'?" in done.stderr


def test_the_metadata_say_the_same_version_everywhere() -> None:
    assert f"version: {densevit.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    workflow = (ROOT / ".github/workflows/ci.yml").read_text() if (ROOT / ".github").is_dir() else ""
    pythons = re.findall(r"Python :: (3\.\d+)", config["metadata"]["classifiers"])
    assert config["options"]["python_requires"] == f">={pythons[0]}"
    assert not workflow or set(pythons) <= set(json.loads(re.findall(r"python: (\[.*?\])", workflow)[0]))
    assert "embreex" not in config["options"]["install_requires"]  # the renderer is an extra


def step(name: str, folder: Path, **environment: str) -> int:
    """Run the commands of a step of the release's workflow in a folder."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    (command,) = [step["run"] for step in jobs["build"]["steps"] if step.get("name") == name]
    shell = ["bash", "-eo", "pipefail", "-c", command]
    return subprocess.run(shell, cwd=folder, env={**os.environ, **environment}).returncode


@in_clone
def test_a_release_needs_the_tag_of_the_version_and_dated_notes(tmp_path: Path) -> None:
    assert step("The tag is the version", ROOT, GITHUB_REF_NAME=f"v{densevit.__version__}") == 0
    assert step("The tag is the version", ROOT, GITHUB_REF_NAME="v0.0.1") == 1
    heads = ("1.10.0], not released yet", "1.1.0] - 2026-12-01", "0.1.0] - 2026-01-01")
    changes = "".join(f"## [{head}\n\n- {i}\n\n" for i, head in enumerate(heads))
    (tmp_path / "CHANGELOG.md").write_text(changes)
    notes = "The changelog has dated notes of the version"
    assert step(notes, tmp_path, GITHUB_REF_NAME="v1.1.0") == 0
    assert (tmp_path / "notes.md").read_text() == "\n- 1\n\n"
    assert step(notes, tmp_path, GITHUB_REF_NAME="v1.10.0") == 1  # without a date
    assert step(notes, tmp_path, GITHUB_REF_NAME="v1.2.0") == 1
    # The project's own, once it has a date.
    own = (ROOT / "CHANGELOG.md").read_text().replace(", not released yet", " - 2026-12-01")
    (tmp_path / "CHANGELOG.md").write_text(own)
    assert step(notes, tmp_path, GITHUB_REF_NAME=f"v{densevit.__version__}") == 0
    text = (tmp_path / "notes.md").read_text()
    assert "### Changed" in text and "\n## " not in text


@in_clone
def test_every_link_and_image_of_the_readme_on_pypi_leads_to_the_tag(tmp_path: Path) -> None:
    shutil.copy(ROOT / "README.md", tmp_path)
    where = {"GITHUB_REPOSITORY": "somebody/densevit", "GITHUB_REF_NAME": "v1.2.3"}
    assert step("PyPI shows the README without the files that it links to", tmp_path, **where) == 0
    text, base = (tmp_path / "README.md").read_text(), "https://github.com/somebody/densevit"
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets and all(target.startswith("https://") for target in targets)
    images = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert images and all(image.startswith(f"{base}/raw/v1.2.3/docs/images/") for image in images)
    assert f"[published checkpoints]({base}/blob/v1.2.3/docs/models.md)" in text


def test_what_the_package_imports_is_declared() -> None:
    declared = ConfigParser()
    declared.read(ROOT / "setup.cfg")
    options = "\n".join([declared["options"]["install_requires"], *declared["options.extras_require"].values()])
    names = {re.split(r"[<>=\[]", line)[0].lower().replace("-", "_") for line in options.split()}
    imported = set()
    for path in [*ROOT.glob("densevit/**/*.py"), *ROOT.glob("densevit_rooms/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    # The stubs of the library are for type checkers only.
    known = {*sys.stdlib_module_names, "_typeshed", "densevit", "densevit_rooms"}
    third_party = {DISTRIBUTIONS.get(name, name) for name in imported - known}
    assert {name.lower() for name in third_party} - names == set()


def test_predictions_import_neither_the_trainer_nor_other_slow_modules() -> None:
    code = """
import sys
import numpy
import densevit
assert {"load", "Predictor"} <= set(dir(densevit))
assert "torch" not in sys.modules
densevit.load("densevit:rooms", device="cpu", precision="bf16")(numpy.zeros((192, 256, 3), numpy.uint8))
slow = ("densevit.engine", "densevit.builder.training", "tensorboard", "torch.utils.tensorboard", "albumentations",
        "timm", "torchvision", "torch._dynamo", "torch.distributed.tensor", "sympy")
print([name for name in sys.modules if name.startswith(slow)])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_torchrun_runs_the_package_as_a_module() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "-m", "densevit", "train", "no_such"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "no_such: no such config file." in done.stderr
