"""The examples run, small; the real pairs where somebody has them."""

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[1] / "examples"
SAMPLES = os.environ.get("DENSEVIT_SAMPLES")


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_demo_makes_a_report_of_all_its_parts(tmp_path: Path, monkeypatch, capsys) -> None:
    demo = example("demo")
    monkeypatch.setattr(demo, "SCENES", {"train": 2, "val": 1, "test": 1})
    monkeypatch.setattr(demo, "FRAMES", 3)
    monkeypatch.setattr(
        sys, "argv", ["demo.py", "--output", str(tmp_path), "steps=4", "batch_size=4", "precision=fp32"]
    )
    assert demo.main() == 0
    out = capsys.readouterr().out
    assert "AbsRel on unseen rooms: model" in out and "mIoU on unseen rooms" in out
    page = (tmp_path / "report.html").read_text()
    for word in (
        "training loss",
        "validation AbsRel",
        "validation mIoU",
        "Confusion",
        "television",
        "abs_rel",
        "best",
        "median",
        "worst",
        "train",
        "export",
        "plain",
    ):
        assert word in page
    assert page.count("data:image") >= 24
    cards = re.findall('<div class="card"><span>(.*?)</span>', page)
    assert cards == ["AbsRel", "δ &lt; 1.25", "RMSE", "mIoU"]
    made = {path.name for path in (tmp_path / "maps").iterdir()}
    assert made >= {"rgb_00.png", "rgb_00.ply", "rgb_00.labels.png", "rgb_00.overlay.png", "legend.png"}


def pairs(folder: Path, rgb: str, depth: str, size: tuple[int, int], scale: int) -> None:
    """Two pairs that look like the real files: names, sizes, encodings."""
    rows, columns = np.mgrid[: size[0], : size[1]] / 300
    for number in range(2):
        z = 2 + number + rows
        image = np.stack([40 * z, 90 + 80 * np.sin(9 * columns / z), 30 * columns], -1).clip(0, 255).astype(np.uint8)
        for kind, name in (("rgb", rgb), ("depth", depth)):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            path = folder / kind / name.format(number)
            pixels = image if kind == "rgb" else (z * scale).astype(np.uint16)
            Image.fromarray(pixels).save(path)


@pytest.mark.slow
def test_the_pairs_example_goes_through_the_official_layouts(tmp_path: Path, monkeypatch) -> None:
    script = example("two_real_pairs")
    pairs(tmp_path / "in/nyu_v2", "rgb_{:05d}.jpg", "sync_depth_{:05d}.png", (480, 640), 1000)
    pairs(tmp_path / "in/kitti", "{:010d}.png", "{:010d}.png", (375, 1242), 256)
    monkeypatch.setattr(script, "EXTRA", ["steps=2", "validate_every=2", "schedule.warmup=0"])
    monkeypatch.setattr(script, "BOUND", 10.0)
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "in"), "--work", str(tmp_path / "out")])
    assert script.main() == 0


@pytest.mark.slow
@pytest.mark.skipif(SAMPLES is None, reason="DENSEVIT_SAMPLES names no folder of real pairs")
@pytest.mark.parametrize("name", ["nyu", "kitti"])
def test_real_pairs_are_learned_and_their_maps_score_alike(tmp_path: Path, monkeypatch, name: str) -> None:
    script = example("two_real_pairs")
    monkeypatch.setattr(sys, "argv", ["x", str(SAMPLES), "--work", str(tmp_path), "--only", name])
    assert script.main() == 0


@pytest.mark.parametrize("loss", ["silog", *(pytest.param(name, marks=pytest.mark.slow) for name in ("l1", "mse"))])
def test_the_simple_recipe_learns_a_photograph_in_under_60_lines(loss: str) -> None:
    simple = example("simple_depth")
    assert len((EXAMPLES / "simple_depth.py").read_text().splitlines()) < 60
    first, later = simple.main(loss, steps=1), simple.main(loss, steps=25)
    assert later < min(first, 0.4)
