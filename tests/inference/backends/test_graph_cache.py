"""Converted networks are kept on disk, and taken from there only where they are the same network."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor, make_tensor_value_info
from torch import Tensor, nn
from toy_models import fp32, toy_network

from densevit.errors import StorageError
from densevit.inference.backends import onnx_runtimes
from densevit.inference.backends.onnx_runtimes import GRAPH, KIND, RUNTIMES, ExternalRuntimeModule, cached_graph
from densevit.inference.onnx.graph import NamedOutputs
from densevit.utils.atomic_io import user_cache
from densevit.weights.fingerprint import model_fingerprint

SHAPE = (1, 3, 4, 4)
FLOAT = onnx.TensorProto.FLOAT


class Scaled(nn.Module):
    """Its factor is in no tensor."""

    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = factor
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        return {"depth": image * self.factor + self.bias}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DENSEVIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "onnx"


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths of graphs as they are made, by hand in place of the exporter."""
    made: list[Path] = []

    def save_graph(module: NamedOutputs, examples: object, path: Path) -> None:
        model: Any = module.model
        nodes = [make_node("Mul", ["image", "factor"], ["scaled"]), make_node("Add", ["scaled", "bias"], ["depth"])]
        image, depth = (make_tensor_value_info(name, FLOAT, SHAPE) for name in ("image", "depth"))
        stored = {"factor": model.factor, "bias": model.bias.item()}
        constants = [make_tensor(name, FLOAT, [1], [value]) for name, value in stored.items()]
        graph = make_graph(nodes, "scaled", [image], [depth], constants)
        onnx.save(make_model(graph, ir_version=10, opset_imports=[make_opsetid("", 18)]), path)
        made.append(path)

    monkeypatch.setattr(onnx_runtimes, "save_graph", save_graph)
    return made


def compute(model: nn.Module) -> float:
    module = ExternalRuntimeModule(model, ["depth"], RUNTIMES["onnxruntime"], "fp32")
    with torch.inference_mode():
        return float(module(torch.ones(SHAPE))["depth"].mean())


def test_a_network_is_converted_once_and_again_when_a_weight_or_an_option_changes(
    folder: Path, conversions: list[Path]
) -> None:
    assert compute(Scaled()) == compute(Scaled()) == 2.0
    assert len(conversions) == 1 and len(list(folder.iterdir())) == 1
    assert compute(Scaled(3.0)) == 3.0
    other = Scaled()
    other.bias.data += 1
    assert compute(other) == 3.0
    assert len(conversions) == 3


def test_a_damaged_file_is_replaced(folder: Path, conversions: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    compute(Scaled())
    (graph,) = folder.glob(f"*/{GRAPH}")
    graph.write_bytes(b"nothing")
    assert compute(Scaled()) == 2.0
    assert len(conversions) == 2 and "is damaged and made anew" in caplog.text


def test_it_can_be_switched_off_and_follows_xdg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conversions: list[Path]
) -> None:
    monkeypatch.setenv("DENSEVIT_CACHE", "off")
    assert user_cache(KIND) is None
    assert compute(Scaled()) == 2.0 and not conversions[0].exists()
    monkeypatch.delenv("DENSEVIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert user_cache(KIND) == tmp_path / "xdg/densevit/onnx"


def test_where_nothing_can_be_written_the_graph_is_temporary(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path) -> Path:
        raise StorageError("no room")

    monkeypatch.setattr(onnx_runtimes, "make_folder", full)
    with cached_graph("key", lambda path: path.touch()) as path:
        assert path.is_file()
    assert not path.exists() and "not cached: no room" in caplog.text


def test_the_least_recently_used_go_when_the_cache_is_too_large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_runtimes, "MAX_BYTES", 25)

    def save(path: Path) -> None:
        path.write_bytes(bytes(10))

    for age, key in ((30, "a"), (20, "b")):
        with cached_graph(key, save) as path:
            os.utime(path.parent, (1e9 - age, 1e9 - age))
    with cached_graph("a", save):  # used again, so `b` is the oldest
        pass
    with cached_graph("c", save):
        pass
    assert {path.name for path in folder.iterdir()} == {"a", "c"}


def test_the_fingerprint_is_equal_for_equal_models_and_knows_buffers_that_are_not_saved() -> None:
    assert model_fingerprint(Scaled()) == model_fingerprint(Scaled())
    one, other = Scaled(), Scaled()
    one.register_buffer("offset", torch.zeros(1), persistent=False)
    other.register_buffer("offset", torch.ones(1), persistent=False)
    assert model_fingerprint(one) != model_fingerprint(other)


def test_a_network_that_torch_has_predicted_with_is_converted_as_before() -> None:
    """oneDNN's packed weights, which no program can read, are made at the first prediction."""
    predictor = fp32(toy_network())
    before = model_fingerprint(predictor.model)
    predictor(np.zeros((56, 56, 3), np.uint8))
    assert model_fingerprint(predictor.model) == before
