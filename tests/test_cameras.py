"""Models that know the lens, from training to ONNX: focal lengths, and what they do to metres."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from jaxtyping import Float
from PIL import Image
from shell import Shell
from small import add_cameras, noise, small_config
from test_examples import example
from torch import Tensor, nn
from toy_models import toy_predictor

import densevit
from densevit.builder.checkpoint import restore
from densevit.builder.plan import load_plan
from densevit.builder.training import build_trainer
from densevit.cli.main import main
from densevit.data.datasets.base import open_dataset
from densevit.data.io.exif import exif_focal
from densevit.errors import ConfigError, DataError
from densevit.inference.camera import Lens
from densevit.inference.image_input import ImageInput
from densevit.inference.predict.point_files import read_ply_points
from densevit.inference.predictor import Predictor
from densevit.model_card import HeadSpec, ModelCard
from densevit.ops.normals import normals_of_map
from densevit.preprocess_config import PreprocessConfig
from densevit.structures import Batch
from densevit.utils.process_group import ProcessGroup

KEYS = {"canonical": "model.camera=canonical", "rays": "model.conditioning={rays: {}}"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cameras")
    small_config(folder)
    add_cameras(folder / "data")
    return folder


@pytest.fixture(scope="module", params=["canonical", "rays"])
def run(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp(request.param) / "run"
    words = [KEYS[request.param], f"output={output}", "steps=8"]
    assert main(["train", str(data / "small.yaml"), *words]) == 0
    return output


@pytest.fixture(scope="module")
def plain(data: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run of a model that knows no lens."""
    output = tmp_path_factory.mktemp("plain") / "run"
    assert main(["train", str(data / "small.yaml"), f"output={output}", "steps=2"]) == 0
    return str(output)


def test_the_card_says_for_which_lenses_a_model_was_trained(run: Path) -> None:
    card = densevit.load(run).card
    widest, longest = (2 * np.degrees(np.arctan(40 / f)) for f in (50, 100))
    assert card.fov == pytest.approx((longest, widest), abs=0.01)
    assert (card.outputs["depth"].focal == 65.0) == (card.model.get("camera") == "canonical")  # median of FOCALS


def test_metres_need_a_focal_length_and_follow_it(run: Path) -> None:
    predictor = densevit.load(run, precision="fp32")
    with pytest.raises(DataError, match="metres follow from the camera's focal length, and none is known"):
        predictor(noise())
    maps = [predictor(ImageInput(noise(), camera)) for camera in (50.0, 100.0)]
    if predictor.card.model.get("camera") == "canonical":
        np.testing.assert_allclose(maps[1], 2 * maps[0], rtol=1e-5)
    else:
        assert not np.allclose(maps[0], maps[1], rtol=1e-5)


def test_a_mirrored_image_with_a_mirrored_camera_is_what_flip_averages(run: Path) -> None:
    camera, mirror = (55.0, 60.0, 25.0, 20.0), (55.0, 60.0, 63 - 25.0, 20.0)
    plain = densevit.load(run, precision="fp32", focal=camera)(noise())
    mirrored = densevit.load(run, precision="fp32", focal=mirror)(noise()[:, ::-1].copy())[:, ::-1]
    both = densevit.load(run, precision="fp32", focal=camera, flip=True)(noise())
    np.testing.assert_allclose(both, (plain + mirrored) / 2, rtol=1e-5)


def test_a_window_of_an_image_is_seen_by_its_part_of_the_camera(run: Path) -> None:
    box = (8, 40, 16, 64)
    whole = densevit.load(run, precision="fp32", focal=(55.0, 60.0, 25.0, 20.0))(noise(), box=box)
    part = densevit.load(run, precision="fp32", focal=(55.0, 60.0, 25.0 - 16, 20.0 - 8))(noise()[8:40, 16:64].copy())
    np.testing.assert_allclose(whole[8:40, 16:64], part, rtol=1e-5)
    assert np.isnan(whole[:8]).all()


