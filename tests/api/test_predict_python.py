"""Files from Python: the bytes of the commands."""

from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from small import contents

import densevit
from densevit.api import export_model
from densevit.cli.main import main
from densevit.errors import ConfigError


def test_a_path_and_a_predictor_write_the_bytes_of_the_command(small_run: Path, tmp_path: Path) -> None:
    images = small_run / "data/images"
    words = ["--formats", "png16,color,ply", "--scale", "500", "--fov", "60", "--precision", "fp32"]
    assert main(["predict", str(small_run / "run"), str(images), "--output", str(tmp_path / "command"), *words]) == 0
    formats = {"png16": {"scale": 500.0}, "color": {}, "ply": {}}
    summary = densevit.predict(small_run / "run", images, tmp_path / "path", formats=formats, fov=60, precision="fp32")
    assert summary.done == 6 and "6 images in" in str(summary)
    predictor = densevit.load(small_run / "run", precision="fp32")
    densevit.predict(predictor, [images], tmp_path / "predictor", formats=formats, fov=60)
    assert contents(tmp_path / "path") == contents(tmp_path / "predictor") == contents(tmp_path / "command")


def test_options_of_a_format_are_checked(small_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such option"):
        densevit.predict(small_run / "run", small_run / "data/images", tmp_path, formats={"png16": {"scal": 3}})


@pytest.mark.parametrize(
    ("options", "given"), [({"image_size": (0, 64)}, r"\(0, 64\), 1"), ({"batch_size": None}, "None, None")]
)
@pytest.mark.parametrize("file", ["a.onnx", "a.pt2"])
def test_numbers_of_an_export_are_checked_first(tmp_path: Path, options: Any, given: str, file: str) -> None:
    with pytest.raises(ConfigError, match=rf"--image-size, --batch-size: 1 or more, or dynamic for ONNX, got {given}"):
        defaults = {name: value.default for name, value in signature(densevit.export).parameters.items()}
        arguments = {**defaults, "model": "no-such-model", "output": tmp_path / file, **options}
        export_model.export(defaults, **arguments)  # beyond the types of densevit.export, which tests check


@pytest.mark.slow
def test_onnx_is_checked_and_asks_for_a_size(small_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(ConfigError, match="--image-size"):
        densevit.export(small_run / "run", tmp_path / "a.onnx")
    made = densevit.export(small_run / "run", tmp_path / "a.onnx", image_size=(48, 64))
    assert made.paths == (tmp_path / "a.onnx",) and made.errors["depth"] < 1e-4
