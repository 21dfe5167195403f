"""Other programs compute what torch computes, or torch does it; `runtime: auto` takes a conversion where it pays."""

import importlib.util
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from toy_models import DEPTH_AND_LABELS, SMALL_DPT, fp32, toy_network

from densevit import api
from densevit.api.prediction import plan_export, run_export
from densevit.errors import ConfigError
from densevit.inference import choose_runtime as choosing
from densevit.inference.backends import auto, onnx_runtimes
from densevit.inference.backends.auto import AutoRuntimeModule, choose, sampled_sizes
from densevit.inference.backends.onnx_runtimes import MAX_SHAPES, RUNTIMES, ConvertedNetwork, ExternalRuntimeModule
from densevit.inference.predict.output_plan import OutputPlan, settings
from densevit.inference.predict.pipeline import ImageExporter
from densevit.inference.predictor import Predictor
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel
from densevit.preprocess_config import PreprocessConfig
from densevit.utils import packages
from densevit.utils.device import autocast


def network(rule: PreprocessConfig | None = None, **decoder: Any) -> tuple[DenseModel, ModelCard]:
    return toy_network(DEPTH_AND_LABELS, {**SMALL_DPT, **decoder}, rule, std=0.2, classes=("a", "b", "c"))


@pytest.fixture(scope="module")
def known() -> tuple[DenseModel, ModelCard]:
    return network()


def ask(model: nn.Module, image: Tensor, precision: Any = "fp32") -> dict[str, Tensor]:
    with torch.inference_mode(), autocast(precision, torch.device("cpu")):
        return {name: answer.float() for name, answer in model(image).items()}


def elsewhere(model: nn.Module, name: str, precision: Any = "fp32") -> ExternalRuntimeModule:
    return ExternalRuntimeModule(model, ["depth", "labels"], RUNTIMES[name], precision)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNTIMES)
def test_every_batch_gets_the_answers_of_torch(known: tuple[DenseModel, ModelCard], name: str) -> None:
    model, _ = known
    there = elsewhere(model, name)
    for count in (2, 1, 5):  # converted for two at a time: one is filled up, five come in three portions
        image = torch.rand(count, 3, 70, 45, generator=torch.Generator().manual_seed(count))  # positions are resampled
        answers, expected = ask(there, image), ask(model, image)
        assert list(answers) == ["depth", "labels"] and len(there.networks) == 1
        for head, values in expected.items():
            assert values.std() > 1e-3  # or anything would pass
            torch.testing.assert_close(answers[head], values, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_threads_share_a_network(known: tuple[DenseModel, ModelCard]) -> None:
    there = elsewhere(known[0], "openvino")
    images = [torch.rand(1, 3, 56, 70, generator=torch.Generator().manual_seed(i)) for i in range(12)]
    expected = [ask(there, image)["depth"] for image in images]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda image: ask(there, image)["depth"], images))
    assert all(map(torch.equal, found, expected))