def test_a_sliding_window_gives_each_window_its_part_of_the_camera(run: Path) -> None:
    predictor = densevit.load(run, precision="fp32", focal=(55.0, 60.0, 25.0, 20.0))

    resize = replace(predictor.card.resize, window=(48, 32), stride=(48, 32))
    found = predictor.with_options(card=replace(predictor.card, resize=resize))(noise())
    right = densevit.load(run, precision="fp32", focal=(55.0, 60.0, 25.0 - 32, 20.0))(noise()[:, 32:].copy())
    np.testing.assert_allclose(found[:, 32:], right, rtol=1e-5)


def test_a_resized_image_enters_the_network_with_a_resized_camera(run: Path) -> None:
    """Doubling pixels and focal length, where the network halves them again, changes nothing."""

    maps = []
    for factor in (1, 2):
        predictor = densevit.load(run, precision="fp32", focal=(55.0 * factor,) * 2)
        resize = replace(predictor.card.resize, mode="fixed", size=(48, 64), interpolation="area")
        large = noise().repeat(factor, 0).repeat(factor, 1)
        maps.append(predictor.with_options(card=replace(predictor.card, resize=resize))(large))
    np.testing.assert_allclose(maps[1].reshape(48, 2, 64, 2).mean((1, 3)), maps[0], rtol=2e-2)


class Sizes(nn.Module):
    """Answers with the distance of what it sees, by its size alone: a ramp of brightness that spans fewer pixels is
    steeper, and further away in proportion."""

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        quarter = x.shape[-1] // 4
        left, right = x[..., :quarter].mean((1, 2, 3)), x[..., -quarter:].mean((1, 2, 3))
        steepness = (right - left) / (x.shape[-1] - quarter)
        return {"depth": (100 * steepness)[:, None, None, None].expand(-1, 1, *x.shape[-2:])}


def test_a_network_that_sees_sizes_gives_a_resized_and_a_cropped_image_the_same_metres() -> None:
    head = HeadSpec(kind="metric", unit="m", focal=50.0)
    card = ModelCard(outputs={"depth": head}, multiple=1, resize=PreprocessConfig(mode="fixed", size=(48, 64)))
    predictor = Predictor(Sizes(), card, device="cpu", precision="fp32")
    ramp = np.repeat(np.linspace(0, 255, 256).round().astype(np.uint8)[None, :, None], 192, 0).repeat(3, 2)
    metres = predictor(ImageInput(ramp, 200.0))
    cropped = predictor(ImageInput(np.ascontiguousarray(ramp[24:168, 32:224]), 200.0))
    np.testing.assert_allclose(cropped, metres[24:168, 32:224], rtol=2e-3)
    for factor in (0.5, 2):
        size = round(256 * factor), round(192 * factor)
        resized = cv2.resize(ramp, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR)
        depth = predictor(ImageInput(resized, 200.0 * factor))
        np.testing.assert_allclose(depth[0, 0], metres[0, 0], rtol=2e-3)


def test_tiles_have_their_part_of_the_camera(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[int, ...], list[float]]] = []
    predictor = densevit.load(run, precision="fp32", focal=(55.0, 60.0, 70.0, 20.0), tile_size=48)
    whole = Predictor.predict_batch

    def recorded(self: Predictor, images: np.ndarray, **options: Any) -> Any:
        seen.append((images.shape[1:3], options["inputs"]["camera"][0].tolist()))
        return whole(self, images, **options)

    monkeypatch.setattr(Predictor, "predict_batch", recorded)
    predictor(noise((48, 96)))
    assert seen[0] == ((24, 48), pytest.approx([27.5, 30.0, 34.75, 9.75]))
    assert [(size, camera) for size, camera in seen[1:]] == [
        ((48, 48), pytest.approx([55, 60, 70 - x, 20])) for x in (0, 24, 48)
    ]


