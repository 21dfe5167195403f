"""An input beside images that the package does not know, as a plug-in: trained, resumed, evaluated and exported."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from small import noise, small_config

import densevit
from densevit.builder.checkpoint import restore
from densevit.config import parser
from densevit.data.datasets.base import DATASETS
from densevit.data.fields import FIELDS
from densevit.inference.image_input import ImageInput
from densevit.inference.onnx.export import export_onnx
from densevit.inference.onnx.metadata import OnnxExportOptions
from densevit.inference.predictor import Predictor
from densevit.inference.tiling import Tiling
from densevit.model_inputs import INPUT_KINDS
from densevit.models.conditioning.base import CONDITIONINGS

GRAVITY = dedent('''
    """Which way is down, as an input: a reader, a field, a kind of input and a conditioning."""

    from dataclasses import replace

    import numpy as np
    import torch
    from torch import nn

    from densevit.data.datasets.base import DATASETS
    from densevit.data.datasets.folder import Folder
    from densevit.data.fields import FIELDS, Whole
    from densevit.model_inputs import InputKind, register_input
    from densevit.models.conditioning.base import CONDITIONINGS, Conditioning


    @DATASETS.register("tilted")
    class Tilted(Folder):
        def read(self, index):
            angle = 0.3 * index
            return super().read(index).with_arrays({"gravity": np.array([np.sin(angle), np.cos(angle), 0.0])})


    class Direction(Whole):
        def warp(self, value, step, sample):
            return value * np.array([np.sign(step.matrix[0, 0]), 1, 1])


    class Gravity(InputKind):
        exported = "gravity"

        def mirrored(self, x, width):
            return x * x.new_tensor([-1.0, 1.0, 1.0])

        def example(self, count, size):
            return torch.tensor([[0.6, 0.8, 0.0]]).repeat(count, 1)

        def describe(self, count, h, w):
            return f"float32 {count} x 3, a unit vector downwards in camera axes"


    FIELDS["gravity"] = Direction(0.0, torch.float32, (3,))
    register_input(Gravity("gravity"))


    @CONDITIONINGS.register("gravity")
    class GravityConditioning(Conditioning):
        input = "gravity"

        def __init__(self, parts):
            super().__init__()
            self.embed = nn.ModuleList(nn.Linear(3, spec.channels) for spec in parts.features)

        def forward(self, features, inputs, first_pass):
            added = [embed(inputs["gravity"])[:, :, None, None] for embed in self.embed]
            return replace(features, maps=tuple(x + y.to(x.dtype) for x, y in zip(features.maps, added)))
    ''')


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = small_config(tmp_path_factory.mktemp("gravity"))
    (path.parent / "gravity.py").write_text(GRAVITY)
    yield path
    for table, name in (
        (DATASETS.components, "tilted"), (CONDITIONINGS.components, "gravity"), (FIELDS, "gravity"),
        (INPUT_KINDS, "gravity"),
    ):  # fmt: skip
        table.pop(name, None)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def run(config: Path) -> Path:
    data = {**parser.read(config)[0].data.train, "type": "tilted"}
    output = config.parent / "run"
    changes = {"data.train": data, "data.val": data, "model.conditioning": {"gravity": {}}, "optim.lr": 1e-2}
    densevit.train(
        config, output=str(output), plugins=[str(config.parent / "gravity.py")], steps=4, validate_every=2,
        save_every=2, keep_last=0, **changes,
    )  # fmt: skip
    return output


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return densevit.load(run / "checkpoints/step-00000004", device="cpu", precision="fp32")


def tilted(image: np.ndarray, x: float = 0.6) -> ImageInput:
    return ImageInput(image, inputs={"gravity": torch.tensor([[x, 0.8, 0.0]])})


def test_a_run_resumes_bit_for_bit_and_its_weights_learn(run: Path) -> None:
    folder, again_at = run / "checkpoints", run.with_name("again")
    densevit.train(run / "config.yaml", resume=folder / "step-00000002", output=str(again_at))
    (first, _), (whole, _) = restore(folder / "step-00000002"), restore(folder / "step-00000004")
    again, _ = restore(again_at / "checkpoints/step-00000004")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    name = "conditioning.gravity.embed.0.weight"
    assert not torch.equal(first.state_dict()[name], whole.state_dict()[name])


def test_evaluation_gives_it_to_the_model_as_validation_did(run: Path, predictor: Predictor) -> None:
    data = {"type": "tilted", "root": str(run.parent / "data"), "depth_scale": 1000}
    last = densevit.Run(run).val_log[-1]
    assert densevit.evaluate(predictor, data).scores["abs_rel"] == pytest.approx(last["abs_rel"], rel=1e-4)


def test_prediction_follows_it_through_the_mirror_image_and_tiles(predictor: Predictor) -> None:
    image = noise()
    assert not np.allclose(predictor(tilted(image)), predictor(tilted(image, -0.6)), rtol=1e-4)
    flipping = predictor.with_options(flip=True)
    mirrored = flipping(tilted(np.ascontiguousarray(image[:, ::-1]), -0.6))[:, ::-1]
    np.testing.assert_allclose(flipping(tilted(image)), mirrored, rtol=1e-4)
    tiles = predictor.with_options(tiling=Tiling(48))
    large = noise((48, 96))
    assert not np.allclose(tiles(tilted(large)), tiles(large), rtol=1e-4)


@pytest.mark.slow
def test_an_exported_file_takes_it_and_stands_for_the_checkpoint(predictor: Predictor, tmp_path: Path) -> None:
    path, image = tmp_path / "model.onnx", noise()
    made = export_onnx(predictor.model, predictor.card, path, OnnxExportOptions(size=(48, 64)))
    assert made.metadata["input gravity"] == "float32 1 x 3, a unit vector downwards in camera axes"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = {"image": image[None], "gravity": np.array([[0.6, 0.8, 0.0]], np.float32)}
    (found,) = session.run(["depth"], given)
    np.testing.assert_allclose(found[0, 0], predictor(tilted(image)), rtol=1e-4)
    loaded = densevit.load(path, runtime="onnxruntime", precision="fp32")
    np.testing.assert_allclose(loaded(tilted(image, -0.6)), predictor(tilted(image, -0.6)), rtol=1e-4)
