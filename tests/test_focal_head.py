"""A head that estimates the focal length, from training to exports: used where nothing else tells it, and said so."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from films import write_film
from PIL import Image
from shell import Shell
from small import add_cameras, noise, small_config

import densevit
from densevit.cli.main import main
from densevit.errors import ConfigError
from densevit.inference.image_input import ImageInput
from densevit.inference.onnx.export import check_options, example_inputs
from densevit.inference.onnx.metadata import OnnxExportOptions
from densevit.inference.predict.point_files import read_ply_points
from densevit.inference.predictor import Predictor
from densevit.inference.video.predict import predict_frames, predict_video
from densevit.losses.image_level import LogL1
from densevit.tasks.focal import score

HEAD = [
    "model.decoders.focal.type=pool", "model.decoders.focal.pool=average", "model.heads.focal.type=focal",
    "tasks.focal.type=focal", "best=depth/abs_rel",
]  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("focal")
    small_config(folder)
    add_cameras(folder / "data")
    return folder


@pytest.fixture(
    scope="module", params=["model.camera=canonical", "model.conditioning={rays: {}}"], ids=["canonical", "rays"]
)
def run(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("run") / "run"
    words = [request.param, f"output={output}", "steps=12", "validate_every=12"]
    assert main(["train", str(data / "small.yaml"), *words, *HEAD]) == 0
    return output


@pytest.fixture
def predictor(run: Path) -> Predictor:
    return densevit.load(run, precision="fp32")


def test_the_loss_is_the_mean_ratio_of_known_lengths() -> None:
    ours = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    loss = LogL1()(ours, torch.tensor([2.0, math.nan, 3.0]))
    assert loss.item() == pytest.approx(math.log(2) / 2)
    loss.backward()
    assert ours.grad is not None and ours.grad.tolist() == [-0.5, 0.0, pytest.approx(0.0)]
    nothing = LogL1()(ours, torch.full((3,), math.nan))
    assert nothing.item() == 0 and nothing.requires_grad


def test_scores_are_angles_and_ratios() -> None:
    row = score(0.5, 0.5 / math.tan(math.radians(30)))  # 90 and 60 degrees
    assert row == pytest.approx({"fov_error": 30.0, "focal_error": math.sqrt(3) - 1})


def test_it_learns_and_is_validated(run: Path) -> None:
    scores = densevit.Run(run).scores
    assert 0 < scores["focal/fov_error"] < 30 and "depth/abs_rel" in scores
    assert densevit.load(run).card.head() == "depth"


def test_an_image_without_a_camera_is_predicted_with_the_estimate(predictor: Predictor) -> None:
    focal = predictor.estimate_camera(noise())
    assert 10 < focal < 500
    maps = predictor(noise())
    np.testing.assert_allclose(predictor(ImageInput(noise(), focal)), maps, rtol=1e-5)
    assert not np.allclose(predictor(ImageInput(noise(), 3 * focal)), maps, rtol=2e-5)
    assert predictor.estimate_camera(noise()) == focal  # the head sees the image alone


def test_tiles_have_the_camera_of_the_whole_image(run: Path) -> None:
    tiled = densevit.load(run, precision="fp32", tile_size=48)
    maps = tiled(noise((48, 96)))
    camera = tiled.estimate_camera(noise((48, 96)))
    np.testing.assert_allclose(tiled(ImageInput(noise((48, 96)), camera)), maps, rtol=1e-5)


def test_a_video_has_one_focal_length(predictor: Predictor) -> None:
    frames = [noise(seed=seed) for seed in range(4)]
    maps = list(predict_frames(predictor, frames))
    first = predictor.with_options(camera=predictor.estimate_camera(frames[0]))
    np.testing.assert_allclose(maps, first(frames), rtol=1e-5)


def test_exports_say_what_was_estimated_and_exif_comes_first(run: Path, tmp_path: Path, shell: Shell) -> None:
    (tmp_path / "in").mkdir()
    for name in "ab":
        Image.fromarray(noise(seed=ord(name))).save(tmp_path / f"in/{name}.png")
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0xA405] = 30  # 35 mm equivalent
    Image.fromarray(noise(seed=7)).save(tmp_path / "in/c.jpg", exif=exif)
    words = ["predict", str(run), str(tmp_path / "in"), "--formats", "npy,ply", "--precision", "fp32"]
    assert "focal lengths: 1 from EXIF, 2 estimated by the model" in shell(*words, "--output", tmp_path / "out").out
    predictor = densevit.load(run, precision="fp32")
    focal = predictor.estimate_camera(tmp_path / "in/a.png")
    points = read_ply_points(tmp_path / "out/a.ply")
    assert np.abs(points[:, 0] / points[:, 2]).max() == pytest.approx(31.5 / focal, rel=0.05)
    alone = ["predict", str(run), str(tmp_path / "in/a.png"), "--formats", "npy", "--precision", "fp32"]
    assert main([*alone, "--focal", str(focal), "--output", str(tmp_path / "given")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "given/a.npy"), np.load(tmp_path / "out/a.npy"), rtol=1e-5)


def test_a_resumed_film_keeps_its_focal_length(run: Path, tmp_path: Path, shell: Shell) -> None:
    pytest.importorskip("av")
    film = write_film(tmp_path / "film.mp4", [noise((64, 64), seed) for seed in range(3)])
    words = ["predict", str(run), str(film), "--formats", "npz_clip", "--precision", "fp32"]
    assert "focal lengths: 1 estimated by the model" in shell(*words, "--output", tmp_path / "out").out
    predictor = densevit.load(run, precision="fp32")
    maps = [frame.depth for frame in predict_video(predictor, film)]
    np.testing.assert_allclose(np.load(tmp_path / "out/film.depth.npz")["depth"], maps, rtol=1e-5)


def test_an_exported_graph_takes_the_focal_length_and_gives_depth(run: Path) -> None:
    card, options = check_options(densevit.load(run).card, OnnxExportOptions(size=(48, 64)))
    assert list(example_inputs(card, options, 1, (48, 64))) == ["image", "focal"] and list(card.outputs) == ["depth"]
    with pytest.raises(ConfigError, match="--heads: 'focal' is the name of an input of the file, too"):
        check_options(densevit.load(run).card, OnnxExportOptions(size=(48, 64), heads=("depth", "focal")))


def test_it_needs_a_decoder_of_its_own(data: Path, tmp_path: Path, shell: Shell) -> None:
    words = ["model.heads.focal.type=focal", "tasks.focal.type=focal", f"output={tmp_path / 'run'}", "steps=1"]
    assert "model.decoders: {focal: {type: pool, pool: average}}" in shell.refused("train", data / "small.yaml", *words)
    assert not (tmp_path / "run").exists()
