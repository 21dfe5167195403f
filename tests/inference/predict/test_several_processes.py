"""Processes that share a list: each image falls to one of them, and together they say what one would have said."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tar_files import pack

from densevit import api
from densevit.cli.main import main
from densevit.inference.predict.pipeline import share_of
from densevit.utils.process_group import ProcessGroup

SCRIPT = """
import sys
from torch import nn
from densevit import api
from densevit.inference.predictor import Predictor
from densevit.model_card import ModelCard, HeadSpec
class Mean(nn.Module):
    def forward(self, image): return {"depth": 1 + image.mean(1, keepdim=True)}
def load(path, family=None, family_options=None, **options):
    return Predictor(Mean(), ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1), **options)
api.load = load
from densevit.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_every_group_goes_to_one_process_and_is_the_same_for_any_number(size: int) -> None:
    items = list(range(23))
    shares = [share_of(items, 4, ProcessGroup(rank=rank, size=size)) for rank in range(size)]
    groups = sorted(group for share in shares for group in share)
    assert groups == share_of(items, 4, ProcessGroup())
    assert [item for group in groups for item in group] == items
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for i in range(7):
        Image.fromarray(np.full((6, 8, 3), 20 * i, np.uint8)).save(tmp_path / f"in/{i}.png")
    (tmp_path / "in/bad.png").write_bytes(b"nothing")
    return tmp_path / "in"


def command(script: Path, photos: Path, out: Path, *more: str) -> list[str]:
    return [str(script), "predict", "checkpoint", str(photos), "--output", str(out), "--device", "cpu", *more]


@pytest.mark.slow
def test_two_processes_write_the_bytes_of_one_and_one_summary(photos: Path, tmp_path: Path) -> None:
    script = tmp_path / "export.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    two = subprocess.run(
        [*launch, *command(script, photos, tmp_path / "two")], capture_output=True, text=True, env=environment
    )
    one = subprocess.run(
        [sys.executable, *command(script, photos, tmp_path / "one")], capture_output=True, text=True, env=environment
    )
    assert one.returncode == 3, one.stderr
    assert "7 images in" in one.stdout
    assert two.stdout.count("7 images in") == 1, two.stderr
    assert "8 images on 2 x cpu" in two.stderr
    assert "1 of 8 images failed" in two.stderr  # rank 0's error, raised by all
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert (
        names
        == {path.name for path in (tmp_path / "two").iterdir()}
        == {*(f"{i}.png" for i in range(7)), "export.json", "outputs.jsonl", "failed.json"}
    )
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_images_of_a_tar_are_exported_under_its_name(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {f"{i}.png": (photos / f"{i}.png").read_bytes() for i in range(2)}
    shard = pack(tmp_path / "shard-0.tar", {**files, "0.depth.png": files["0.png"], "0.json": b"{}"})
    monkeypatch.setattr(api, "load", api.load)  # restored at the end of the test
    exec(SCRIPT.partition("from densevit.cli")[0], {})
    assert main(["predict", "checkpoint", str(shard), str(photos / "0.png"), "--output", str(tmp_path / "out")]) == 0
    made = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.png")}
    assert made == {"shard-0/0.png", "shard-0/1.png", "in/0.png"}
    assert torch.equal(
        *(torch.tensor(np.asarray(Image.open(tmp_path / "out" / name))) for name in ("shard-0/0.png", "in/0.png"))
    )
