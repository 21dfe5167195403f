"""An objective that no line of the package knows: a pose network, trained beside the model on pairs of frames."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from small import small_config

import densevit
from densevit.cli.main import main
from densevit.engine.logger import read_csv
from densevit.objectives import OBJECTIVES
from densevit.weights import checkpoint

PLUGIN = '''
import torch
from torch import nn

from densevit.engine.objective import TrainingObjective
from densevit.objectives import OBJECTIVES


@OBJECTIVES.register("frames")
class Frames(TrainingObjective):
    """The second frame's depth is the first one's, times a factor that a pose network sees in both."""

    def __init__(self, setup, *, weight: float = 1.0):
        super().__init__(setup)
        self.weight, self.seen = weight, 0
        self.pose = nn.Sequential(nn.Conv2d(6, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 1, 1))

    @classmethod
    def incompatible(cls, run):
        yield from super().incompatible(run)
        if run.data.clip != 2:
            yield "data.clip: objective 'frames' learns from pairs; set it to 2."

    def on_train_step(self, progress):
        self.progress = progress

    def losses(self, batch, step):
        first, second = self.predict(batch)["depth"].float().unflatten(0, (-1, 2)).unbind(1)
        pairs = batch.image.unflatten(0, (-1, 2)).flatten(1, 2)
        factor = self.pose(pairs).mean((1, 2, 3), keepdim=True).exp()
        self.factor = factor.detach().mean()
        return {"frames": self.weight * (first * factor - second).abs().mean() + (factor.log() - 0.1).square().mean()}

    def before_validation(self):
        return {"pose_norm": float(sum(p.detach().norm() for p in self.pose.parameters()))}

    def log_values(self, all_reduce_mean):
        return {"factor": all_reduce_mean({"factor": float(self.factor)})["factor"]}
'''


@pytest.fixture(scope="module")
def folder(folder: Path) -> Iterator[Path]:
    small_config(folder)
    (folder / "frames.py").write_text(PLUGIN)
    known = dict(OBJECTIVES.components)
    assert train(folder, "whole", "steps=4") == 0
    yield folder
    OBJECTIVES.components.clear()
    OBJECTIVES.components.update(known)
    del sys.modules["densevit_plugin_frames"]


def train(folder: Path, name: str, *words: str) -> int:
    plugin = [f"plugins=[{folder / 'frames.py'}]", "objective={type: frames, weight: 0.5}", "data.clip=2", "ema=0.9"]
    often = ["validate_every=2", "save_every=2", "keep_last=0"]
    return main(["train", str(folder / "small.yaml"), f"output={folder / name}", *plugin, *often, *words])


def test_its_parts_are_trained_and_saved_beside_the_model_and_are_not_part_of_it(folder: Path) -> None:
    states = [checkpoint.read_state(folder / f"whole/checkpoints/step-0000000{step}") for step in (2, 4)]
    weights, card = checkpoint.read(folder / "whole/checkpoints/last")
    first, last = (state["objective"] for state in states)
    assert first.keys() == last.keys() and all(name.startswith("pose.") for name in last)
    assert not [name for name in last if torch.equal(first[name], last[name])]
    assert not [name for name in weights if "pose" in name]
    assert card.config["objective"] == {"type": "frames", "weight": 0.5}


def test_its_losses_columns_and_scores_are_logged(folder: Path) -> None:
    train_log, val_log = read_csv(folder / "whole/train.csv"), read_csv(folder / "whole/val.csv")
    assert all(row["loss"] == row["frames"] > 0 and row["factor"] > 0 for row in train_log)
    assert all(row["pose_norm"] > 0 and row["abs_rel"] > 0 for row in val_log)


def test_stopped_and_resumed_the_run_is_bit_equal(folder: Path) -> None:
    assert train(folder, "parts", "steps=2") == 0
    assert train(folder, "parts", "steps=4", "--resume") == 0
    ends = [folder / name / "checkpoints/step-00000004" for name in ("whole", "parts")]
    (whole, _), (parts, _) = map(checkpoint.read, ends)
    assert all(torch.equal(value, parts[name]) for name, value in whole.items())
    whole, parts = (checkpoint.read_state(end)["objective"] for end in ends)
    assert all(torch.equal(value, parts[name]) for name, value in whole.items())


@pytest.mark.slow
def test_the_model_is_evaluated_and_exported_without_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = densevit.evaluate(folder / "whole", device="cpu", precision="fp32")
    best = min(row["abs_rel"] for row in read_csv(folder / "whole/val.csv"))
    assert evaluation.scores["abs_rel"] == pytest.approx(best, rel=1e-5)
    densevit.export(folder / "whole", folder / "model.onnx", image_size=(48, 64))
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_inputs()] == ["image"]
    image = np.random.default_rng(0).integers(0, 255, (48, 64, 3), dtype=np.uint8)
    (depth,) = session.run(["depth"], {"image": image[None]})
    predictor = densevit.load(folder / "whole", device="cpu", precision="fp32")
    np.testing.assert_allclose(depth[0, 0], predictor(image), rtol=1e-4)


def test_what_it_does_not_go_with_is_refused_with_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for word, told in (
        ("data.clip=1", "data.clip: objective 'frames' learns from pairs; set it to 2."),
        ("objective.wieght=1", "objective.wieght: no such option. Did you mean 'weight'?"),
    ):
        assert train(folder, "none", word) == 2 and told in capsys.readouterr().err