def test_training_teaches_a_canonical_head_depth_over_the_focal_length(data: Path) -> None:
    plan = load_plan(data / "small.yaml", ["model.camera=canonical", "model.canonical_focal=100"]).open()
    trainer = build_trainer(plan, ProcessGroup())
    k = torch.tensor([[[50.0, 0, 31], [0, 50, 23], [0, 0, 1]], [[200.0, 0, 31], [0, 200, 23], [0, 0, 1]]])
    depth, valid = torch.full((2, 1, 48, 64), 2.0), torch.ones(2, 1, 48, 64, dtype=torch.bool)
    batch = Batch(
        names=("a", "b"), indices=(0, 1), image=torch.rand(2, 3, 48, 64), depth=depth, valid=valid, intrinsics=k
    )
    canonical = torch.cat([torch.full((1, 1, 48, 64), 4.0), torch.full((1, 1, 48, 64), 1.0)])
    losses = trainer.tasks["depth"].losses(canonical, batch, 0)
    assert all(float(loss) == pytest.approx(0, abs=1e-5) for loss in losses.values())
    unknown = torch.full((2, 3, 3), float("nan"))
    nothing = trainer.tasks["depth"].losses(canonical, Batch(**{**vars(batch), "intrinsics": unknown}), 0)
    assert all(float(loss) == 0 for loss in nothing.values())


def test_data_without_cameras_is_refused_before_training(tmp_path: Path, shell: Shell) -> None:
    config = small_config(tmp_path)
    for words in KEYS.values():
        assert "has none" in (message := shell.refused("train", config, words)) or "none of 6 samples" in message
    assert not (tmp_path / "run").exists()


def test_a_canonical_focal_length_belongs_to_the_canonical_camera(data: Path) -> None:
    with pytest.raises(ConfigError, match="canonical_focal: belongs to camera 'canonical', not to 'none'"):
        load_plan(data / "small.yaml", ["model.camera=none", "model.canonical_focal=100"])


def test_a_new_run_inherits_the_camera_of_the_checkpoint_it_starts_from(run: Path, data: Path) -> None:
    plan = load_plan(data / "small.yaml", [f"model.init_from={run}"]).open()
    _, card = restore(run)
    assert plan.model.spec().get("conditioning") == card.model.get("conditioning")
    assert plan.model.camera == card.model.get("camera", "none")
    before = densevit.load(run).model.state_dict()
    for key, tensor in build_trainer(plan, ProcessGroup()).model.state_dict().items():
        assert torch.equal(tensor, before[key]), key


@pytest.mark.slow
def test_an_onnx_file_takes_the_focal_length_of_each_image(run: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    words = ["--image-size", "60,80", "--batch-size", "dynamic"]
    assert main(["export", str(run), str(tmp_path / "model.onnx"), *words]) == 0
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    assert [given.name for given in session.get_inputs()] == ["image", "focal"]
    predictor = densevit.load(run, precision="fp32")
    images, focals = np.stack([noise((60, 80), i) for i in range(2)]), np.array([55.0, 120.0], np.float32)
    (found,) = session.run(None, {"image": images, "focal": focals})
    for y, x, focal in zip(found[:, 0], images, focals.tolist(), strict=True):
        expected = predictor(ImageInput(x, focal))
        assert np.abs(y - expected).max() / expected.max() < 1e-4


def photo(path: Path, *, exif: dict[int, Any], size: tuple[int, int] = (60, 80)) -> Path:
    """A JPEG with tags of the camera."""
    made = Image.Exif()
    made.get_ifd(0x8769).update(exif)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise(size)).save(path, exif=made)
    return path


F35, MM, PITCH, UNIT, WIDTH, HEIGHT, ZOOM = 0xA405, 0x920A, 0xA20E, 0xA210, 0xA002, 0xA003, 0xA404


