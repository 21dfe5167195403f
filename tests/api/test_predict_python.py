"""Files from Python: the bytes of the commands."""

from pathlib import Path

import numpy as np
import pytest
from small import contents

import densevit
from densevit.cli.main import main
from densevit.errors import ConfigError, PartialError


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


def test_what_is_there_stays_and_what_fails_is_named(small_run: Path, tmp_path: Path) -> None:
    photo = small_run / "data/images/000.jpg"
    densevit.predict(small_run / "run", photo, tmp_path, formats="npy")
    assert np.load(tmp_path / "000.npy").shape == (60, 80)
    with pytest.raises(ConfigError, match="already there"):
        densevit.predict(small_run / "run", photo, tmp_path, formats="npy")
    assert densevit.predict(small_run / "run", photo, tmp_path, formats="npy", resume=True).already == 1
    (tmp_path / "torn.jpg").write_bytes(b"no image")
    with pytest.raises(PartialError):
        densevit.predict(small_run / "run", [photo, tmp_path / "torn.jpg"], tmp_path / "two")
    assert [path.suffix for path in (tmp_path / "two").rglob("*.png")] == [".png"]
    with pytest.raises(ConfigError, match="no such option"):
        densevit.predict(small_run / "run", photo, tmp_path, formats={"png16": {"scal": 3}})


@pytest.mark.slow
def test_onnx_is_checked_and_asks_for_a_size(small_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(ConfigError, match="--image-size"):
        densevit.export(small_run / "run", tmp_path / "a.onnx")
    with pytest.raises(ConfigError, match=r"--image-size, --batch-size: 1 or more, got \(0, 64\), 1"):
        densevit.export(small_run / "run", tmp_path / "a.onnx", image_size=(0, 64))
    made = densevit.export(small_run / "run", tmp_path / "a.onnx", image_size=(48, 64))
    assert made.paths == (tmp_path / "a.onnx",) and made.errors["depth"] < 1e-4
