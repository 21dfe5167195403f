"""Evaluation and prediction have the same options of inference, and the maps of one score as the other does."""

import json
from pathlib import Path
from typing import Any

import pytest
from small import small_config

import densevit
from densevit.api import evaluate, predict
from densevit.cli.parser import inherited_parameters
from densevit.errors import ConfigError

FOCAL = 70.0
CASES: dict[str, dict[str, Any]] = {
    "flip": {"flip": True},
    "scales": {"scales": (0.75, 1.25)},
    "window_size": {"window_size": 48},
    "stride": {"window_size": 48, "stride": 16},
    "tile_size": {"tile_size": 48},
    "tile_overlap": {"tile_size": 48, "tile_overlap": 0.5},
    "focal": {"focal": (40.0, 50.0, 30.0, 20.0)},
    "fov": {"fov": 80.0},
    "batch_size": {"batch_size": 4},
    "precision": {"precision": "bf16"},
}
QUICK = {"flip", "scales", "stride", "tile_size", "fov"}
SAME_MAPS = {"batch_size"}  # up to rounding
# Where the model comes from and what computes it; `crop` is for images of KITTI's size.
OTHERS = {"family", "family_options", "plugins", "device", "runtime", "compile", "cast_weights", "crop"}


def own(function: Any) -> set[str]:
    return set(inherited_parameters(function)) | {"flip", "precision", "batch_size"}


def test_both_have_every_option_of_inference() -> None:
    assert own(evaluate.evaluate) == own(predict.predict) == set(CASES) | OTHERS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose metres follow from the camera."""
    folder = tmp_path_factory.mktemp("small")
    config = small_config(folder)
    (folder / "data/intrinsics.json").write_text(json.dumps({"fx": FOCAL, "fy": FOCAL, "cx": 39.5, "cy": 29.5}))
    densevit.train(config, steps=8, output=folder / "run", model={"camera": "canonical"})
    return folder


@pytest.fixture(scope="module")
def plain(folder: Path) -> dict[str, float]:
    return dict(densevit.evaluate(folder / "run").scores)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in CASES])
def test_exported_maps_score_as_the_model_does(
    name: str, folder: Path, plain: dict[str, float], tmp_path: Path
) -> None:
    options = {"precision": "fp32", **CASES[name]}
    found = densevit.evaluate(folder / "run", **options)
    camera = {} if {"focal", "fov"} & options.keys() else {"intrinsics": (FOCAL, FOCAL, 39.5, 29.5)}
    densevit.predict(folder / "run", folder / "data/images", tmp_path, formats=["npy"], **options, **camera)
    data = {"type": "folder", "root": folder / "data", "depth_scale": 1000}
    saved = densevit.evaluate(predictions=tmp_path, data=data)
    assert found.scores == pytest.approx(saved.scores, rel=1e-5)
    assert (found.scores == pytest.approx(plain, rel=1e-4)) == (name in SAME_MAPS)


def test_a_predictor_takes_the_options_of_an_evaluation_too(folder: Path, tmp_path: Path) -> None:
    loaded = densevit.load(folder / "run", precision="fp32", fov=80.0)
    assert densevit.evaluate(loaded, data=folder / "data", data_options={"depth_scale": 1000}).scores == pytest.approx(
        densevit.evaluate(folder / "run", fov=80.0).scores, rel=1e-5
    )
    summary = densevit.predict(loaded, folder / "data/images", tmp_path)
    assert summary.done == 6 and json.loads((tmp_path / "export.json").read_text())["focal"]["fov"] == 80


@pytest.mark.parametrize(
    "fov, focal, message", [(177.0, None, "--fov: 177; would fit"), (60.0, 50.0, "one of --focal")]
)
def test_cameras_that_are_none_are_refused(folder: Path, fov: float, focal: float | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        densevit.load(folder / "run", fov=fov, focal=focal)
