"""One ONNX file for images of any size: each is resized, padded and predicted as torch does it."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnxruntime
import pytest
import torch
from toy_models import DEPTH_AND_LABELS, SMALL_DPT, fp32, toy_network

from densevit.errors import ConfigError
from densevit.inference.onnx.dynamic_size import NetworkSizes
from densevit.inference.onnx.export import export_onnx
from densevit.inference.onnx.metadata import OnnxExportOptions
from densevit.inference.onnx.verify import test_images as pictures
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel
from densevit.ops.resize import network_size, network_steps
from densevit.preprocess_config import PreprocessConfig

CANONICAL = {"camera": "canonical", "canonical_focal": 50.0}
MODES = get_args(PreprocessConfig.__dataclass_fields__["mode"].type)
# One with the trained grid of 4 x 4, two with the same number of patches, one smaller and one larger, odd ones.
SIZES = [(56, 56), (40, 68), (68, 40), (29, 30), (90, 111), (57, 83), (14, 70), (70, 43)]


def network(rule: PreprocessConfig | None = None, camera: str = "none", **encoder: Any) -> tuple[DenseModel, ModelCard]:
    more: dict[str, Any] = {"rays": {"conditioning": {"rays": {}}}, "none": {}}.get(camera, CANONICAL)
    model, card = toy_network(DEPTH_AND_LABELS, {**SMALL_DPT, "hidden": [8] * 4}, rule, encoder=encoder, **more)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=1.0) if "pos_embed" in name else None
    return model, card


def check_sizes(path: Path, model: DenseModel, card: ModelCard) -> None:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    predictor = fp32((model, card))
    for size in SIZES:
        image, given = pictures(size, 2)[1:], {}
        if card.needs_camera:
            given = {"focal": np.array([0.7 * size[0]], np.float32)}
        depth, labels = session.run(["depth", "labels"], {"image": image, **given})
        expected = predictor.start(image, camera=0.7 * size[0]).read()
        assert depth.shape == (1, 1, *size)
        assert expected["depth"].std() > 1e-3
        np.testing.assert_allclose(depth, expected["depth"], rtol=1e-4, err_msg=str(size))
        np.testing.assert_allclose(labels, expected["labels"], atol=1e-4, err_msg=str(size))


@pytest.mark.slow  # test_load.py exports such a file, too, and asks it for two sizes
def test_one_file_takes_every_size(tmp_path: Path) -> None:
    model, card = network(pos_embed_interpolation="offset")
    wanted = OnnxExportOptions(size=None, any_size=True)
    written = export_onnx(model, card, tmp_path / "a.onnx", wanted)
    assert written.metadata["input image"] == "uint8 1 x height x width x 3, RGB, as decoded from a file"
    assert written.metadata["output depth"].startswith("float32 1 x 1 x height x width, metric depth")
    (image,) = onnxruntime.InferenceSession(str(tmp_path / "a.onnx")).get_inputs()
    assert image.name == "image" and image.shape == [1, "height", "width", 3]
    check_sizes(tmp_path / "a.onnx", model, card)


@pytest.mark.slow
@pytest.mark.parametrize(("camera", "mode"), [("canonical", "shortest"), ("rays", "longest")])
def test_the_focal_length_goes_with_every_size(tmp_path: Path, camera: str, mode: Any) -> None:
    rule = PreprocessConfig(mode=mode, size=(50, 50), flip=True)
    model, card = network(rule, camera, pos_embed_interpolation="offset")
    export_onnx(model, card, tmp_path / "a.onnx", OnnxExportOptions(size=None, any_size=True))
    check_sizes(tmp_path / "a.onnx", model, card)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "options", "encoder"),
    [
        ("lower_bound", {"output_align_corners": True}, {"pos_embed_interpolation": "offset"}),
        ("longest", {"interpolation": "adaptive", "round_to_uint8": True}, {"pos_embed_interpolation": "bicubic"}),
        ("shortest", {"interpolation": "bilinear", "antialias": True}, {"pos_embed_interpolation": "bilinear"}),
        ("minimal", {"interpolation": "bilinear", "round_to_uint8": True, "flip": True}, {}),
        ("fixed", {"antialias": True, "round_to_uint8": True}, {}),
        ("upper_bound", {"interpolation": "area"}, {"pos_embed_interpolation": "offset"}),
    ],
)
def test_every_way_to_resize(tmp_path: Path, mode: Any, options: dict[str, Any], encoder: dict[str, Any]) -> None:
    model, card = network(PreprocessConfig(mode=mode, size=(50, 50), **options), **encoder)
    export_onnx(model, card, tmp_path / "a.onnx", OnnxExportOptions(size=None, any_size=True, batch=None))
    check_sizes(tmp_path / "a.onnx", model, card)


@pytest.mark.slow
def test_the_surest_queries_of_every_size(tmp_path: Path) -> None:
    decoder = {"type": "eomt", "classes": 3, "queries": 6, "blocks": 1, "segments": True, "keep": 3}
    heads = {"parts": {"type": "panoptic", "classes": 3, "things": (0,)}}
    model, card = toy_network(heads, decoder, encoder={"out_indices": 1})
    export_onnx(model, card, tmp_path / "a.onnx", OnnxExportOptions(size=None, any_size=True))
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
    masks, classes = session.run(None, {"image": pictures((57, 83), 1)})
    expected = fp32((model, card)).start(pictures((57, 83), 1)).read()
    np.testing.assert_allclose(masks, expected["parts"], atol=1e-4)
    np.testing.assert_allclose(classes, expected["parts/classes"][..., 0, 0], atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_the_graph_rounds_sizes_as_the_predictor_does(mode: Any) -> None:
    config, draw = PreprocessConfig(mode=mode, size=(518, 518)), np.random.default_rng(0)
    graph = NetworkSizes(config, 14, rows=1)
    for h, w in [(1, 2000), (518, 518), (259, 1036), (343, 504), *draw.integers(1, 3000, (300, 2)).tolist()]:
        found = [tuple(size.tolist()) for size in graph(torch.zeros(1).expand(1, h, w, 3))]
        padded = tuple(-(-side // 14) for side in network_size((h, w), config, 14))
        assert found[-1] == padded, (h, w)
        if len(found) == 2:
            assert found[0] == network_steps((h, w), config, 14)[0], (h, w)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (PreprocessConfig(window=(28, 28)), "the number of its sliding windows depends on the size"),
        (PreprocessConfig(margin=3.0), "the width of the margin"),
        (
            PreprocessConfig(mode="fixed", size=(9, 9), interpolation="area", round_to_uint8=True),
            "another rule where a side grows",
        ),
    ],
)
def test_models_that_need_a_known_size_are_refused(tmp_path: Path, rule: PreprocessConfig, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"--image-size dynamic: not for this model: .*{reason}"):
        export_onnx(*network(rule), tmp_path / "a.onnx", OnnxExportOptions(size=None, any_size=True))
    assert not list(tmp_path.iterdir())