def test_the_focal_length_of_a_photo_comes_from_its_35_mm_equivalent_or_its_pixel_pitch(tmp_path: Path) -> None:
    # The diagonal of 35 mm film is 43.27 mm, that of 60 x 80 pixels is 100: 26 mm are 60.09 pixels.
    assert exif_focal(photo(tmp_path / "a.jpg", exif={F35: 26})) == pytest.approx(26 * 100 / 43.2666, rel=1e-4)
    # 400 pixels per cm on a sensor of which 4000 pixels became 80: 25 mm are 2.5 cm, 1000 pixels, 20 of the file's.
    pitch = {MM: 25.0, PITCH: 400.0, UNIT: 3, WIDTH: 4000, HEIGHT: 3000}
    assert exif_focal(photo(tmp_path / "b.jpg", exif=pitch)) == pytest.approx(20)
    assert exif_focal(photo(tmp_path / "c.jpg", exif={**pitch, ZOOM: 2.0})) == pytest.approx(40)
    # Pixels turned by a program that left the size in EXIF as it was.
    assert exif_focal(photo(tmp_path / "turned.jpg", exif=pitch, size=(80, 60))) == pytest.approx(20)
    assert exif_focal(photo(tmp_path / "d.jpg", exif={**pitch, F35: 26})) == pytest.approx(60.09, abs=0.01)
    assert exif_focal(photo(tmp_path / "e.jpg", exif={F35: 0, MM: 25.0})) is None  # 0: not known
    Image.fromarray(noise()).save(tmp_path / "f.png")
    assert exif_focal(tmp_path / "f.png") is None


# What is read of files does not depend on what the model makes of a lens.
of_one_kind = pytest.mark.parametrize("run", ["canonical"], indirect=True)


@of_one_kind
@pytest.mark.parametrize(
    ("exif", "fault"),
    [
        (
            {F35: 26, WIDTH: 4000, HEIGHT: 4000},
            "EXIF is of 4000 x 4000 pixels, and the file has 80 x 60: it was cropped",
        ),
        ({F35: 60000}, "EXIF gives a focal length of .* pixels, a field of view of 0.0.* degrees across 80 pixels"),
        ({MM: -3.0, PITCH: 400.0}, "EXIF says FocalLength"),
    ],
)
def test_exif_that_cannot_be_true_is_refused_before_anything_is_written(
    run: Path, tmp_path: Path, exif: dict[int, Any], fault: str, shell: Shell
) -> None:
    path = photo(tmp_path / "in/phone.jpg", exif=exif)
    with pytest.raises(DataError, match=f"phone.jpg: {fault}"):
        exif_focal(path)
    told = shell.refused("predict", run, path, "--output", tmp_path / "out")
    assert "phone.jpg: EXIF" in told and (not (tmp_path / "out").exists())


def test_normals_of_depth_take_the_focal_length_of_exif(tmp_path: Path) -> None:
    path, predictor = photo(tmp_path / "a.jpg", exif={F35: 26}), toy_predictor()
    summary = densevit.predict(predictor, path, tmp_path / "out", formats=["normals_npy"])
    assert summary.cameras == {"EXIF": 1}
    depth = np.asarray(predictor(path))
    expected = normals_of_map(depth, Lens(focal=exif_focal(path)).matrix((depth.shape[0], depth.shape[1])))
    np.testing.assert_allclose(np.load(tmp_path / "out/a.normals.npy"), expected, atol=1e-6)


def test_focal_lengths_come_from_the_command_then_exif_and_the_summary_counts_them(
    run: Path, tmp_path: Path, shell: Shell
) -> None:
    photo(tmp_path / "in/a.jpg", exif={F35: 26})
    photo(tmp_path / "in/b.jpg", exif={F35: 52}, size=(80, 60))
    words = ["predict", str(run), str(tmp_path / "in"), "--formats", "npy", "--precision", "fp32", "--output"]
    assert "focal lengths: 2 from EXIF" in shell(*words, tmp_path / "exif").out
    predictor = densevit.load(run, precision="fp32", focal=52 * 100 / 43.2666)
    np.testing.assert_allclose(np.load(tmp_path / "exif/b.npy"), predictor(tmp_path / "in/b.jpg"), rtol=1e-4)
    assert "focal lengths: 2 given" in shell(*words, tmp_path / "given", "--fov", "60").out
    predictor = predictor.with_options(camera=30 / np.tan(np.radians(30)))  # of b, 60 pixels wide
    np.testing.assert_allclose(np.load(tmp_path / "given/b.npy"), predictor(tmp_path / "in/b.jpg"), rtol=1e-4)
    predictor = predictor.with_options(camera=None, batch_size=2)  # then each photo's own, in a batch, too
    both = [tmp_path / "in/a.jpg", tmp_path / "in/b.jpg"]
    for name, depth in zip("ab", predictor(both), strict=True):
        np.testing.assert_allclose(np.load(tmp_path / f"exif/{name}.npy"), depth, rtol=1e-4)
    np.testing.assert_allclose(np.load(tmp_path / "exif/b.npy"), predictor.predict_all(both[1])["depth"], rtol=1e-4)
    zooms = [photo(tmp_path / f"{zoom}.jpg", exif={F35: zoom}) for zoom in (26, 52)]
    each = predictor(zooms)  # of one size, so in one batch but for their focal lengths
    for zoom, depth in zip((26, 52), each, strict=True):
        known = densevit.load(run, precision="fp32", focal=zoom * 100 / 43.2666)
        np.testing.assert_allclose(depth, known(zooms[0]), rtol=1e-4)
    with pytest.raises(DataError, match="metres follow from the camera's focal length, and none is known"):
        predictor(noise())  # an array has no EXIF
    photo(tmp_path / "in/c.jpg", exif={})
    said = shell.refused(*words, tmp_path / "none")
    assert "c.jpg: metres follow from" in said and "none is known of 1 of 3 images" in said
    assert not (tmp_path / "none").exists()


