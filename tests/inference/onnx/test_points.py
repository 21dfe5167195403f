"""Exported models whose files take measured points, and can stand for the checkpoint."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor
from toy_models import DEPTH, DEPTH_AND_LABELS, SMALL_DPT, fp32, toy_network

import densevit
from densevit.depth_corrections import Calibration
from densevit.errors import ConfigError
from densevit.inference.backends.onnx_runtimes import RUNTIMES
from densevit.inference.image_input import ImageInput
from densevit.inference.onnx import export
from densevit.inference.onnx.export import export_onnx
from densevit.inference.onnx.metadata import OnnxExportOptions
from densevit.inference.predictor import Predictor
from densevit.inference.pt2 import COMPILERS, export_pt2, load_pt2
from densevit.inference.web.export import export_web
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel
from densevit.preprocess_config import PreprocessConfig

SIZE = (50, 75)
# 5 x 6 patches of 14 pixels: neither the padded image nor the levels of the DPT are multiples of each other.
RULE = PreprocessConfig(mode="fixed", size=(60, 80), interpolation="bicubic", antialias=True)


def network(camera: str = "none") -> tuple[DenseModel, ModelCard]:
    more = {"camera": "canonical", "canonical_focal": 50.0} if camera == "canonical" else {}
    conditioning = {**({"rays": {}} if camera == "rays" else {}), "points": {"hidden": 8}}
    return toy_network(DEPTH, SMALL_DPT, RULE, conditioning=conditioning, **more)


def images(count: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (count, *SIZE, 3), dtype=np.uint8)


def measured(count: int) -> np.ndarray:
    """Metres at a tenth of the pixels; the last image has none."""
    rng = np.random.default_rng(4)
    points = np.where(rng.random((count, *SIZE)) < 0.1, rng.uniform(1, 5, (count, *SIZE)), 0).astype(np.float32)
    points[-1] = 0
    return points


@pytest.mark.slow
def test_classes_that_are_exported_alone_see_points_in_the_metres_of_the_network(
    uncorrected: None, tmp_path: Path
) -> None:
    """They saw those of the depth after its calibration, and were refused the camera that these metres follow from."""
    more: Any = {"conditioning": {"points": {"hidden": 8}}, "camera": "canonical", "canonical_focal": 50.0}
    model, card = toy_network(DEPTH_AND_LABELS, SMALL_DPT, RULE, **more)
    depth = replace(card.outputs["depth"], calibration=Calibration(form="scale", a=3.0))
    card = replace(card, outputs={**card.outputs, "depth": depth})
    export_onnx(model, card, tmp_path / "a.onnx", OnnxExportOptions(size=SIZE, heads=("labels",), camera=60.0))
    given = {"inputs": {"points": torch.from_numpy(measured(2)[:1, None])}}
    found = densevit.load(tmp_path / "a.onnx", precision="fp32").start(images(1), **given).read()
    expected = fp32((model, card), camera=60.0).start(images(1), **given).read()
    np.testing.assert_allclose(found["labels"], expected["labels"], atol=1e-4 * np.abs(expected["labels"]).max())


@pytest.mark.slow  # test_points_training.py exports such a file, too, and predicts by it
@pytest.mark.parametrize("camera", ["none", "canonical", "rays"])
def test_a_file_gives_torch_s_maps_with_points_and_without(uncorrected: None, camera: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    made = export_onnx(*network(camera), path, OnnxExportOptions(size=SIZE, batch=None))
    assert made.metadata["input points"] == "float32 batch x 50 x 75, measured metres, 0 where none"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = {"image": images(3), "points": measured(3)}
    focals = {} if camera == "none" else {"focal": np.array([60, 70, 80], np.float32)}
    assert [x.name for x in session.get_inputs()] == ["image", *focals, "points"]
    (found,) = session.run(None, {**given, **focals})
    predictor = fp32(network(camera))
    for i, (image, points) in enumerate(zip(given["image"], given["points"], strict=True)):
        one = ImageInput(image, None if camera == "none" else float(focals["focal"][i]))
        expected = predictor(one, points=points) if i < 2 else predictor(one)
        np.testing.assert_allclose(found[i, 0], expected, rtol=1e-4)
    assert i == 2 and np.abs(predictor(one, points=given["points"][0]) / expected - 1).max() > 1e-2


@pytest.mark.slow
def test_a_file_stands_for_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    export_onnx(*network("canonical"), path, OnnxExportOptions(size=SIZE, camera=60.0))
    predictor = fp32(network("canonical"), camera=60.0)
    (image,), points = images(1), measured(2)[0]
    expected = predictor(image, points=points)
    for runtime in RUNTIMES:
        loaded = densevit.load(path, runtime=runtime, precision="fp32")
        np.testing.assert_allclose(loaded(image), predictor(image), rtol=1e-4)
        np.testing.assert_allclose(loaded(image, points=points), expected, rtol=1e-4)
        lowest = densevit.load(path, runtime=runtime)  # bf16, where runtime and processor have it
        np.testing.assert_allclose(lowest(image, points=points), expected, rtol=0.05)


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_package_takes_them_too(uncorrected: None, tmp_path: Path) -> None:
    export_pt2(*network(), tmp_path / "model.pt2", OnnxExportOptions(size=SIZE))
    predictor = fp32(network())
    found = load_pt2(tmp_path / "model.pt2")(images(1), points=measured(2)[:1])["depth"]
    np.testing.assert_allclose(found[0, 0], predictor(images(1)[0], points=measured(2)[0]), rtol=1e-4)


@pytest.mark.slow
def test_a_file_that_ignores_points_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predict = Predictor.predict_batch

    def without_points(self: Predictor, images: np.ndarray, *, inputs: Mapping[str, Tensor], **options: Any) -> Any:
        return predict(self, images, inputs={name: 0 * x for name, x in inputs.items()}, **options)

    monkeypatch.setattr(Predictor, "predict_batch", without_points)
    with pytest.raises(ConfigError, match="largest difference from PyTorch"):
        export_onnx(*network(), tmp_path / "model.onnx", OnnxExportOptions(size=SIZE))
    assert list(tmp_path.iterdir()) == []


def test_where_no_points_can_be_given_the_model_is_refused(tmp_path: Path) -> None:
    model, card = network()
    with pytest.raises(ConfigError, match="a web page: not for a model that takes points"):
        export_web(model, card, tmp_path / "page")
    with pytest.raises(ConfigError, match="--precision int8: not for a model"):
        export.refuse_inputs(card, "--precision int8")
    with pytest.raises(ConfigError, match="dynamic: not for this model: how far it spreads measured points"):
        export_onnx(model, card, tmp_path / "any.onnx", OnnxExportOptions(size=None, any_size=True))
    assert list(tmp_path.iterdir()) == []
