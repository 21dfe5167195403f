"""Train, evaluate, export, and evaluate what was exported, by the same options: the main job on real files, small."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from shell import Shell
from small import small_config

import densevit
from densevit.api import evaluate, predict
from densevit.builder.plan import load_plan
from densevit.cli.main import main
from densevit.cli.parser import inherited_parameters
from densevit.engine.checkpointer import CheckpointFolder
from densevit.engine.logger import read_csv
from densevit.errors import ConfigError
from densevit.scorers.training_report import write_training_report
from densevit.utils.process_group import CPU

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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, report_images: None) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    assert main(["train", str(small_config(folder)), "steps=60", "optim.lr=3e-3", "validate_every=20"]) == 0
    return folder


def metrics(folder: Path) -> dict[str, float]:
    return json.loads((folder / "metrics.json").read_text())["metrics"]


def test_training_learns(run: Path) -> None:
    scores = [row["abs_rel"] for row in read_csv(run / "run/val.csv")]
    assert scores[-1] < 0.5 * scores[0] or scores[-1] < 0.1


def test_the_report_of_a_training_has_its_curves_its_scores_and_its_worst_images(run: Path) -> None:
    page, rows = (run / "run/report.html").read_text(), read_csv(run / "run/val.csv")
    for name in ("loss", "silog", "l1", "grad_norm", "lr", *(rows[0].keys() - {"step", "seconds"})):
        assert f'role="img" aria-label="{name}"' in page
    best = min(rows, key=lambda row: row["abs_rel"])
    shown = [best] if best is rows[-1] else [best, rows[-1]]  # which one is best depends on the processor
    cells = "".join(f"<td>{row['abs_rel']:.4f}</td>" for row in shown)
    assert f"<th>abs_rel</th>{cells}</tr>" in page
    assert f"{'best' if len(shown) == 2 else 'best and last'}, step {best['step']:,.0f}" in page
    assert 'aria-label="abs_rel"' in page.partition("curves of the other metrics")[0]
    assert page.count('<img src="data:image/jpeg') == 3 and page.count("<figcaption>ground truth</figcaption>") == 3
    assert f"densevit eval {run / 'run'} --task depth<" in page
    assert "6 for training, 6 for validation" in page and "decoder:" in page


def test_a_report_that_cannot_be_written_or_has_no_images_is_a_warning(run: Path, tmp_path: Path, caplog) -> None:
    shutil.copytree(run / "run", tmp_path / "run", symlinks=True)
    plan = load_plan(tmp_path / "run/config.yaml", [f"output={tmp_path / 'run'}"]).open()
    folder, page = CheckpointFolder(tmp_path / "run/checkpoints", ("abs_rel", "min"), 1), tmp_path / "run/report.html"
    shutil.rmtree(tmp_path / "run/checkpoints")
    assert write_training_report(plan, folder, "", CPU) == page and "has no images" in caplog.text
    assert "aria-label" in page.read_text() and "data:image" not in page.read_text()
    page.unlink()
    page.mkdir()
    assert write_training_report(plan, folder, "") is None and "report.html could not be written" in caplog.text


@pytest.mark.slow
def test_the_motorcycle_is_read_evaluated_and_exported(run: Path, tmp_path: Path) -> None:
    """scikit-image's stereo pair: a real photograph with real metric depth."""
    data = ["--task", "depth", "--data", "middlebury_motorcycle", "--output"]
    assert main(["eval", str(run / "run"), *data, str(tmp_path / "eval")]) == 0
    scores = metrics(tmp_path / "eval")
    assert 0 < scores["abs_rel"] < 2 and scores["silog"] > 0
    from skimage.data import stereo_motorcycle

    Image.fromarray(stereo_motorcycle()[0]).save(tmp_path / "motorcycle.png")
    words = [str(tmp_path / "motorcycle.png"), "--output", str(tmp_path / "maps"), "--precision", "fp32"]
    assert main(["predict", str(run / "run"), *words]) == 0
    assert main(["eval", "--predictions", str(tmp_path / "maps"), *data, str(tmp_path / "saved")]) == 0
    assert metrics(tmp_path / "saved")["abs_rel"] == pytest.approx(scores["abs_rel"], abs=1e-3)


def test_a_protocol_that_the_validation_images_do_not_fit_is_told_before_the_first_step(
    tmp_path: Path, shell: Shell
) -> None:
    told = shell.refused("train", small_config(tmp_path), "tasks.depth.protocol=nyu_eigen")
    assert "tasks.depth.protocol: '000' of data.val: the box rows 45:471" in told
    assert not (tmp_path / "run/train.csv").exists()


def test_images_that_are_trained_on_and_scored_are_a_warning(tmp_path: Path, shell: Shell) -> None:
    told = shell("train", small_config(tmp_path), "steps=1").err
    assert "warning: 6 of the 6 images of data.val are in data.train, too, '000' for one" in told
    own = [f"data.{kind}.{key}" for kind in ("train", "val") for key in (f"split={kind}", "val_fraction=0.3")]
    assert "in data.train, too" not in shell("train", small_config(tmp_path / "b"), "steps=1", *own).err