@of_one_kind
@pytest.mark.parametrize(
    ("name", "rows", "fault"),
    [
        ("t.json", '{"a": {"focal": 50, "width": 80, "height": 60}}', ""),
        ("t.json", '[{"image": "in/a.jpg", "fov": 60}]', ""),
        ("t.csv", "image,focal,width,height\nin/a.jpg,50,640,480\n", "a.jpg: .* 480x640, .* 60x80 .*t.csv:2"),
        ("t.csv", "image,focal\nin/a.jpg,0\n", "t.csv:2: focal is '0'; pixels above 0"),
        ("t.csv", "image,focal\nin/a.jpg,nan\n", "t.csv:2: focal is 'nan'; pixels above 0"),
        ("t.csv", "image,focal\nin/a.jpg,2\n", "a.jpg: a focal length of 2 pixels is .* 174 degrees.*t.csv:2"),
        ("t.csv", "name,focal\na,50\na,51\n", "t.csv:3: another camera of a than .*t.csv:2"),
        ("t.csv", "name,focal\na.jpg,50\n", "are of a.jpg. .* or a `name`, here a\\."),
        ("t.csv", "image,fov\nin/a.jpg,190\n", "t.csv:2: fov is '190'; degrees between 0.5 and 170"),
        ("t.csv", "image,fx,fy,cx,cy\nin/a.jpg,50,50,90,30\n", r"a.jpg: .*\(90, 30\) lies outside .* \(.*t.csv:2\)"),
        ("t.json", "[3]", "t.json: expected a list of rows"),
    ],
)
def test_a_table_is_checked_before_anything_is_written(
    run: Path, tmp_path: Path, name: str, rows: str, fault: str, shell: Shell
) -> None:
    photo(tmp_path / "in/a.jpg", exif={})
    (tmp_path / name).write_text(rows)
    words = ["--output", tmp_path / "out", "--intrinsics", tmp_path / name]
    told = shell("predict", run, tmp_path / "in", *words, code=2 if fault else 0).err
    assert re.search(fault, told) and (tmp_path / "out").exists() == (not fault)


