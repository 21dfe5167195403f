"""Files from Python: the bytes of the commands."""

from pathlib import Path

import numpy as np
import pytest
from small import small_config

import densevit
from densevit.cli.main import main
from densevit.errors import ConfigError, PartialError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images, and a short run."""
    folder = tmp_path_factory.mktemp("small")
    densevit.train(small_config(folder), steps=1, output=folder / "run")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_a_path_and_a_predictor_write_the_bytes_of_the_command(folder: Path, tmp_path: Path) -> None:
    images = folder / "data/images"
    words = ["--formats", "png16,color,ply", "--scale", "500", "--fov", "60", "--precision", "fp32"]
    assert main(["predict", str(folder / "run"), str(images), "--output", str(tmp_path / "command"), *words]) == 0
    formats = {"png16": {"scale": 500.0}, "color": {}, "ply": {}}
    summary = densevit.predict(folder / "run", images, tmp_path / "path", formats=formats, fov=60, precision="fp32")
    assert summary.done == 6 and "6 images in" in str(summary)
    predictor = densevit.load(folder / "run", precision="fp32")
    densevit.predict(predictor, [images], tmp_path / "predictor", formats=formats, fov=60)
    assert content(tmp_path / "path") == content(tmp_path / "predictor") == content(tmp_path / "command")


def test_what_is_there_stays_and_what_fails_is_named(folder: Path, tmp_path: Path) -> None:
    photo = folder / "data/images/000.jpg"
    densevit.predict(folder / "run", photo, tmp_path, formats="npy")
    assert np.load(tmp_path / "000.npy").shape == (60, 80)
    with pytest.raises(ConfigError, match="already there"):
        densevit.predict(folder / "run", photo, tmp_path, formats="npy")
    assert densevit.predict(folder / "run", photo, tmp_path, formats="npy", resume=True).already == 1
    (tmp_path / "torn.jpg").write_bytes(b"no image")
    with pytest.raises(PartialError):
        densevit.predict(folder / "run", [photo, tmp_path / "torn.jpg"], tmp_path / "two")
    assert [path.suffix for path in (tmp_path / "two").rglob("*.png")] == [".png"]
    with pytest.raises(ConfigError, match="no such option"):
        densevit.predict(folder / "run", photo, tmp_path, formats={"png16": {"scal": 3}})


@pytest.mark.slow
def test_onnx_is_checked_and_asks_for_a_size(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(ConfigError, match="--image-size"):
        densevit.export(folder / "run", tmp_path / "a.onnx")
    made = densevit.export(folder / "run", tmp_path / "a.onnx", image_size=(48, 64))
    assert made.paths == (tmp_path / "a.onnx",) and made.errors["depth"] < 1e-4
