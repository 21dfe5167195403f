"""Learning from measured points and from clips: an image model gets blocks and stays what it was; commands use them."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from shell import Shell
from small import small_config

import densevit
from densevit.builder.checkpoint import restore
from densevit.cli.main import main
from densevit.config import parser
from densevit.depth_corrections import Calibration
from densevit.errors import ConfigError, DataError
from densevit.inference.image_input import ImageInput, points_are_input
from densevit.inference.predictor import Predictor
from densevit.inference.tiling import Tiling
from densevit.ops.calibration import calibrate
from densevit.ops.points import MeasuredPoints

DPT = {"type": "dpt", "channels": 8}
DRAW = {"type": "sparse_depth", "count": [20, 400]}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_config(tmp_path_factory.mktemp("points"))


def run(config: Path, name: str, *, steps: int = 2, **more: Any) -> Path:
    output = config.parent / name
    densevit.train(config, output=str(output), steps=steps, validate_every=steps, **{"model.decoder": DPT, **more})
    return output


def with_points(config: Path, plain: Path, **more: Any) -> dict[str, Any]:
    transforms = parser.read(config)[0].data.transforms
    return {
        "model.init_from": str(plain),
        "model.conditioning": {"points": {"hidden": 8}},
        "model.trainable": ["conditioning.points"],
        "data.transforms": [*transforms, DRAW],
        **more,
    }


@pytest.fixture(scope="module")
def plain(config: Path) -> Path:
    return run(config, "plain")


@pytest.fixture(scope="module")
def model(config: Path, plain: Path) -> Path:
    return run(config, "with_points", steps=40, **with_points(config, plain, **{"optim.lr": 1e-2}))


@pytest.fixture(scope="module")
def predictor(model: Path) -> Predictor:
    return densevit.load(model, device="cpu", precision="fp32")


def photo(config: Path) -> tuple[np.ndarray, np.ndarray]:
    """An image and its depth in metres."""
    image = np.asarray(Image.open(config.parent / "data/images/000.jpg"))
    return image, np.asarray(Image.open(config.parent / "data/depths/000.png")).astype(np.float32) / 1000


def sparse(depth: np.ndarray, every: int = 5) -> np.ndarray:
    points = np.zeros_like(depth)
    points[2::every, 1::every] = depth[2::every, 1::every]
    return points


def test_the_blocks_learn_and_images_without_points_are_predicted_as_before(
    config: Path, plain: Path, model: Path, predictor: Predictor
) -> None:
    _, card = restore(model)
    assert card.conditioning == {"points": {"hidden": 8}}
    image, depth = photo(config)
    before = densevit.load(plain, device="cpu", precision="fp32")(image)
    np.testing.assert_array_equal(predictor(image), before)
    given = predictor(image, points=sparse(depth))
    assert np.abs(given / depth - 1).mean() < 0.5 * np.abs(before / depth - 1).mean()


def test_validation_leaves_out_the_points_that_it_gives_as_an_evaluation_does(
    uncorrected: None, config: Path, model: Path
) -> None:
    val = parser.read(config)[0].data.val
    scores = densevit.evaluate(model, val, points=500, precision="fp32").scores
    validated = densevit.Run(model).scores
    assert validated == {name: pytest.approx(scores[name], rel=1e-4) for name in validated}


def test_points_are_taken_in_three_forms_and_follow_mirror_image_window_and_scale(
    uncorrected: None, config: Path, predictor: Predictor
) -> None:
    image, depth = photo(config)
    points = sparse(depth)
    v, u = np.nonzero(points)
    expected = predictor(image, points=points)
    given = MeasuredPoints(u * 1.0, v * 1.0, points[v, u].astype(np.float64))
    np.testing.assert_array_equal(predictor(image, points=given), expected)
    np.testing.assert_array_equal(predictor(image, points=np.stack([u, v, points[v, u]], 1)), expected)
    mirrored = predictor(np.ascontiguousarray(image[:, ::-1]), points=points[:, ::-1])[:, ::-1]
    flipped = densevit.load(config.parent / "with_points", device="cpu", precision="fp32", flip=True)
    np.testing.assert_allclose(flipped(image, points=points), (expected + mirrored) / 2, rtol=1e-4)
    part = predictor(np.ascontiguousarray(image[6:54, 8:72]), points=points[6:54, 8:72])
    np.testing.assert_array_equal(predictor(image, box=(6, 54, 8, 72), points=points)[6:54, 8:72], part)
    larger = np.asarray(Image.fromarray(image).resize((160, 120)))
    places = np.stack([2 * u + 0.5, 2 * v + 0.5, points[v, u]], 1)
    error = np.abs(predictor(larger, points=places) / np.kron(depth, np.ones((2, 2))) - 1).mean()
    assert error < 0.5 * np.abs(predictor(image) / depth - 1).mean()


def test_points_that_cannot_be_are_refused_and_tiles_too(config: Path, predictor: Predictor) -> None:
    image, depth = photo(config)
    for points, why in (
        (np.zeros((60, 80)), "there are no points"),
        (np.full((1, 3), np.nan), "u nan, v nan"),
        (np.array([[80.0, 3.0, 2.0]]), r"u 80, v 3, depth 2; a point lies in the image of 60x80"),
        (np.zeros((4, 5)), r"an array of \(4, 5\); points are n 3"),
    ):
        with pytest.raises(DataError, match=why):
            predictor(image, points=points)
    with pytest.raises(DataError, match="points: of one image"):
        predictor([image, image], points=sparse(depth))  # type: ignore[call-overload]
    tiled = densevit.load(config.parent / "with_points", device="cpu", tile_size=32)
    with pytest.raises(ConfigError, match="leave tiling out"):
        tiled(image, points=sparse(depth))


@pytest.mark.slow
def test_commands_use_the_points_and_say_so(
    config: Path, model: Path, plain: Path, tmp_path: Path, shell: Shell
) -> None:
    image, depth = photo(config)
    lidar = np.round(sparse(depth) * 1000).astype(np.uint16)
    Image.fromarray(lidar).save(tmp_path / "000.png")
    words = [str(config.parent / "data/images/000.jpg"), "--formats", "npy", "--output", str(tmp_path / "out")]
    more = ["--points", str(tmp_path / "000.png"), "--points-scale", "1000", "--precision", "fp32"]
    assert f"{(lidar > 0).sum()} points an image, an input of the model" in shell("predict", model, *words, *more).out
    expected = densevit.load(model, device="cpu", precision="fp32")(image, points=lidar / 1000)
    np.testing.assert_allclose(np.load(tmp_path / "out/000.npy"), expected, rtol=1e-5)
    data = {"type": "folder", "root": str(config.parent / "data"), "depth_scale": 1000}
    scores = {
        (name, points): densevit.evaluate(path, data, points=points).scores["abs_rel"]
        for name, path in (("points", model), ("plain", plain))
        for points in (None, 200)
    }
    assert scores["points", 200] < 0.5 * scores["points", None] == 0.5 * scores["plain", None]
    assert scores["plain", 200] < 0.5 * scores["plain", None]
    assert densevit.evaluate(model, data, points=200).scores["abs_rel"] == scores["points", 200]
    assert "conditioning:     points (hidden 8" in shell("inspect", model).out
    exported = str(tmp_path / "a.onnx")
    assert main(["export", str(model), exported, "--image-size", "60,80"]) == 0
    words[-1] = str(tmp_path / "of-onnx")
    told = shell("predict", exported, *words, *more).out
    assert f"{(lidar > 0).sum()} points an image, an input of the model" in told
    np.testing.assert_allclose(np.load(tmp_path / "of-onnx/000.npy"), expected, rtol=1e-4)


@pytest.mark.slow
def test_a_run_resumes_bit_for_bit_and_hands_its_blocks_on(
    config: Path, plain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = with_points(config, plain)
    folder = run(config, "whole", steps=4, save_every=2, keep_last=0, **given) / "checkpoints"
    whole, _ = restore(folder / "step-00000004")
    again_at = config.parent / "again"
    densevit.train(config.parent / "whole/config.yaml", resume=folder / "step-00000002", output=str(again_at))
    again, _ = restore(again_at / "checkpoints/step-00000004")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    capsys.readouterr()
    run(config, "more", **{**given, "model.init_from": str(config.parent / "whole"), "model.conditioning": {}})
    said = capsys.readouterr().err
    assert "conditioning.points (24 tensors" in said and "nothing is new" in said


def test_canonical_metres_are_divided_for_the_blocks_as_ground_truth_is(predictor: Predictor) -> None:
    """A head for one focal length gets points at that focal length's depth: twice the lens, half the number."""
    image = np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)
    points = np.zeros((48, 64), np.float32)
    points[::6, ::6] = 2.0
    outputs = {"depth": replace(predictor.card.outputs["depth"], focal=50.0)}
    model = deepcopy(predictor.model)
    model.get_submodule("conditioning.points").focal = 50.0
    canonical = Predictor(model, replace(predictor.card, outputs=outputs), device="cpu", precision="fp32")
    depth = canonical(ImageInput(image, camera=100.0, points=2 * points))
    np.testing.assert_allclose(depth, 2 * predictor(image, points=points), rtol=1e-5)


