"""docs/first_model.md: its commands run one after the other, on a small folder and in few steps."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from small_scenes import small_scenes
from toy_room_model import write_toy

from densevit.cli.main import main
from densevit.weights import hub

PAGE = (Path(__file__).parents[1] / "docs/first_model.md").read_text()
SHORT = ["steps=4", "schedule.warmup=0", "validate_every=2", "batch_size=2", "data.workers=0", "device=cpu"]


@pytest.mark.slow
def test_the_page_leads_from_a_folder_to_a_picture(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "PACKAGED_FOLDER", write_toy(here / "toy"))
    small_scenes(Path("room"), 24)
    shutil.copy("room/images/000.jpg", "photo.jpg")
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line)[1:]
            assert main([*words, *SHORT] if words[0] == "train" else words) == 0, line
    made = {path.name for folder in ("predictions", "pictures") for path in Path(folder).iterdir()}
    assert made >= {"photo.color.png", "photo.overlay.png", "photo.normals.png", "photo.png", "photo.viewer.html"}
    assert Path("runs/room/report.html").exists() and Path("scores/report.html").exists()
