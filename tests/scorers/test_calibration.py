"""`densevit calibrate` on a model whose error is known."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shell import Shell
from small import small_config
from toy_models import fp32, toy_network, toy_predictor

import densevit
from densevit.cli.main import main
from densevit.data.datasets.base import open_dataset
from densevit.data.datasets.pairs import Pairs
from densevit.depth_corrections import Calibration
from densevit.errors import ConfigError, DataError
from densevit.inference.forward import forward
from densevit.model_card import HeadSpec, ModelCard
from densevit.ops.calibration import calibrate, error_scale, fit_calibration, laplace_interval
from densevit.preprocess_config import PreprocessConfig
from densevit.scorers.calibration import (
    MeasuredImage,
    calibrated_card,
    choose_calibration,
    fit_intervals,
    measure,
    stacked,
)


def measured(wrong: object, count: int = 12, noise: float = 0.02) -> list[MeasuredImage]:
    draw = np.random.default_rng(0)
    images = []
    for i in range(count):
        truth = draw.uniform(1, 8, 200)
        images.append(MeasuredImage(f"{i:02d}", wrong(truth) * np.exp(draw.normal(0, noise, 200)), truth))  # type: ignore[operator]
    return images


CASES = {
    "scale": (lambda d: d / 1.3, (1.3, 0.0)),
    "affine": (lambda d: (d - 0.7) / 1.3, (1.3, 0.7)),
    "log_affine": (lambda d: (d / 1.2) ** (1 / 1.4), (1.4, np.log(1.2))),
}


@pytest.mark.parametrize("form", list(CASES))
def test_the_simplest_form_that_mends_the_error_is_chosen(form: str) -> None:
    wrong, expected = CASES[form]
    found = choose_calibration(measured(wrong))
    assert found.selected.form == form and (found.selected.a, found.selected.b) == pytest.approx(expected, abs=0.06)
    abs_rel = {name: row["abs_rel"] for name, row in found.scores.items()}
    assert abs_rel[form] < 0.03 < abs_rel["identity"] < abs_rel["constant"] + 1 and found.gain[form][0] > 0
    card = calibrated_card(ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1), "depth", found, "here")
    kept = ModelCard.from_dict(card.to_dict()).outputs["depth"].calibration
    assert kept is not None and (kept.form, kept.source, kept.images) == (form, "here", 12)
    assert kept.abs_rel == (abs_rel["identity"], abs_rel[form]) and kept.gain == found.gain[form]


def test_intervals_of_the_depth_before_a_correction_are_not_those_after_it(caplog: pytest.LogCaptureFixture) -> None:
    head = HeadSpec(kind="metric", interval=laplace_interval(0.9))
    found = choose_calibration(measured(lambda d: d / 1.3))
    card = calibrated_card(ModelCard(outputs={"depth": head}, multiple=1), "depth", found, "here")
    assert card.outputs["depth"].interval is None and "calibrate them anew" in caplog.text


def test_one_that_does_not_help_is_refused_with_its_numbers() -> None:
    found = choose_calibration(measured(lambda d: d, noise=0.05))
    assert found.selected.form == "identity"
    card = ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1)
    with pytest.raises(ConfigError, match=r"no correction .* helps(.|\n)*identity +0\.0.*\nscale +0\.0.* -0"):
        calibrated_card(card, "depth", found, "here")
    with pytest.raises(DataError, match="5 images have measured depth; cross-validation needs 6"):
        choose_calibration(measured(lambda d: d, count=5))


def test_depth_beyond_the_range_of_the_data_set_corrects_nothing() -> None:
    predictor = fp32(toy_network())
    image, depth = np.full((28, 28, 3), 90, np.uint8), np.full((28, 28), 3.0, np.float32)
    depth[:20] = 655.35  # a sensor's sign of no answer
    (found,) = measure(predictor, Pairs([{"image": image, "depth": depth}]), "depth")
    assert len(found.truth) == 8 * 28 and (found.truth == 3).all()


def test_pixels_of_infinite_predictions_are_left_out_of_intervals() -> None:
    """They made the factors of every distance NaN."""
    predictor = toy_predictor(Overflowing())
    outputs = {**predictor.card.outputs, "depth/uncertainty": HeadSpec(kind="uncertainty", unit="")}
    image = np.full((4, 6, 3), 255, np.uint8)
    data = Pairs([{"image": image, "depth": np.full((4, 6), 2.0, np.float32)}] * 10)
    _, interval = fit_intervals(predictor.with_options(card=replace(predictor.card, outputs=outputs)), data)
    assert interval.factors == pytest.approx((np.log(3 / 2) / 0.1,)) and interval.depths == pytest.approx((3.0,))


class Overflowing(torch.nn.Module):
    """Depth is 3 m with a scale of 0.1, and infinite in the first row."""

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        depth = torch.full_like(image[:, :1], 3.0)
        depth[:, :, 0] = torch.inf
        return {"depth": depth, "depth/uncertainty": torch.full_like(depth, 0.1)}


def draws(predict: Callable[[np.random.Generator, np.ndarray], np.ndarray], count: int = 24) -> list[MeasuredImage]:
    draw = np.random.default_rng(1)
    truths = [draw.uniform(1, 8) * draw.uniform(0.7, 1.4, 200) for _ in range(count)]
    return [MeasuredImage(f"{i:02d}", predict(draw, truth), truth) for i, truth in enumerate(truths)]


@pytest.mark.parametrize(
    ("predict", "why"),
    [
        (lambda draw, truth: np.full_like(truth, 9.0), "constant depth"),
        (lambda draw, truth: draw.uniform(5, 9, truth.shape), "constant depth"),
        (lambda draw, truth: np.maximum(9.0 - truth, 0.5), "(constant depth|helps)"),
        (lambda draw, truth: truth * np.exp(draw.normal(0, 0.1, truth.shape)), "helps"),
    ],
    ids=["constant", "unrelated", "near and far swapped", "nothing to correct"],
)
def test_predictions_that_no_correction_mends_are_refused(predict: Any, why: str) -> None:
    found = choose_calibration(draws(predict))
    with pytest.raises(ConfigError, match=why):
        calibrated_card(ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1), "depth", found, "here")


def test_a_form_that_certainly_helps_is_not_lost_to_a_simpler_one_that_does_not() -> None:
    found = choose_calibration(draws(lambda draw, truth: 0.5 * truth + 1.2))
    assert found.selected.form == "affine" and found.scores["affine"]["d1"] > 0.99


@pytest.mark.slow
def test_alike_frames_with_nothing_to_correct_are_rarely_corrected() -> None:
    """Each block of 8 frames is off by a factor of its own: frames are not independent, blocks are."""
    accepted = 0
    for seed in range(40):
        draw = np.random.default_rng(seed)
        images = []
        for block in range(12):
            wrong = np.exp(draw.normal(0, 0.2))
            truths = [draw.uniform(1, 8, 100) for _ in range(8)]
            images += [MeasuredImage(f"{block:02d}-{i}", truth * wrong, truth) for i, truth in enumerate(truths)]
        accepted += choose_calibration(images).selected.form != "identity"
    assert accepted <= 6


def test_outliers_do_not_move_a_fit() -> None:
    depth, truth = stacked(measured(lambda d: (d - 0.7) / 1.3))
    truth[::10] *= 4
    fitted = fit_calibration("affine", depth, truth)
    assert (fitted.a, fitted.b) == pytest.approx((1.3, 0.7), abs=0.08)


@pytest.mark.parametrize("form", ["scale", "log_affine"])
def test_an_image_with_many_points_weighs_as_much_as_one_with_few(form: str) -> None:
    draw = np.random.default_rng(0)
    factors = {2: [1.2] * 6, 800: [2.0] * 4}
    images = [(factor, draw.uniform(1, 8, count)) for count, each in factors.items() for factor in each]
    fitted = fit_calibration(form, *stacked([MeasuredImage("", depth, factor * depth) for factor, depth in images]))
    corrected = calibrate(torch.tensor([2.0, 5.0]), fitted)
    assert corrected.tolist() == pytest.approx([2.4, 6.0], rel=0.01)  # what 6 of 10 images ask for


def test_formulas_and_a_floor() -> None:
    depth = torch.tensor([1.0, 4.0])
    assert calibrate(depth, Calibration(form="affine", a=2, b=-3)).tolist() == pytest.approx([1e-3, 5])
    assert calibrate(depth, Calibration(form="log_affine", a=0.5, b=np.log(3))).tolist() == pytest.approx([3, 6])


@pytest.mark.parametrize(
    "calibration",
    [
        Calibration(form="scale", a=2.0),
        Calibration(form="affine", a=1.5, b=0.7),
        Calibration(form="log_affine", a=1.4, b=0.3),
    ],
    ids=lambda c: c.form,
)
def test_the_error_of_log_depth_is_corrected_as_depth_is(calibration: Calibration) -> None:
    depth, error = torch.tensor([0.5, 2.0, 9.0], dtype=torch.float64), 1e-6
    moved = calibrate(depth * np.exp(error), calibration).log() - calibrate(depth, calibration).log()
    expected = torch.as_tensor(error_scale(depth, calibration), dtype=torch.float64).expand(3)
    torch.testing.assert_close(moved / error, expected, rtol=1e-4, atol=0)

    def model(image: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"depth": image[:, :1] + 1, "depth/uncertainty": torch.full_like(image[:, :1], 0.25)}

    spec = HeadSpec(kind="metric", unit="metre", calibration=calibration)
    heads = {"depth": spec, "depth/uncertainty": HeadSpec(kind="uncertainty", unit="")}
    image = torch.rand(1, 3, 4, 4)
    y = forward(model, image, PreprocessConfig(mode="native"), 1, heads=heads)
    scale = torch.as_tensor(error_scale(image[:, :1] + 1, calibration))
    torch.testing.assert_close(y["depth/uncertainty"], (0.25 * scale).expand(1, 1, 4, 4))


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A tiny model whose metres are half of what it was taught."""
    config = small_config(folder)
    assert main(["train", str(config), "steps=30", "optim.lr=3e-3", "validate_every=30"]) == 0
    predictor = densevit.load(folder / "run", precision="fp32")
    half = Calibration(form="scale", a=0.5)
    card = replace(predictor.card, outputs={"depth": replace(predictor.card.outputs["depth"], calibration=half)})
    predictor.with_options(card=card).save_pretrained(folder / "half")
    return folder