@pytest.mark.slow
def test_a_network_that_was_built_in_inference_mode_is_converted_too() -> None:
    with torch.inference_mode():
        model, _ = network()
    image = torch.rand(1, 3, 28, 28, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ask(elsewhere(model, "onnxruntime"), image), ask(model, image), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_half_the_digits_give_nearly_the_same(known: tuple[DenseModel, ModelCard]) -> None:
    image = torch.rand(1, 3, 56, 56, generator=torch.Generator().manual_seed(0))
    answer, expected = ask(elsewhere(known[0], "openvino", "bf16"), image, "bf16"), ask(known[0], image)
    apart = (answer["depth"] - expected["depth"]).abs().mean() / expected["depth"].std()
    assert apart < 0.1


def test_sizes_beyond_the_first_few_are_left_to_torch(
    known: tuple[DenseModel, ModelCard], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, converted = elsewhere(known[0], "onnxruntime"), []

    def convert(image: Tensor, *more: Any) -> onnx_runtimes.ConvertedNetwork:
        converted.append(tuple(image.shape[-2:]))
        return onnx_runtimes.ConvertedNetwork(lambda images: [images[:, :1], images], len(image))

    monkeypatch.setattr(there, "convert", convert)
    sizes = [(14 * i, 28) for i in range(1, MAX_SHAPES + 3)]
    for size in sizes * 2:
        answer = ask(there, torch.rand(1, 3, *size))["depth"]
        assert answer.shape == (1, 1, *size)
    assert converted == sizes[:MAX_SHAPES]
    (word,) = [record.getMessage() for record in caplog.records]
    assert "torch computes the others" in word


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [PreprocessConfig(mode="lower_bound", size=(42, 42)), PreprocessConfig(padding="stretch", single_resize=True)],
)
def test_a_predictor_gives_the_same_maps(rule: PreprocessConfig) -> None:
    pictures = [np.random.default_rng(i).integers(0, 256, (50, 61, 3), dtype=np.uint8) for i in range(3)]
    plain = fp32(network(rule), flip=True, batch_size=2)
    there = Predictor(*network(rule), precision="fp32", flip=True, batch_size=2, runtime="onnxruntime")
    assert there.device.type == "cpu"
    for one, other in zip(plain.predict(pictures), there.predict(pictures), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
    assert list(there.model.state_dict()) == list(plain.model.state_dict())


def test_an_export_notes_what_computed(known: tuple[DenseModel, ModelCard], tmp_path: Path) -> None:
    predictor = Predictor(*known, precision="fp32", runtime="openvino")
    noted = settings(predictor, OutputPlan([], {}, tmp_path), {})
    assert json.loads(json.dumps(noted))["runtime"] == "openvino"


WRONG = {
    "a GPU": ({"runtime": "openvino", "device": "meta"}, "device: 'meta'"),
    "compiled": ({"runtime": "openvino", "compile": True}, "leave out `compile`"),
    "a number format": ({"runtime": "onnxruntime", "precision": "bf16"}, "computes in fp32, not in bf16"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_go_together_is_refused(known: tuple[DenseModel, ModelCard], wrong: str) -> None:
    options, word = WRONG[wrong]
    with pytest.raises(ConfigError, match=word.replace("'", ".")):
        Predictor(*known, **options)


def test_an_unknown_program_is_refused() -> None:
    with pytest.raises(ConfigError, match="choose one of torch, openvino, onnxruntime"):
        auto.resolve_device_and_precision("tensorrt", "auto", "auto")


def test_a_missing_program_is_told_before_the_weights_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name == "openvino" else find(name))
    with pytest.raises(ConfigError, match=r"openvino is not installed: pip install 'densevit\[openvino\]'"):
        api.load(tmp_path / "no-checkpoint", runtime="openvino")


def test_fp32_is_what_auto_means_where_nothing_else_is_computed(known: tuple[DenseModel, ModelCard]) -> None:
    assert Predictor(*known, runtime="onnxruntime").precision == "fp32"


class Moody(nn.Module):
    """Chooses by the values of the image, which no graph can say."""

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        return {"depth": image if image.sum() > 0 else -image, "labels": image}


def test_a_network_that_is_no_graph_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be written as ONNX: "):
        ask(elsewhere(Moody(), "onnxruntime"), torch.rand(1, 3, 14, 14))


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


def test_openvino_is_asked_without_its_telemetry(tmp_path: Path) -> None:
    """It writes to Google Analytics, keeps an identity in ~/intel, and on Python 3.14 runs the user's script again."""
    code = "import sys; from pathlib import Path; from densevit.inference.backends.onnx_runtimes import RUNTIMES\n"
    code += "try: RUNTIMES['openvino'].open(Path('none.onnx'), 'fp32')\n"
    code += "except RuntimeError: assert 'openvino' in sys.modules"
    environment = {name: value for name, value in os.environ.items() if name != "CI"}  # there it is off
    subprocess.run([sys.executable, "-c", code], check=True, env={**environment, "HOME": str(tmp_path)})
    assert not (tmp_path / "intel").exists()
