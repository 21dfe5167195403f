"""`densevit inspect` and `densevit convert`: what they print, for our files and for third-party ones."""

import json
import sys
from pathlib import Path

import pytest
import torch

from densevit.cli.main import main

WEIGHTS = Path(__file__).parents[1] / "weights"
OLD = WEIGHTS / "old" / "schema_1.safetensors"


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(WEIGHTS))
    import seeded

    torch.save(seeded.read("depth_anything_v2").state(), tmp_path / "v2.pth")
    sys.modules.pop("seeded")
    return tmp_path / "v2.pth"


def test_ours_says_what_it_predicts_and_what_is_not_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(OLD)]) == 0
    said = capsys.readouterr().out
    assert "densevit, 0.02 M parameters" in said
    assert "metric in m, 0.001 to 10" in said
    assert "fixed 32x48" in said
    assert "readout ignore" in said
    assert "scores:           abs_rel 0.1" in said
    assert "config:           not recorded" in said


def test_json_has_the_whole_card(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(OLD), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["made_by"], found["card"]["licence"], found["card"]["out_indices"]) == ("densevit", "unknown", [0, 1])
    assert found["bytes"] == OLD.stat().st_size


def test_a_third_party_file_shows_the_matching_families(third_party: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(third_party)]) == 0
    said = capsys.readouterr().out
    assert "239 tensors" in said
    assert "depth-anything-v1: Depth Anything V1" in said
    assert "give --family NAME" in said
    assert "pretrained.pos_embed [1, 1370, 64]" in said


def test_a_file_of_nobody_is_described_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"a.weight": torch.zeros(2, 3)}, tmp_path / "a.pth")
    assert main(["inspect", str(tmp_path / "a.pth")]) == 0
    said = capsys.readouterr().out
    assert "of no family known here" in said
    assert "a.weight [2, 3]" in said


def test_faults_are_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path / "gone")]) == 2
    assert "no such checkpoint" in capsys.readouterr().err
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8")
    assert main(["inspect", str(tmp_path / "photo.jpg")]) == 2
    assert "weights are read from" in capsys.readouterr().err


def test_convert_takes_the_family_and_its_options_from_the_command_line(
    third_party: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family = ["--family", "depth-anything-v2-metric", "--family-options", "max_depth=12.5"]
    out = tmp_path / "ours.safetensors"
    assert main(["convert", str(third_party), str(out), "--to", "densevit", *family]) == 0
    assert main(["inspect", str(out)]) == 0
    said = capsys.readouterr().out
    assert f"written: {out}" in said
    assert "metric in m, 0 to 12.5" in said