def options(folder: Path) -> list[str]:
    return ["--data", "folder", "--root", str(folder / "data"), "--data-options", "depth_scale=1000"]


def test_a_calibration_is_part_of_the_card_and_of_every_prediction(run: Path) -> None:
    plain, half = (densevit.load(run / name, precision="fp32") for name in ("run", "half"))
    image = run / "data/images/000.jpg"
    np.testing.assert_allclose(half(image), plain(image) / 2, rtol=1e-5)
    assert half.card.outputs["depth"].metres is None
    half, plain = (one.with_options(flip=True) for one in (half, plain))
    np.testing.assert_allclose(half(image), plain(image) / 2, rtol=1e-5)


def test_a_training_from_a_calibrated_model_starts_without_and_says_so(run: Path, tmp_path: Path, shell: Shell) -> None:
    words = [f"model.init_from={run / 'half'}", "steps=1", "validate_every=1", f"output={tmp_path}"]
    assert "depth starts without its calibration (0.5 depth)." in shell("train", run / "small.yaml", *words).err
    assert densevit.load(tmp_path).card.outputs["depth"].calibration is None


def test_the_command_writes_a_new_checkpoint_whose_errors_are_smaller(run: Path, tmp_path: Path, shell: Shell) -> None:
    # Weights that are wrong by about a factor, as after a change of the camera.
    predictor = densevit.load(run / "run", precision="fp32")
    with torch.no_grad():
        last = predictor.model.heads["depth"].projection.last
        last.bias.sub_(1.0)  # under the sigmoid: smaller depth everywhere
    predictor.save_pretrained(tmp_path / "off")
    words = ["calibrate", *options(run), "--output"]
    said = shell(*words, tmp_path / "mended", tmp_path / "off").out
    assert re.search(r"identity +0\.[3-9].*\n(.*\n)+6 images", said), said
    mended = densevit.load(tmp_path / "mended", precision="fp32")
    kept = mended.card.outputs["depth"].calibration
    assert kept is not None and kept.images == 6 and "folder" in kept.source
    data = open_dataset({"type": "folder", "root": str(run / "data"), "depth_scale": 1000})
    sample = data.read(0)
    error = np.abs(mended(sample.image) - sample.depth) / sample.depth
    assert float(error.mean()) == pytest.approx(kept.abs_rel[1], abs=0.1)
    assert "exists already" in shell.refused(*words, tmp_path / "mended", tmp_path / "off")
    assert "is calibrated already" in shell.refused(*words, tmp_path / "again", tmp_path / "mended")


