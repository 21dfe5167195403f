"""Image classification: a run that learns three colours, evaluated from the shell and from Python."""

import json
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from shell import Shell

from densevit.api import training
from densevit.cli.main import main
from densevit.engine.logger import read_csv

pytestmark = pytest.mark.usefixtures("report_images")

# Squares of red, green or blue, in files of a plugin's data set: three classes that a small ViT tells apart at once.
PLUGIN = """
import numpy as np
from densevit.data.datasets.base import DATASETS, Dataset
from densevit.structures import Sample

@DATASETS.register("colours_for_test")
class Colours(Dataset):
    classes = ("red", "green", "blue")

    def __init__(self, *, split: str = "train"):
        self.names = [f"{split}_{i}" for i in range(24)]

    def read(self, index: int) -> Sample:
        draw = np.random.default_rng(index)
        image = draw.integers(0, 60, (16, 16, 3)).astype(np.uint8)
        image[4:12, 4:12, index % 3] += 160
        label = None if "unknown" in self.names[0] and index % 2 else index % 3
        return Sample(name=self.names[index], image=image, label=label)
"""
CONFIG = """
plugins: [colours.py]
model:
  encoder: {type: vit, dim: 32, depth: 2, heads: 2, patch_size: 4, image_size: 16, out_indices: 1, init: jax}
  decoder: {type: pool}
  heads: {colour: {type: classifier, classes: [red, green, blue]}}
tasks: {colour: {type: classification}}
data:
  train: {type: colours_for_test}
  val: {type: colours_for_test, split: val}
  transforms: [{type: hflip}]
  workers: 0
optim: {lr: 3e-3}
steps: 40
batch_size: 8
precision: fp32
device: cpu
output: OUTPUT
"""


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    (folder / "colours.py").write_text(PLUGIN)
    (folder / "run.yaml").write_text(CONFIG.replace("OUTPUT", str(folder / "run")))
    assert main(["train", str(folder / "run.yaml")]) == 0
    return folder


def evaluate(run: Path, *words: str) -> int:
    return main(["eval", "--task", "classification", str(run / "run"), *words, "--device", "cpu"])


def of_colours(run: Path, split: str) -> list[str]:
    return ["--data", "colours_for_test", "--plugins", str(run / "colours.py"), "--split", split]


def test_a_run_learns_and_evaluation_repeats_its_best_score(run: Path) -> None:
    curve = [row["accuracy"] for row in read_csv(run / "run/val.csv")]
    assert curve[-1] > 0.9
    assert evaluate(run, *of_colours(run, "val"), "--output", str(run / "eval")) == 0
    tree = json.loads((run / "eval/metrics.json").read_text())
    assert tree["metrics"]["accuracy"] == pytest.approx(max(curve))
    assert list(tree["per_class"]) == ["red", "green", "blue"]
    assert len((run / "eval/per_image.csv").read_text().splitlines()) == 25


def test_the_report_of_a_training_shows_the_worst_images_with_their_classes(run: Path) -> None:
    page = (run / "run/report.html").read_text()
    assert len(re.findall(r"(red|green|blue), predicted (red|green|blue) \(\d+%\)", page)) == 5
    assert page.count('<img src="data:image') == 5 and "densevit eval" in page


def test_the_report_is_written_after_each_validation(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored, write = [], training.write_training_report

    def written(*given: Any) -> Path | None:
        scored.append(len(read_csv(run / "twice/val.csv")))
        return write(*given)

    monkeypatch.setattr(training, "write_training_report", written)
    assert main(["train", str(run / "run.yaml"), f"output={run / 'twice'}", "steps=4", "validate_every=2"]) == 0
    assert scored == [1, 2, 2] and (run / "twice/report.html").exists()


def test_images_without_a_class_are_counted_and_left_out(run: Path) -> None:
    assert evaluate(run, *of_colours(run, "unknown"), "--output", str(run / "some")) == 0
    assert json.loads((run / "some/metrics.json").read_text())["counts"]["skipped"] == 12


def test_tiles_are_refused(run: Path, shell: Shell) -> None:
    command = ["eval", run / "run", *of_colours(run, "val"), "--device", "cpu"]
    assert "tiles: for depth only, not for colour (class)" in shell.refused(*command, "--tile-size", 64)


def test_python_gives_one_row_of_logits(run: Path) -> None:
    from densevit import load

    image = np.zeros((16, 16, 3), np.uint8)
    image[4:12, 4:12, 1] = 200
    answer = load(run / "run", device="cpu", precision="fp32")(image)
    assert answer.shape == (3,) and int(answer.argmax()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.heads.colour.classes=4"], "4 classes, but the data has 3"),
        (["model.heads.colour={type: metric}"], "task 'classification' trains heads that give class"),
        (["tasks.colour.type=depth"], "task 'depth' trains heads that give metric, affine, disparity"),
        (["tasks.colour.losses=[{type: silog}]"], "no classification loss 'silog'"),
        (["model.encoder.class_token=false"], "use 'average'"),
        (["data.train={type: middlebury_motorcycle}"], "but the data has none"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_training(
    run: Path, shell: Shell, words: list[str], message: str
) -> None:
    assert message in shell.refused("train", run / "run.yaml", f"output={run / 'other'}", *words)
    assert not list(run.glob("other/*.csv"))


def test_commands_for_maps_refuse_a_classifier(run: Path, tmp_path: Path, shell: Shell) -> None:
    for task, told in (("depth", "densevit eval"), ("classification", "the data has none")):
        words = ["--data", "middlebury_motorcycle", "--device", "cpu"]
        assert told in shell.refused("eval", "--task", task, run / "run", *words)
    cv2.imwrite(str(tmp_path / "a.png"), np.zeros((16, 16, 3), np.uint8))
    words = [tmp_path / "a.png", "--output", tmp_path / "out", "--device", "cpu"]
    assert "no map to write" in shell.refused("predict", run / "run", *words)
