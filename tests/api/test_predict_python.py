"""Files from Python: the bytes of the commands."""

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small import contents

import densevit
from densevit.api import checkpoint, export_model, prediction
from densevit.cli.main import main
from densevit.errors import ConfigError, DataError
from densevit.inference.predict.inputs import paths_of


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
    ("options", "given"),
    [
        ({"image_size": (0, 64)}, r"\(0, 64\), 1"),
        ({"image_size": 64}, "64, 1"),
        ({"image_size": np.array([0, 64])}, r"\[0, 64\], 1"),
        ({"batch_size": None}, "None, None"),
        ({"batch_size": "3"}, "None, '3'"),
    ],
)
@pytest.mark.parametrize("file", ["a.onnx", "a.pt2"])
def test_numbers_of_an_export_are_checked_first(tmp_path: Path, options: Any, given: str, file: str) -> None:
    with pytest.raises(ConfigError, match=rf"--image-size HEIGHT,WIDTH, .* or dynamic for ONNX, got {given}"):
        export(tmp_path / file, **options)


def export(file: Path, **options: Any) -> None:
    """Export beyond the types of `densevit.export`, which tests check."""
    defaults = {name: value.default for name, value in signature(densevit.export).parameters.items()}
    export_model.export(defaults, **{**defaults, "model": "no-such-model", "output": file, **options})


@pytest.mark.parametrize("options", [{"precision": "bf16"}, {"crop": "eigen"}])
def test_a_choice_that_there_is_not_is_refused(tmp_path: Path, options: Any) -> None:
    (name,) = options
    with pytest.raises(ConfigError, match=f"--{name}: .*, got '{options[name]}'"):
        export(tmp_path / "a.onnx", image_size=(48, 64), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": "eigen"}, "--crop: kb, got 'eigen'"),
        ({"window_size": 64, "stride": 0}, "whole numbers of pixels, got 64 and 0"),
    ],
)
def test_options_of_a_model_that_cannot_be_so_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checkpoint.load_checkpoint(
            "densevit:rooms", None, {}, None, (), options.pop("window_size", None), options.pop("stride", None),
            device="cpu", precision="fp32", runtime="torch", compile=False, **options,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("camera", "message"),
    [
        ({"intrinsics": np.array([50.0, 50.0, 31.5])}, "--intrinsics: fx, fy, cx, cy in pixels above 0"),
        ({"intrinsics": ["50", 50, 31, 23]}, "--intrinsics: fx, fy, cx, cy in pixels above 0"),
        ({"intrinsics": np.eye(2), "fov": 60}, "give the camera as one of"),
        ({"focal": (50.0, 50.0, 31.5)}, "focal is .*; a focal length is a number"),
    ],
)
def test_a_camera_that_is_none_is_refused(camera: Mapping[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        prediction.camera_of(*(camera.get(name) for name in ("intrinsics", "focal", "fov")))


def test_inputs_are_paths() -> None:
    for inputs in (np.zeros((8, 8, 3), np.uint8), [Path("a.png"), 3], 3):
        with pytest.raises(DataError, match="inputs are paths, got (ndarray|int); "):
            paths_of(inputs)
    assert paths_of("a.png") == ["a.png"] and paths_of((Path("a"), "b")) == [Path("a"), "b"]


@pytest.mark.slow
def test_onnx_is_checked_and_asks_for_a_size(small_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(ConfigError, match="--image-size"):
        densevit.export(small_run / "run", tmp_path / "a.onnx")
    made = densevit.export(small_run / "run", tmp_path / "a.onnx", image_size=(48, 64))
    assert made.paths == (tmp_path / "a.onnx",) and made.errors["depth"] < 1e-4
