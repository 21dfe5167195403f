"""A compiled package gives torch's outputs, from Python and from C++, and refuses what it is not for."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_models import DEPTH_AND_LABELS, fp32, toy_network

from densevit.errors import CheckpointError, ConfigError, DataError
from densevit.inference import pt2
from densevit.inference.onnx.metadata import OnnxExportOptions
from densevit.inference.pt2 import KEY, Pt2Model, TensorSpec, check_output, export_pt2, load_pt2
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel
from densevit.preprocess_config import PreprocessConfig

PAGE = Path(__file__).parents[3] / "docs" / "pt2.md"
SIZE = (48, 64)
needs_compiler = pytest.mark.skipif(not any(map(shutil.which, pt2.COMPILERS)), reason="no C++ compiler")


def network() -> tuple[DenseModel, ModelCard]:
    rule = PreprocessConfig(mode="lower_bound", size=(42, 42), interpolation="bicubic")
    return toy_network(DEPTH_AND_LABELS, None, rule, encoder={"depth": 1, "out_indices": 1})


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pt2") / "model.pt2"
    written = export_pt2(*network(), path, OnnxExportOptions(size=SIZE, argmax=True))
    assert list(written.errors) == list(DEPTH_AND_LABELS) and max(written.errors.values()) < 1e-5
    assert [file.name for file in path.parent.iterdir()] == ["model.pt2"]
    return path


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore")
def test_a_package_gives_the_maps_of_the_predictor(package: Path) -> None:
    image = np.random.default_rng(3).integers(0, 256, (1, *SIZE, 3), dtype=np.uint8)
    compiled = load_pt2(package)
    found, expected = compiled(image), fp32(network()).start(image).read()
    assert expected["depth"].std() > 1e-3
    np.testing.assert_allclose(found["depth"], expected["depth"], rtol=1e-5)
    np.testing.assert_array_equal(found["labels"], expected["labels"].argmax(1))
    assert compiled.metadata["input image"] == "uint8 1 x 48 x 64 x 3, RGB, as decoded from a file"
    assert ModelCard.from_dict(json.loads(compiled.metadata["card"])).resize.size == (42, 42)
    with pytest.raises(DataError, match="image is uint8 1 x 64 x 48 x 3; this package is compiled for uint8 1 x 48"):
        compiled(image.transpose(0, 2, 1, 3))


@pytest.mark.slow
@needs_compiler
@pytest.mark.filterwarnings("ignore")
def test_the_program_of_the_page_runs_it_without_python(package: Path, tmp_path: Path) -> None:
    (code,) = re.findall(r"^```cpp\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "main.cpp").write_text(code.replace("480, 640", "48, 64"))
    (build,) = re.findall(r"^(TORCH=.*?)^\./main", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    python = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", build], cwd=tmp_path, check=True, env=python)
    said = subprocess.run([tmp_path / "main", package], capture_output=True, text=True, check=True, env={}).stdout
    depth = fp32(network())(np.full((*SIZE, 3), 128, np.uint8))
    np.testing.assert_allclose([float(word) for word in said.split(" to ")], [depth.min(), depth.max()], rtol=1e-4)


def test_what_differs_from_torch_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pt2, "compile_package", lambda module, examples, path, recorded: path.touch())
    monkeypatch.setattr(pt2, "load_pt2", lambda path: None)
    monkeypatch.setattr(pt2, "errors_against_torch", lambda *given, **more: {"depth": 2e-4})
    with pytest.raises(ConfigError, match=r"depth: the compiled network is not kept: .* from PyTorch is 2\.0e-04"):
        export_pt2(*network(), tmp_path / "a.pt2", OnnxExportOptions(size=SIZE, network=True))
    assert not list(tmp_path.iterdir())


def fake(path: Path, isa: str, **more: Any) -> Path:
    """An archive with the metadata of a package, and no code."""
    recorded = {"inputs": {"image": ["uint8", [1, 4, 5, 3]]}, "outputs": ["depth"], "torch": "2.99"}
    about = {KEY: json.dumps(recorded), "AOTI_CPU_ISA": isa, **more}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data/aotinductor/model/x.wrapper_metadata.json", json.dumps(about))
    return path


def test_files_that_cannot_run_here_are_refused_before_their_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pt2, "PRESENT", {"AVX2": lambda: True, "AMX_TILE": lambda: False})
    (tmp_path / "b.pt2").write_text("no archive")
    zipfile.ZipFile(tmp_path / "c.pt2", "w").close()
    os.mkfifo(tmp_path / "pipe.pt2")
    for path, error, told in (
        (fake(tmp_path / "a.pt2", "AVX2 AMX_TILE"), ConfigError, "with AVX2 AMX_TILE; this one lacks AMX_TILE"),
        (fake(tmp_path / "d.pt2", "AVX2"), ConfigError, r"does not load it .*it was written by torch 2\.99"),
        (tmp_path / "none.pt2", CheckpointError, "no such file"),
        (tmp_path / "pipe.pt2", CheckpointError, "no such file"),
        (tmp_path / "b.pt2", CheckpointError, r"cannot be read as a \.pt2 package"),
        (tmp_path / "c.pt2", CheckpointError, "no package of `densevit"),
    ):
        with pytest.raises(error, match=told):
            load_pt2(path)


def test_inputs_are_checked_in_each_call() -> None:
    inputs = {"image": TensorSpec("uint8", (1, 4, 5, 3)), "focal": TensorSpec("float32", (1,))}
    compiled = Pt2Model(lambda image, focal: (image.sum() * focal,), inputs, {}, ["depth"])
    image, focal = np.ones((1, 4, 5, 3), np.uint8), np.full(1, 2, np.float32)
    assert compiled(image, focal=focal) == {"depth": 120}
    with pytest.raises(DataError, match="takes image, focal; given are image"):
        compiled(image)
    with pytest.raises(DataError, match="focal is float64 1; this package is compiled for float32 1"):
        compiled(image, focal=focal.astype(float))


def test_a_machine_without_a_compiler_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pt2, "COMPILERS", ("no-such-compiler",))
    with pytest.raises(ConfigError, match="no compiler is installed"):
        check_output(tmp_path / "b.pt2")
