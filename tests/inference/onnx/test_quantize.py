"""Int8 files: which layers are quantised, and that none is written where a budget is missed."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from toy_models import DEPTH_AND_LABELS, SMALL_DPT, toy_network

import densevit
from densevit.api import quantize as api
from densevit.api.quantize import calibration_images, drop, export_int8, head_for, layers_file, split
from densevit.data.datasets.base import Dataset
from densevit.data.datasets.pairs import as_dataset
from densevit.errors import ConfigError
from densevit.inference.backends.onnx_runtimes import RuntimeName
from densevit.inference.onnx import quantize
from densevit.inference.onnx.metadata import OnnxExportOptions
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel

SIZE = (32, 48)


def network() -> tuple[DenseModel, ModelCard]:
    return toy_network(DEPTH_AND_LABELS, SMALL_DPT, std=None, encoder={"dim": 32, "patch_size": 16, "image_size": 32})


def pairs(count: int = 6, size: tuple[int, int] = SIZE) -> list[tuple[np.ndarray, np.ndarray]]:
    draw = np.random.default_rng(0)
    depth = np.linspace(1, 9, size[0] * size[1], dtype=np.float32).reshape(size)
    return [(draw.integers(0, 256, (*size, 3), dtype=np.uint8), depth) for _ in range(count)]


def small_graph() -> onnx.ModelProto:
    """Preprocessing by a product, a convolution, a linear layer and a product of two activations."""
    nodes = [
        helper.make_node("MatMul", ["image", "resize"], ["resized"], "preprocessing"),
        helper.make_node("Conv", ["resized", "kernel"], ["patches"], "conv"),
        helper.make_node("MatMul", ["patches", "weight"], ["tokens"], "linear"),
        helper.make_node("MatMul", ["tokens", "patches"], ["values"], "attention"),
        helper.make_node("Exp", ["values"], ["out"], "head"),
    ]
    weights = [
        helper.make_tensor("resize", TensorProto.FLOAT, [4, 4], [0.0] * 16),
        helper.make_tensor("kernel", TensorProto.FLOAT, [1, 1, 1, 1], [1.0]),
        helper.make_tensor("weight", TensorProto.FLOAT, [4, 4], [0.0] * 16),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 4, 4])
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, 1, 4, 4])
    return helper.make_model(helper.make_graph(nodes, "g", [image], [out], weights))


def test_layers_are_told_apart_and_preprocessing_is_left_alone() -> None:
    model = small_graph()
    kinds = {node.name: quantize.kind_of(model, node) for node in model.graph.node}
    assert kinds["conv"] == quantize.CONVOLUTIONS and kinds["attention"] == quantize.PRODUCTS
    assert kinds["linear"] is None
    assert quantize.nodes_outside(model) == ["preprocessing", "head"]


def test_biases_of_linear_layers_get_a_shape_of_their_own() -> None:
    nodes = [
        helper.make_node("MatMul", ["image", "weight"], ["product"], "linear"),
        helper.make_node("Add", ["product", "bias"], ["biased"], "bias"),
        helper.make_node("Add", ["bias", "biased"], ["out"], "no bias of a product"),
    ]
    constants = {"weight": np.arange(16, dtype=np.float32).reshape(4, 4), "bias": np.float32([1, 2, 3, 4])}
    image, out = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 4]) for name in ("image", "out"))
    stored = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    model = helper.make_model(helper.make_graph(nodes, "g", [image], [out], stored))
    given = {"image": np.float32([[[1, 0, 2, 0], [0, 1, 0, 3]]])}
    (expected,) = ReferenceEvaluator(model).run(None, given)
    quantize.separate_biases(model)
    assert [list(node.input) for node in model.graph.node[1:]] == [["product", "bias/bias"], ["bias", "biased"]]
    assert {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}["bias/bias"] == [1, 1, 4]
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_array_equal(ReferenceEvaluator(model).run(None, given)[0], expected)


def test_metrics_find_their_head_and_a_drop_is_a_loss_in_either_direction() -> None:
    assert drop("d1", {"d1": 0.9}, {"d1": 0.88}) == pytest.approx(0.02)
    assert drop("abs_rel", {"abs_rel": 0.10}, {"abs_rel": 0.12}) == pytest.approx(0.02)
    assert drop("miou", {"miou": 0.5}, {"miou": 0.6}) < 0
    assert drop("d1", {"d1": 0.9}, {"d1": float("nan")}) == float("inf")
    card = network()[1]
    assert head_for("d1", card) == "depth" and head_for("miou", card) == "labels"
    with pytest.raises(ConfigError, match="no head here is scored by 'miou'. There are: depth"):
        head_for("miou", ModelCard(outputs={"depth": card.outputs["depth"]}, multiple=16))


def test_images_of_another_size_are_refused_with_the_size_that_fits() -> None:
    data = as_dataset(pairs())
    with pytest.raises(ConfigError, match=r"an image of 32x48, and the file is for 480x640.*--image-size 32,48"):
        calibration_images(data, OnnxExportOptions(size=(480, 640)))
    assert calibration_images(data, OnnxExportOptions(size=SIZE, floats=True))[0].shape == (1, 3, *SIZE)


@pytest.mark.slow
def test_nothing_is_written_where_the_budget_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(path: Path, output: Path, recipe: str, *_: object) -> list[str]:
        model = onnx.load(path)
        for tensor in model.graph.initializer:
            if tensor.data_type == TensorProto.FLOAT:
                tensor.raw_data = bytes(len(tensor.raw_data))
        onnx.save(model, output)
        return []

    monkeypatch.setattr(api.quantize, "quantize", zeros)
    wanted = OnnxExportOptions(size=SIZE, heads=("depth",))
    with pytest.raises(ConfigError, match=r"--max-drop abs_rel=0: no int8 file keeps within it") as error:
        export_int8(*network(), tmp_path / "a.onnx", wanted, as_dataset(pairs()), "pairs", {"abs_rel": 0.0})
    assert all(recipe in str(error.value) for recipe in ("fp32", *quantize.RECIPES))
    assert not list(tmp_path.iterdir())


def copied(path: Path, output: Path, *_: object) -> list[str]:
    output.write_bytes(path.read_bytes())
    return []


@pytest.mark.slow
def test_images_that_judge_neither_calibrate_nor_choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scored: list[tuple[str, ...]] = []

    def evaluated(predict: object, data: Dataset, **_: object) -> Any:
        scored.append(tuple(data.names))
        return SimpleNamespace(scores={"d1": 0.5})

    monkeypatch.setattr(api.quantize, "quantize", copied)
    monkeypatch.setattr(api, "evaluate", evaluated)
    data, wanted = as_dataset(pairs(9)), OnnxExportOptions(size=SIZE, heads=("depth",))
    found = export_int8(*network(), tmp_path / "a.onnx", wanted, data, "pairs", {"d1": 0.01})
    used = {what: tuple(part.names) for what, part in split(data).items()}
    assert scored == [used["chose the recipe"]] * 2 + [used["judged it"]] * 2
    assert sorted(name for names in used.values() for name in names) == sorted(data.names)
    counts = {"calibrated": 3, "chose the recipe": 3, "judged it": 3}
    assert json.loads(layers_file(tmp_path / "a.onnx").read_text())["images"] == counts
    assert "images: 3 calibrated, 3 chose the recipe, 3 judged it" in str(found)


@pytest.mark.slow
def test_the_budget_is_that_of_the_window_which_the_model_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.quantize, "quantize", copied)
    (model, card), data, box = network(), as_dataset(pairs(3)), (8, 32, 0, 40)
    wanted = OnnxExportOptions(size=SIZE, heads=("depth",), box=box)
    found = export_int8(model, card, tmp_path / "a.onnx", wanted, data, "pairs", {"abs_rel": 0.1})
    predictor = densevit.Predictor(model, card, device="cpu", precision="fp32", window=lambda *_: box)
    expected = densevit.evaluate(predictor, split(data)["judged it"]).scores["abs_rel"]
    assert found.before["abs_rel"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_a_network_in_int8_with_its_list_of_layers(tmp_path: Path) -> None:
    pytest.importorskip("nncf")
    wanted, path = OnnxExportOptions(size=None, any_size=True), tmp_path / "a.onnx"
    data = as_dataset([*pairs(4), *pairs(2, (64, 33))])
    found = export_int8(*network(), path, wanted, data, "pairs", {"d1": 0.05})
    assert abs(found.before["d1"] - found.after["d1"]) <= 0.05
    graph = onnx.load(path)
    assert sum(node.op_type == "QuantizeLinear" for node in graph.graph.node) >= 8
    about = {entry.key: entry.value for entry in graph.metadata_props}
    assert about["precision"] == f"int8: {found.recipe}" and "card" in about and graph.producer_name == "densevit"
    told = json.loads(layers_file(path).read_text())
    assert told["recipe"] == found.recipe and told["layers in floating point"] == list(found.float_layers)
    assert sorted(tmp_path.iterdir()) == [path, layers_file(path)]
    check_runtimes(path, split(data)["judged it"], found.after["d1"])


def check_runtimes(path: Path, data: Dataset, d1: float) -> None:
    """ONNX Runtime multiplies every linear layer in int8, and the file stands for the checkpoint in both runtimes."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(path.with_suffix(".optimised")), 4
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ran = [node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node]
    assert ran.count("MatMulIntegerToFloat") >= 4 * 2 and "Gemm" not in ran
    again: dict[str, float] = {}
    for runtime in get_args(RuntimeName)[1:3]:
        predictor = densevit.load(path, runtime=runtime, precision="int8")
        again[runtime] = densevit.evaluate(predictor, data).scores["d1"]
    assert again["onnxruntime"] == pytest.approx(d1) and again["openvino"] == pytest.approx(d1, abs=0.05)
