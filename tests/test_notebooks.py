"""The notebooks run from the first cell to the last, in a folder of their own."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

NOTEBOOKS = Path(__file__).parents[1] / "examples/notebooks"


def run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name} {cell['id']}", "exec"), names)
    return names


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


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_stored_as_jupyter_saves_it_without_outputs(path: Path) -> None:
    text = path.read_text()
    notebook = json.loads(text)
    # What nbformat.write writes, so that saving an unchanged notebook in Jupyter changes no line.
    assert text == json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)  # 4.5 introduced the ids of cells
    cells = notebook["cells"]
    assert cells[0]["cell_type"] == "markdown" and cells[0]["source"][0].startswith("# ")
    assert len({cell["id"] for cell in cells}) == len(cells) >= 6
    for cell in cells:
        assert cell["source"] == "".join(cell["source"]).splitlines(keepends=True)  # one line an entry
        fields = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            fields |= {"execution_count", "outputs"}
            assert cell["execution_count"] is None and cell["outputs"] == []
        assert set(cell) == fields and cell["metadata"] == {}
