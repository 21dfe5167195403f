"""The pages' code runs as it stands, and draws their pictures. `python tests/test_docs.py` draws them anew."""

import doctest
import importlib
import os
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from densevit.data.datasets.base import DATASETS

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ["vit.md"]


EXAMPLES = [path for path in sorted((DOCS.parent / "densevit").rglob("*.py")) if "    >>> " in path.read_text()]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_of_docstrings_give_what_they_say(path: Path) -> None:
    name = ".".join(path.relative_to(DOCS.parent).with_suffix("").parts).removesuffix(".__init__")
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def run(page: str) -> None:
    """Executes the Python of a page in the current folder, one namespace for all blocks."""
    space: dict[str, Any] = {}
    text = (DOCS / page).read_text()
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        line = text[: match.start(1)].count("\n")
        exec(compile("\n" * line + match[1], str(DOCS / page), "exec"), space)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_and_draws_its_pictures(page: str, here: Path) -> None:
    (here / "images").mkdir()
    with torch.random.fork_rng():
        run(page)
    shown = re.findall(r"!\[[^]]+\]\((images/[^)]+)\)", (DOCS / page).read_text())
    assert sorted(shown) == sorted(f"images/{path.name}" for path in (here / "images").iterdir())
    for name in shown:
        kept, drawn = (np.asarray(Image.open(folder / name).convert("RGB")).astype(float) for folder in (DOCS, here))
        assert kept.shape == drawn.shape
        # Training on another machine rounds otherwise: the same picture, not the same pixels.
        assert np.abs(kept - drawn).mean() < 12
        assert (DOCS / name).stat().st_size < 100_000


def script(path: Path) -> ModuleType:
    spec = spec_from_file_location(f"script_{path.stem}", path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(DOCS.parent.glob("benchmarks/*.py")), ids=lambda path: path.stem)
def test_the_scripts_behind_the_numbers_find_what_they_import(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    try:
        script(path)
    except ModuleNotFoundError as error:
        if str(error.name).startswith("densevit"):
            raise
        pytest.skip(str(error))  # the programs that it runs beside ours


@pytest.mark.slow
def test_the_page_on_scale_has_what_its_script_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scale = script(DOCS.parent / "benchmarks/scale.py")
    monkeypatch.setattr(scale, "SIZES", {"ViT-S/14": scale.SIZES["ViT-S/14"]})
    *_, row = scale.sizes(518)
    assert row.startswith("| ViT-S/14 | 25 M |")
    page = (DOCS / "scale.md").read_text()
    assert row in page
    configs = DOCS.parent / "configs"
    frozen = configs / "depth/nyu_dinov3_vits_linear.yaml"
    (line,) = list(scale.recipes([configs / "segmentation/folder.yaml", frozen]))[-1:]
    assert line.strip() in page
    assert "left out" in capsys.readouterr().err  # a folder's classes are not known before it is there


@pytest.mark.slow
def test_the_pictures_of_the_readme_are_drawn_by_their_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = script(DOCS / "pictures.py")
    monkeypatch.setattr(pictures, "PHOTOS", 20)
    monkeypatch.setattr(pictures, "SHOWN", 0)
    pictures.main(str(tmp_path), "2")
    shown = re.findall(r"docs/images/([\w.]+)", (DOCS.parent / "README.md").read_text())
    assert len(shown) == 7 and sorted(shown) == sorted(path.name for path in tmp_path.iterdir())
    for name in shown:
        assert (DOCS / "images" / name).stat().st_size < (2_000_000 if name.endswith(".gif") else 150_000)


def test_links_are_words_and_not_paths_of_the_repository() -> None:
    for page in (*DOCS.glob("*.md"), DOCS.parent / "README.md"):
        words = re.findall(r"\[`?([^\]\[`]+)`?\]\([^)\s]+\)", page.read_text())
        paths = r"[\w./-]+\.(md|py|ya?ml|json)|(benchmarks|configs|docs|examples|tests)/\S+"
        assert [word for word in words if re.fullmatch(paths, word)] == [], page.name


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_the_data_sets_in_the_configs_of_a_page_have_the_options_that_they_name(page: Path) -> None:
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        nodes = [yaml.safe_load(block)]
        for node in nodes:
            nodes += node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
            if isinstance(node, dict) and node.get("type") in DATASETS.components:
                DATASETS.check(node, page.name, partial=True)


def test_the_tests_that_pages_name_are_there() -> None:
    named = {name for page in DOCS.glob("*.md") for name in re.findall(r"\b(?:\w+/)*test_\w+\.py", page.read_text())}
    tests = Path(__file__).parent
    assert len(named) > 20 and not [n for n in named if not (tests / n.removeprefix("tests/")).is_file()]


if __name__ == "__main__":
    os.chdir(DOCS)
    (DOCS / "images").mkdir(exist_ok=True)
    for name in sys.argv[1:] or PAGES:
        run(name)
