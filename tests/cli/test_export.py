"""`densevit export`: arguments, messages and exit codes; what the files then say is in inference/{onnx,pt2,web}."""

import inspect
from pathlib import Path

import pytest
from shell import Shell
from toy_models import save_network, toy_network

from densevit.api.export_model import GRAPH, INT8, graph_options
from densevit.api.models import export
from densevit.errors import ConfigError
from densevit.inference.onnx.metadata import OnnxExportOptions, check_path


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    heads, encoder = {"depth": {"type": "metric", "max_depth": 20}}, {"depth": 1, "image_size": 28, "out_indices": 1}
    return save_network(tmp_path_factory.mktemp("saved") / "model", toy_network(heads, std=None, encoder=encoder))


@pytest.mark.slow
def test_a_checkpoint_becomes_a_file_that_inspect_reads(checkpoint: Path, tmp_path: Path, shell: Shell) -> None:
    file = tmp_path / "model.onnx"
    said = shell("export", checkpoint, file, "--image-size", "30,44").out
    assert f"{file}: 0." in said and "input image: uint8 1 x 30 x 44 x 3, RGB" in said
    assert (
        "output depth: float32 1 x 1 x 30 x 44, metric depth in m, 0.001 to 20; max. difference from PyTorch " in said
    )
    assert "input image: uint8 1 x 30 x 44 x 3, RGB" in shell("inspect", file).out
    assert '"licence": "unknown"' in shell("inspect", "--json", file).out


SIZED = ["a.onnx", "--image-size", "30,44"]
FAULTS = [
    (["a.onnx"], "--image-size: give height and width"),
    (["a.pt", "--image-size", "30,44"], "FILE.onnx, FILE.pt2 or a folder"),
    (["a.pt", "--format", "onnx", "--image-size", "30,44"], "does not end in .onnx"),
    (["none/a.onnx", "--image-size", "30,44"], "its folder does not exist"),
    (["there.onnx", "--image-size", "30,44"], "there.onnx exists already; --overwrite replaces it"),
    (["a.onnx", "--format", "pt2"], "does not end in .pt2"),
    (["there.pt2", "--image-size", "30,44"], "there.pt2 exists already; --overwrite replaces it"),
    (["a.onnx", "--no-preprocessing", "--flip"], "--no-preprocessing: needs no --flip and --crop"),
    (["a.onnx", "--image-size", "dynamic", "--crop", "kb"], "--crop: the window depends on the size"),
    ([*SIZED, "--data", "nyu"], "--data: is for --precision int8"),
    ([*SIZED, "--precision", "int8"], "--precision int8 and --max-drop go"),
    ([*SIZED, "--max-drop", "d1=0.01"], "--precision int8 and --max-drop go"),
    ([*SIZED, "--precision", "int8", "--max-drop", "d1=-1"], "--max-drop: metrics and how"),
    ([*SIZED, "--precision", "int8", "--max-drop", "d1=.nan"], "--max-drop: metrics and how"),
    (["a.pt2", "--image-size", "dynamic"], "dynamic: is for onnx, not for pt2"),
    (["a.pt2", "--image-size", "30,44", "--precision", "fp16"], "--precision: is for onnx, not for pt2"),
    (["site", "--argmax"], "--argmax: is for onnx and pt2, not for web"),
]


def test_faults_are_reported_before_the_checkpoint_is_read(
    here: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    there = {here / "there.onnx", here / "there.pt2"}
    for file in there:
        file.touch()
    monkeypatch.setattr("densevit.api.export_model.restore", lambda *given, **more: pytest.fail("it was read"))
    for options, fault in FAULTS:
        assert fault in shell.refused("export", "checkpoint", *options)
    assert {*here.iterdir()} == there


def test_a_path_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not UTF-8"):
        check_path(Path("\udce9.onnx"), ".onnx")


def test_sizes_that_are_none_are_refused(shell: Shell) -> None:
    for option in (["--image-size", "0,4"], ["--image-size", "4"], ["--batch-size", "0"], ["--max-drop", "d1"]):
        assert option[0] in shell.refused("export", "checkpoint", "a.onnx", *option)


def test_options_become_those_of_a_graph() -> None:
    defaults = {name: parameter.default for name, parameter in inspect.signature(export).parameters.items()}
    chosen = {"image_size": (40, 60), "batch_size": "dynamic", "argmax": True, "flip": True}
    made = graph_options(**{name: value for name, value in {**defaults, **chosen}.items() if name in GRAPH | INT8})
    assert made == OnnxExportOptions(size=(40, 60), batch=None, argmax=True, flip=True)
