"""`densevit inspect` and `densevit convert`: what they print, for our files and for third-party ones."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from shell import Shell
from toy_models import save_network, toy_network

WEIGHTS = Path(__file__).parents[1] / "weights"
OLD = WEIGHTS / "old" / "schema_1.safetensors"


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(WEIGHTS))
    import seeded

    torch.save(seeded.read("depth_anything_v2").state(), tmp_path / "v2.pth")
    sys.modules.pop("seeded")
    return tmp_path / "v2.pth"


OURS = [
    "densevit, 0.02 M parameters", "metric in m, 0.001 to 10", "fixed 32x48", "readout ignore",
    "scores:           abs_rel 0.1", "config:           not recorded",
]  # fmt: skip
ROOMS = [
    "densevit, 3.60 M parameters", "metric in m, 0.05 to 40 for a focal length of 200 pixels",
    "fov:              47.49 to", "Apache-2.0",
]  # fmt: skip
THIRD_PARTY = [
    "239 tensors", "depth-anything-v1: Depth Anything V1", "give --family NAME", "pretrained.pos_embed [1, 1370, 64]",
]  # fmt: skip


def test_files_of_ours_of_others_and_of_nobody_are_described(third_party: Path, tmp_path: Path, shell: Shell) -> None:
    torch.save({"a.weight": torch.zeros(2, 3)}, tmp_path / "a.pth")
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8")
    (tmp_path / "a.pt2").touch()
    for path, code, told in (
        (OLD, 0, OURS),
        (third_party, 0, THIRD_PARTY),
        ("densevit:rooms", 0, ROOMS),
        ("hf:someone/gone", 2, ["hf:someone/gone: not in the cache of this machine"]),
        (tmp_path / "a.pth", 0, ["of no family known here", "a.weight [2, 3]"]),
        (tmp_path / "gone", 2, ["no checkpoint at"]),
        (tmp_path / "photo.jpg", 2, ["weights are read from"]),
        (tmp_path / "a.pt2", 2, ["It is an export (densevit.load_pt2 runs it): give the checkpoint"]),
    ):
        said = shell("inspect", path, code=code)
        assert [text for text in told if text not in (said.err if code else said.out)] == []
    found = json.loads(shell("inspect", OLD, "--json").out)
    assert (found["made_by"], found["card"]["licence"], found["card"]["out_indices"]) == ("densevit", "unknown", [0, 1])
    assert found["bytes"] == OLD.stat().st_size


def test_scores_that_are_nan_are_null_in_json(tmp_path: Path, shell: Shell) -> None:
    network, card = toy_network()
    save_network(tmp_path / "model", (network, replace(card, scores={"abs_rel": 0.1, "d1": math.nan})))
    found = json.loads(shell("inspect", tmp_path / "model", "--json").out, parse_constant=pytest.fail)
    assert found["card"]["scores"] == {"abs_rel": 0.1, "d1": None}


def test_convert_takes_the_family_and_its_options_from_the_command_line(
    third_party: Path, tmp_path: Path, shell: Shell
) -> None:
    family = ["--family", "depth-anything-v2-metric", "--family-options", "max_depth=12.5"]
    out = tmp_path / "ours.safetensors"
    assert f"written: {out}" in shell("convert", third_party, out, "--to", "densevit", *family).out
    said = shell("inspect", out).out
    assert "metric in m, 0 to 12.5" in said
