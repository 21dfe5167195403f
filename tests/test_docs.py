"""The pages' code runs as it stands, and draws their pictures. `python tests/test_docs.py` draws them anew."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ["vit.md"]


def run(page: str) -> None:
    """Executes the Python of a page in the current folder, one namespace for all blocks."""
    space: dict[str, Any] = {}
    text = (DOCS / page).read_text()
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        line = text[: match.start(1)].count("\n")
        exec(compile("\n" * line + match[1], str(DOCS / page), "exec"), space)


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs_and_draws_its_pictures(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    with torch.random.fork_rng():
        run(page)
    shown = re.findall(r"!\[[^]]+\]\((images/[^)]+)\)", (DOCS / page).read_text())
    assert sorted(shown) == sorted(f"images/{path.name}" for path in (tmp_path / "images").iterdir())
    for name in shown:
        kept, drawn = (
            np.asarray(Image.open(folder / name).convert("RGB")).astype(float) for folder in (DOCS, tmp_path)
        )
        assert kept.shape == drawn.shape
        # Training on another machine rounds otherwise: the same picture, not the same pixels.
        assert np.abs(kept - drawn).mean() < 12
        assert (DOCS / name).stat().st_size < 100_000


if __name__ == "__main__":
    os.chdir(DOCS)
    (DOCS / "images").mkdir(exist_ok=True)
    for name in sys.argv[1:] or PAGES:
        run(name)
