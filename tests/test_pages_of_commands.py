"""docs/segmentation.md and docs/first_model.md: their commands run one after the other, small and in few steps."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml
from PIL import Image
from small_scenes import small_scenes
from toy_room_model import write_toy

from densevit.cli.main import main
from densevit.data.io.readers import read_depth
from densevit.weights import hub

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/segmentation.md").read_text()
COUNT = 24  # images: a tenth of them, drawn by their names, is for validation
# What makes the page's trainings small; the recipes are otherwise as they stand.
SMALL = [
    "model.encoder={type: vit, dim: 32, depth: 2, heads: 2, patch_size: 8, image_size: 64, out_indices: 2}",
    "model.decoder={type: conv_transpose, stride: 4, min_channels: 8}",
    "data.transforms=[{type: random_crop, size: [48, 64]}]",
    *("epochs=null", "steps=12", "batch_size=4", "precision=fp32", "data.workers=0", "device=cpu"),
]


def commands(page: str) -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [shlex.split(line)[1:] for block in blocks for line in block.splitlines()]


def small(words: list[str]) -> list[str]:
    if words[0] == "train":
        rule = ["model.resize={window: [48, 48], stride: [32, 32]}"] if "segmentation" in words[1] else []
        return [words[0], str(ROOT / words[1]), *words[2:], *SMALL, *rule]
    return words


@pytest.mark.slow
def test_the_page_leads_from_a_folder_to_overlays(here: Path) -> None:
    # Images are checked for their depth, too, once a folder has some: it comes with the chapter that needs it.
    small_scenes(here / "mine", COUNT, without=[(i, "depths") for i in range(COUNT)])
    told = commands(PAGE)
    chapter = next(i for i, words in enumerate(told) if "configs/multitask/folder.yaml" in words)
    for words in told[:chapter]:
        assert main(small(words)) == 0, words
    small_scenes(here / "mine", COUNT)
    for words in told[chapter:]:
        assert main(small(words)) == 0, words
    with Image.open(here / "overlays/003.overlay.png") as overlay:
        assert overlay.size == (80, 60) and overlay.mode == "RGB"
    assert read_depth(here / "both/003.png").shape == (60, 80)
    made = {path.name for path in (here / "both").iterdir()}
    assert made >= {f"003{end}" for end in (".png", ".color.png", ".labels.png", ".overlay.png")}
    space: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "segmentation.md", "exec"), space)
    assert space["names"] == ("wall", "floor", "box")
    assert space["ids"].shape == (60, 80) and space["logits"].shape == (3, 60, 80)  # type: ignore[attr-defined]


def test_the_pages_config_is_one(tmp_path: Path) -> None:
    from densevit.builder import plan

    block = re.search(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    shown = yaml.safe_load(block[1])
    tree = yaml.safe_load((ROOT / "configs/segmentation/folder.yaml").read_text())
    tree["model"] |= shown["model"]
    tree["tasks"] = shown["tasks"]
    (tmp_path / "shown.yaml").write_text(yaml.safe_dump(tree))
    assert plan.load_plan(tmp_path / "shown.yaml").tasks["labels"].losses[1][0] == 0.5


def test_the_page_names_every_loss_score_and_format() -> None:
    from densevit.evaluation.segmentation.metrics import FORMULAE
    from densevit.inference.writers import LABEL_FORMATS
    from densevit.losses.segmentation import LABEL_LOSSES

    for name in (*LABEL_LOSSES.components, *FORMULAE, *LABEL_FORMATS.components):
        assert f"`{name}`" in PAGE, name


SHORT = ["steps=4", "schedule.warmup=0", "validate_every=2", "batch_size=2", "data.workers=0", "device=cpu"]


@pytest.mark.slow
def test_the_first_model_leads_from_a_folder_to_a_picture(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "PACKAGED_FOLDER", write_toy(here / "toy"))
    small_scenes(Path("room"), 24)
    shutil.copy("room/images/000.jpg", "photo.jpg")
    for words in commands((ROOT / "docs/first_model.md").read_text()):
        assert main([*words, *SHORT] if words[0] == "train" else words) == 0, words
    made = {path.name for folder in ("predictions", "pictures") for path in Path(folder).iterdir()}
    assert made >= {"photo.color.png", "photo.overlay.png", "photo.normals.png", "photo.png", "photo.viewer.html"}
    assert Path("runs/room/report.html").exists() and Path("scores/report.html").exists()