def test_points_with_a_tape_measure_serve_as_well(run: Path, tmp_path: Path, shell: Shell) -> None:
    data = open_dataset({"type": "folder", "root": str(run / "data"), "depth_scale": 1000})
    rows = [
        f"images/{name}.jpg,{u},{v},{data.read(i).depth[v, u] * 2:.4f}"  # type: ignore[index]
        for i, name in enumerate(data.names)
        for u, v in ((10, 10), (40, 30), (70, 50), (20, 50))
    ]
    table = run / "data/points.csv"
    table.write_text("\n".join(["image,u,v,depth", *rows]))
    assert main(["calibrate", str(run / "run"), "--points", str(table), "--output", str(tmp_path / "out")]) == 0
    kept = densevit.load(tmp_path / "out").card.outputs["depth"].calibration
    assert kept is not None and kept.source == str(table) and kept.abs_rel[1] < 0.6 * kept.abs_rel[0]
    table.write_text("u,v,depth\n1,2,3\n")
    told = shell.refused("calibrate", run / "run", "--points", table, "--output", tmp_path / "none")
    assert "every row needs an image" in told and (not (tmp_path / "none").exists())
    words = ["calibrate", run / "run", "--points", table, "--output", tmp_path / "none", "--split", "val"]
    assert "--points: is for --target scale, in place of --data" in shell.refused(*words)


@pytest.mark.slow
def test_an_onnx_file_is_calibrated_too(run: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    words = [str(tmp_path / "half.onnx"), "--image-size", "60,80"]
    assert main(["export", str(run / "half"), *words]) == 0
    image = np.random.default_rng(0).integers(0, 255, (1, 60, 80, 3), dtype=np.uint8)
    (found,) = onnxruntime.InferenceSession(str(tmp_path / "half.onnx")).run(None, {"image": image})
    expected = densevit.load(run / "half", precision="fp32")(image[0])
    assert np.abs(found[0, 0] - expected).max() / expected.max() < 1e-4
