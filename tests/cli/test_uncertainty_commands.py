"""A training with `uncertainty: laplace`, calibrated, scored and exported."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from shell import Shell
from small import CONFIG, small_config, small_folder

import densevit
from densevit.cli.main import main
from densevit.model_card import ModelCard


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    root = small_folder(folder / "data", 10)
    (root / "intrinsics.json").write_text('{"fx": 60, "fy": 60, "cx": 39.5, "cy": 29.5}')
    text = CONFIG.format(root=root, output=folder / "run").replace("hidden: 8", "hidden: 8, uncertainty: laplace")
    (folder / "config.yaml").write_text(text)
    assert main(["train", str(folder / "config.yaml")]) == 0
    return folder


def data(run: Path) -> list[str]:
    return ["--data", "folder", "--root", str(run / "data"), "--data-options", "depth_scale=1000"]


def test_training_logs_it_and_the_card_and_the_predictor_have_it(run: Path) -> None:
    assert "laplace" in (run / "run/train.csv").read_text().splitlines()[0]
    predictor = densevit.load(run / "run")
    assert predictor.card.outputs["depth/uncertainty"].kind == "uncertainty"
    maps = predictor.predict_all(str(run / "data/images/000.jpg"))
    assert maps["depth/uncertainty"].shape == maps["depth"].shape == (60, 80)
    assert predictor(str(run / "data/images/000.jpg")).shape == (60, 80)  # the depth, still the only head


def test_calibrated_intervals_are_in_the_card_and_in_the_scores(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, shell: Shell
) -> None:
    few = "intervals of 90% were calibrated on 10 images"
    out = tmp_path / "calibrated"
    assert main(["calibrate", "--target", "uncertainty", str(run / "run"), *data(run), "--output", str(out)]) == 0
    assert few in caplog.text
    card = densevit.load(out).card
    interval = card.outputs["depth"].interval
    assert interval is not None and interval.level == 0.9 and interval.images == 10
    assert ModelCard.from_dict(json.loads(json.dumps(card.to_dict()))) == card
    assert main(["eval", "--task", "depth", str(out), *data(run), "--output", str(tmp_path / "scores")]) == 0
    scores = json.loads((tmp_path / "scores/metrics.json").read_text())
    found = scores["metrics"]
    assert few in scores["source"]["warning"]
    assert found["coverage"] == pytest.approx(0.99, abs=0.01)  # of the same images, 0.9 * 11 / 10
    assert {"ause_abs_rel", "aurg_rmse", "sparsification@10%", "coverage@2-3m"} <= set(found)
    page = (tmp_path / "scores/report.html").read_text()
    assert "Uncertainty" in page and "coverage of intervals" in page and "coverage ↓" not in page
    image = str(run / "data/images/000.jpg")
    words = ["predict", str(out), image, "--formats", "npy,interval", "--precision", "fp32", "--output"]
    assert main([*words, str(tmp_path / "maps")]) == 0
    written, depth = np.load(tmp_path / "maps/000.interval.npz"), np.load(tmp_path / "maps/000.npy")
    scale = densevit.load(out, precision="fp32").predict_all(image)["depth/uncertainty"]
    half = np.interp(np.log(depth), np.log(interval.depths), interval.factors) * scale  # in logarithms
    np.testing.assert_allclose(np.log(written["high"] / depth), half, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(np.log(depth / written["low"]), half, rtol=1e-3, atol=1e-5)
    assert written["level"] == 0.9
    (tmp_path / "p.csv").write_text("u,v,depth\n" + "".join(f"{u},{u // 2},{2 + u / 40}\n" for u in range(0, 80, 5)))
    fitted = [*words, str(tmp_path / "fitted"), "--points", str(tmp_path / "p.csv")]  # depth that has other errors
    assert "for maps without --points" in shell.refused(*fitted)
    tiled = [*words, str(tmp_path / "tiled"), "--tile-size", "32"]
    assert "tiles: for depth only, not for depth/uncertainty" in shell.refused(*tiled)
    assert not (tmp_path / "tiled").exists()


def test_intervals_that_were_not_calibrated_are_not_written(run: Path, tmp_path: Path, shell: Shell) -> None:
    words = ["predict", str(run / "run"), str(run / "data/images"), "--formats", "interval"]
    assert "`densevit calibrate --target uncertainty` does that" in shell.refused(*words, "--output", tmp_path / "maps")
    assert not (tmp_path / "maps").exists()


def test_what_cannot_be_calibrated_is_said_and_nothing_written(run: Path, tmp_path: Path, shell: Shell) -> None:
    out = tmp_path / "out"
    command = ["calibrate", "--target", "uncertainty", run / "run", *data(run), "--output", out]
    for level, says in ((0.95, "need 19 or more"), (2, "a share between 0 and 1")):
        assert says in shell.refused(*command, "--level", level) and not out.exists()
    assert "tiles: for depth only, not for depth/uncertainty" in shell.refused(*command, "--tile-size", 32)
    out.mkdir()
    assert "exists already" in shell.refused(*command)


@pytest.mark.slow
def test_a_model_learns_its_depth_to_the_bit_as_without_the_uncertainty(tmp_path: Path) -> None:
    config = small_config(tmp_path)
    weights = []
    for uncertainty in ("null", "laplace"):
        output = tmp_path / uncertainty
        words = [f"model.heads.depth.uncertainty={uncertainty}", "optim.clip_grad=0.1", f"output={output}"]
        assert main(["train", str(config), "steps=3", "device=cpu", *words]) == 0
        weights.append(load_file(output / "checkpoints/last/model.safetensors"))
    plain, with_it = weights
    added = with_it.keys() - plain.keys()
    assert added and all(".uncertainty." in name for name in added)
    for name, value in plain.items():
        assert torch.equal(value, with_it[name]), name
