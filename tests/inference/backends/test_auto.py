"""`runtime: auto` takes a conversion where it pays by hand calculation and by the clock, and torch elsewhere."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from toy_models import fp32, toy_network

from densevit.api.prediction import plan_export, run_export
from densevit.inference import choose_runtime as choosing
from densevit.inference.backends import auto
from densevit.inference.backends.auto import AutoRuntimeModule, choose, sampled_sizes
from densevit.inference.backends.onnx_runtimes import ConvertedNetwork, ExternalRuntimeModule
from densevit.inference.predict.pipeline import ImageExporter
from densevit.inference.predictor import Predictor
from densevit.preprocess_config import PreprocessConfig

CPU = torch.device("cpu")
SECONDS = {"torch": 0.5, "openvino": 0.4}


def predictor(**options: Any) -> Predictor:
    rule = PreprocessConfig(mode="fixed", size=(56, 56))
    return fp32(toy_network(rule=rule, std=None, encoder={"out_indices": 1}), **options)


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ({"a": 100}, "openvino"),  # saves 100 x 0.5 s x 0.2 = 10 s of the 9 s of its start
        ({"a": 80}, "torch"),  # saves 8 s
        ({"a": 100, "b": 3}, "torch"),  # saves 10.3 s, and starts twice
        ({"a": 400, "b": 3}, "openvino"),
        (dict.fromkeys(range(9), 60), "torch"),  # only four sizes are converted: 24 s saved, 36 s to start
    ],
)
def test_it_is_taken_where_it_saves_more_than_it_takes_to_start(sizes: dict[Any, int], name: str) -> None:
    assert choose("openvino", sizes, 9.0, 0.8, SECONDS.__getitem__).name == name


def test_it_is_not_taken_where_the_clock_says_that_torch_is_faster() -> None:
    choice = choose("openvino", {"a": 1000}, 9.0, 0.8, {"torch": 0.5, "openvino": 0.6}.__getitem__)
    assert choice == ("torch", "0.6 s an image by openvino, 0.5 s by torch")


def test_sizes_are_taken_from_some_images() -> None:
    asked = []

    def size_of(index: int) -> tuple[int, int] | None:
        asked.append(index)
        return None if index == 0 else (10, 20) if index < 500 else (30, 40)

    assert sampled_sizes(1000, size_of, read=4) == {(10, 20): 333, (30, 40): 667}
    assert asked == [0, 250, 500, 750]
    assert sampled_sizes(3, lambda index: (1, index)) == {(1, 0): 1, (1, 1): 1, (1, 2): 1}
    assert not sampled_sizes(0, size_of)


def test_candidates_are_installed_and_compute_in_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    assert auto.candidate(CPU, "bf16") == "openvino" == auto.candidate(CPU, "fp32")
    assert auto.candidate(torch.device("cuda"), "fp32") is None
    monkeypatch.setattr(auto, "is_installed", lambda package: package != "openvino")
    assert auto.candidate(CPU, "fp32") is None
    assert predictor(runtime="auto").runtime == "torch"


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """What was converted, to a network whose output is 7 everywhere."""
    converted = []

    def convert(self: ExternalRuntimeModule, image: Tensor, *_: object) -> ConvertedNetwork:
        converted.append(tuple(image.shape))
        return ConvertedNetwork(lambda given: [np.full_like(given[:, :1], 7)], len(image))

    monkeypatch.setattr(ExternalRuntimeModule, "convert", convert)
    return converted


def test_torch_computes_until_as_many_images_again_pay(
    conversions: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    ours = predictor(runtime="auto")
    image = np.zeros((56, 56, 3), np.uint8)
    plain = predictor()(image)
    network = ours.network
    assert isinstance(network, AutoRuntimeModule)
    np.testing.assert_array_equal(ours(image), plain)
    network.start = 1.5
    network.spent = dict.fromkeys(network.spent, (10, 7.0))  # saves 1.4 s
    np.testing.assert_array_equal(ours(image), plain)
    network.spent = dict.fromkeys(network.spent, (10, 8.0))
    assert (ours(image) == 7).all() and conversions == [(1, 3, 56, 56)]
    assert "openvino computes the next ones" in caplog.text
    network.networks.clear()
    network.spent = dict.fromkeys(network.spent, (10**12, 8.0))  # torch was faster
    np.testing.assert_array_equal(ours(image), plain)
    assert "continuing with torch" in caplog.text and not network.networks and network.slower


def test_an_export_names_its_choice_and_resumes_with_it(
    tmp_path: Path, conversions: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(3):
        Image.new("RGB", (70, 56), (40 * i, 0, 0)).save(tmp_path / f"{i}.png")

    def export(existing: Any) -> str:
        plan = plan_export([tmp_path], tmp_path / "maps", {"npy": {}}, existing=existing)
        run_export(plan, lambda _: predictor(runtime="auto"), "cpu", ImageExporter, existing=existing)
        return capsys.readouterr().err

    assert "runtime auto: torch (openvino would save some 0 s on 3 images of 1 size" in export("refuse")
    monkeypatch.setattr(auto, "start_seconds", lambda name, model: 0.0)
    monkeypatch.setattr(choosing, "seconds_per_image", lambda predictor, size: SECONDS[predictor.runtime])
    assert "runtime auto: torch, as before" in export("resume") and not conversions
    first = export("overwrite")
    assert "runtime auto: openvino (0.4 s an image by openvino, 0.5 s by torch; 3 images of 1 size)" in first
    assert "by openvino" in first and (np.load(tmp_path / "maps/0.npy") == 7).all()
    monkeypatch.setattr(auto, "start_seconds", lambda name, model: 1e9)
    assert "runtime auto: openvino, as before" in export("resume")


def test_a_packed_model_can_be_traced() -> None:
    ours = predictor()
    with torch.no_grad():
        graph = torch.export.export(ours.model, (torch.zeros(1, 3, 56, 56),)).graph
    assert not any("mkldnn" in str(node.target) for node in graph.nodes)
    assert isinstance(ours.model, nn.Module)