@pytest.mark.parametrize(
    "calibration",
    [
        Calibration(form="scale", a=1.5),
        Calibration(form="affine", a=1.2, b=0.3),
        Calibration(form="log_affine", a=0.9, b=0.4),
    ],
    ids=["scale", "affine", "log_affine"],
)
@pytest.mark.parametrize("options", [{}, {"flip": True}, {"box": (6, 54, 8, 72)}], ids=["plain", "flip", "box"])
def test_points_reach_a_calibrated_model_in_its_own_metres(
    uncorrected: None, config: Path, predictor: Predictor, calibration: Calibration, options: dict[str, Any]
) -> None:
    """What the network sees is what the calibration makes the points of, so that nothing is calibrated twice."""
    image, depth = photo(config)
    box = options.get("box")
    spec = replace(predictor.card.outputs["depth"], calibration=calibration)
    plain = predictor.with_options(flip=options.get("flip", False))
    calibrated = plain.with_options(card=replace(predictor.card, outputs={"depth": spec}))
    before, points = sparse(depth), sparse(depth)
    points[points > 0] = calibrate(torch.from_numpy(before[before > 0]), calibration).numpy()
    expected = calibrate(torch.from_numpy(np.array(plain(image, points=before, box=box))), calibration)
    np.testing.assert_allclose(calibrated(image, points=points, box=box), expected, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"flip": True}, {"tiling": 32}], ids=["plain", "flip", "tiles"])