def test_a_plain_model_is_warned_once_of_a_lens_far_from_its_training(
    data: Path, plain: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inside, beyond = str(data / "data/images/000.jpg"), str(data / "data/images")
    words = ["predict", plain]
    assert main([*words, inside, "--output", str(tmp_path / "a"), "--fov", "60"]) == 0
    assert "field of view" not in caplog.text
    assert main([*words, beyond, "--output", str(tmp_path / "b"), "--fov", "100"]) == 0
    warning = "6 of 6 images looked at have a field of view of 100 degrees. The model does not see the lens"
    assert caplog.text.count(warning) == 1 and "ignored" not in caplog.text
    caplog.clear()
    assert main([*words, inside, "--output", str(tmp_path / "c"), "--focal", "30"]) == 0
    assert "focal: ignored for depth, since this model knows no lens" in caplog.text
    assert "1 of 1 images looked at have a field of view of 106 degrees" in caplog.text
    caplog.clear()
    predictor = densevit.load(plain, precision="fp32")
    predictor(photo(tmp_path / "normal.jpg", exif={F35: 31}))  # 60 degrees across 80 of 100 pixels' diagonal
    predictor(photo(tmp_path / "lies.jpg", exif={F35: 60000}))  # of a model that needs no focal length, no fault
    assert not caplog.text
    wide = photo(tmp_path / "wide.jpg", exif={F35: 14.5})
    predictor([wide, wide])
    predictor(wide)
    assert caplog.text.count("wide.jpg: 1 of 1 images looked at have a field of view of 100 degrees") == 1


def test_an_evaluation_warns_of_a_lens_far_from_the_models_training(
    data: Path, plain: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, shell: Shell
) -> None:
    words = ["eval", "--task", "depth", plain, "--data", "folder", "--data-options", "depth_scale=1000"]
    for zoom, warned in ((1.0, False), (0.5, True)):
        root = tmp_path / f"root{zoom}"
        shutil.copytree(data / "data", root)
        add_cameras(root, zoom)
        told, text = shell(*words, "--root", root, "--output", root / "scores").out, "images looked at have a field of"
        assert (text in told) == (text in caplog.text) == warned
        assert (text in (root / "scores/report.html").read_text()) == warned


@of_one_kind
def test_the_examples_end_in_metric_clouds(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = photo(tmp_path / "phone.jpg", exif={F35: 26})
    cloud = read_ply_points(example("phone_photo").main(str(run), path, tmp_path / "cloud"))
    assert cloud.shape == (60 * 80, 3) and (cloud[:, 2] > 0).all()
    # The corner of the image lies on the ray that the focal length of EXIF says.
    assert np.abs(cloud[0, :2] / cloud[0, 2]) == pytest.approx(np.array([39.5, 29.5]) / 60.09, rel=1e-3)
    frames, lidar = tmp_path / "frames", tmp_path / "lidar"
    photo(frames / "a.jpg", exif={})
    lidar.mkdir()
    draw = np.random.default_rng(0)
    points = np.stack([draw.uniform(-1, 1, 50), draw.uniform(-0.7, 0.7, 50), np.full(50, 7.0)], 1)
    rows = "".join(f"{x} {y} {z}\n" for x, y, z in points)
    kinds = "property float x\nproperty float y\nproperty float z\nend_header\n"
    (lidar / "a.ply").write_text(f"ply\nformat ascii 1.0\nelement vertex 50\n{kinds}{rows}")
    folder = example("robot_lidar").main(str(run), frames, lidar, [60.0, 60, 39.5, 29.5], None, tmp_path / "clouds")
    assert "40 points an image" in capsys.readouterr().out  # of 50, ten share a pixel with another
    assert np.median(read_ply_points(folder / "a.ply")[:, 2]) == pytest.approx(7, rel=0.2)


@pytest.mark.parametrize("words", [(), ("--shard-size", "1"), ("--focal", "50")])
def test_pseudo_labels_take_and_keep_the_focal_length_as_predictions_do(
    run: Path, plain: str, tmp_path: Path, shell: Shell, words: tuple[str, ...]
) -> None:
    path, model = photo(tmp_path / "in/a.jpg", exif={F35: 26}), plain if "--shard-size" in words else run
    label = ("pseudo-label", model, path.parent, "--output", tmp_path / "out", "--precision", "fp32", "--no-flip")
    shell(*label, *words)
    assert "1 were already there" in shell(*label, *words, "--resume").out
    focal = 50.0 if "--focal" in words else exif_focal(path)
    student = open_dataset({"type": "pseudo_labels", "root": str(tmp_path / "out")}).read(0)
    expected = densevit.load(model, precision="fp32", focal=focal)(path)
    np.testing.assert_allclose(student.depth, expected, rtol=2e-3)
    np.testing.assert_allclose(student.intrinsics, Lens(focal=focal).matrix(expected.shape))
