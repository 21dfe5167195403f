"""Other programs compute what torch computes: the same maps, for any batch and size, or torch does it after all."""

import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from toy_models import DEPTH_AND_LABELS, SMALL_DPT, fp32, toy_network

from densevit import api
from densevit.errors import ConfigError
from densevit.inference.backends import auto, onnx_runtimes
from densevit.inference.backends.onnx_runtimes import MAX_SHAPES, RUNTIMES, ExternalRuntimeModule
from densevit.inference.predict.output_plan import OutputPlan, settings
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