def test_a_fit_to_points_does_not_depend_on_a_calibration(config: Path, plain: Path, options: dict[str, Any]) -> None:
    image, depth = photo(config)
    predictor = densevit.load(plain, device="cpu", precision="fp32").with_options(
        **{name: Tiling(value) if name == "tiling" else value for name, value in options.items()}
    )
    spec = replace(predictor.card.outputs["depth"], calibration=Calibration(form="scale", a=1.5))
    calibrated = predictor.with_options(card=replace(predictor.card, outputs={"depth": spec}))
    expected = predictor(image, points=sparse(depth))
    np.testing.assert_allclose(calibrated(image, points=sparse(depth)), expected, rtol=2e-3)


def test_a_head_with_a_decoder_of_its_own_takes_no_points(predictor: Predictor) -> None:
    own = replace(predictor.card, model={**predictor.card.model, "decoders": {"depth": DPT}})
    assert points_are_input(predictor.model, predictor.card, "depth")
    assert not points_are_input(predictor.model, own, "depth")


def test_what_does_not_go_together_is_refused_before_the_first_step(config: Path, plain: Path) -> None:
    given = with_points(config, plain)
    for changes, why in (
        (
            {"data.transforms": [{"type": "hflip"}]},
            r"conditioning\.points: learns from points .* add \{type: sparse_depth\}",
        ),
        ({"model.decoder": {"type": "linear"}}, r"model\.conditioning\.points: model\.decoder has no fusions"),
    ):
        with pytest.raises(ConfigError, match=why):
            run(config, "refused", **{**given, **changes})
    assert not (config.parent / "refused").exists()


LOSSES = [{"type": "silog"}, {"type": "temporal_gradient", "space": "log_depth"}]


def clips(plain: Path, **more: Any) -> dict[str, Any]:
    return {
        "model.init_from": str(plain), "model.conditioning": {"motion": {}},
        "model.trainable": ["conditioning.motion"], "data.clip": 2, "tasks.depth.losses": LOSSES, **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def video_model(config: Path, plain: Path) -> Path:
    return run(config, "video", **clips(plain))


def test_motion_blocks_learn_and_single_images_are_predicted_as_before(plain: Path, video_model: Path) -> None:
    image, _ = restore(plain)
    video, card = restore(video_model)
    assert card.conditioning == {"motion": {"heads": 8, "frames": 2}} and card.clip_frames == 2
    frames = torch.rand(4, 3, 48, 64)
    with torch.inference_mode():
        assert torch.equal(video.eval()(frames)["depth"], image.eval()(frames)["depth"])
        assert not torch.equal(
            video(frames, {"clips": torch.tensor([[0, 1], [2, 3]])})["depth"], image(frames)["depth"]
        )


def test_inspect_names_the_motion_blocks(video_model: Path, shell: Shell) -> None:
    assert "conditioning:     motion (heads 8, frames 2" in shell("inspect", video_model).out


@pytest.mark.slow
def test_motion_blocks_start_from_those_of_a_checkpoint(
    config: Path, video_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = run(config, "longer", **{**clips(video_model), "model.conditioning": {}, "data.clip": 4})
    said = capsys.readouterr().err
    assert "conditioning.motion (88 tensors" in said and "nothing is new" in said
    assert restore(more)[1].clip_frames == 4


def test_clips_that_do_not_fit_are_refused_before_the_first_step(config: Path, plain: Path) -> None:
    for changes, why in (
        ({"data.clip": 1}, r"model\.conditioning\.motion: learns from clips; set data\.clip"),
        ({"data.clip": 3}, r"data\.clip: 4 images a step hold no whole clips of 3\."),
    ):
        with pytest.raises(ConfigError, match=why):
            run(config, "refused", **{**clips(plain), **changes})
    with pytest.raises(DataError, match=r"data\.clip: a clip of 4 frames, 3 apart, spans 10 frames, and the longest"):
        run(config, "refused", **clips(plain, **{"data.clip": 4, "data.clip_stride": 3}))
    train = {**parser.read(config)[0].data.train, "val_fraction": 0.5}
    with pytest.raises(DataError, match=r"data\.clip: clips need frames that follow one another.* Folder do not"):
        run(config, "refused", **clips(plain, **{"data.train": train}))
    assert not (config.parent / "refused").exists()
