"""The notebooks run from the first cell to the last, in a folder of their own."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

NOTEBOOKS = Path(__file__).parents[1] / "examples/notebooks"


def run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    return runpy.run_path(str(NOTEBOOKS / f"{name}.py"))


@pytest.mark.slow
def test_a_folder_becomes_a_scored_model_and_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run("train_on_a_folder", tmp_path, monkeypatch)
    assert found["evaluation"].scores["abs_rel"] == pytest.approx(found["run"].scores["abs_rel"], rel=0.05)
    assert "depth in metres" in found["depth"]._repr_html_() and found["depth"].shape == (240, 240)
    assert (tmp_path / "scores/report.html").is_file() and found["run"].report is not None


@pytest.mark.slow
def test_maps_are_scored_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run("score_maps", tmp_path, monkeypatch)
    assert found["one"].scores["abs_rel"] == pytest.approx(0.1, abs=0.02)  # the blur adds to the 10 %
    assert found["aligned"].scores["abs_rel"] < 0.05
    assert "abs_rel" in found["one"].intervals


@pytest.mark.slow
def test_published_weights_become_a_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent / "weights"), *sys.path])
    import seeded

    torch.save(seeded.read("depth_anything_v2_metric").state(), tmp_path / "small.pth")  # the keys of the published one
    monkeypatch.setenv("WEIGHTS", "small.pth")
    found = run("weights_to_a_cloud", tmp_path, monkeypatch)
    assert found["depth"].shape == found["photo"].depth.shape and found["summary"].done == 1
    header = (tmp_path / "cloud/photo.ply").read_bytes()[:60]
    assert header.startswith(b"ply\nformat binary_little_endian")
    assert (tmp_path / "cloud/photo.color.png").is_file() or len(list((tmp_path / "cloud").glob("*.png"))) == 1


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.py")), ids=lambda path: path.stem)
def test_the_cells_are_jupytexts_percent_format(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0] == "# %% [markdown]" and lines[1].startswith("# # ")
    assert sum(line.startswith("# %%") for line in lines) >= 6
