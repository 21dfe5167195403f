"""The export of many images: faults, resuming, signals, and the calibration of a lens that makes clouds straight."""

import json
import os
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from small import contents
from torch import Tensor
from toy_models import MeanColour, fp32, toy_predictor
from toy_models import toy_predictor as predictor

import densevit
from densevit.data.io.readers import read_depth
from densevit.data.recordings.distortion import Distortion
from densevit.depth_corrections import Calibration
from densevit.errors import ConfigError, DataError, PartialError, StorageError
from densevit.inference.camera import CameraNumbers, Intrinsics, Lens, as_camera
from densevit.inference.predict.cameras import plan_cameras
from densevit.inference.predict.inputs import find_items
from densevit.inference.predict.output_plan import OutputPlan
from densevit.inference.predict.pipeline import ImageExporter
from densevit.inference.predict.point_files import PointFiles, read_ply_points
from densevit.inference.predict.summary import Summary
from densevit.inference.predictor import Predictor
from densevit.inference.writers import DEPTH_FORMATS
from densevit.inference.writers.base import Png16
from densevit.model_card import HeadSpec, ModelCard
from densevit.ops.geometry import pinhole
from densevit.ops.normals import normals_of_map
from densevit.utils.atomic_io import SUFFIX


def photos(root: Path, count: int = 10, size: tuple[int, int] = (12, 16)) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        pixels = np.random.default_rng(i).integers(0, 256, (*size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / f"{i}.png")
    return root


def plan(root: Path, output: Path, *formats: str) -> OutputPlan:
    outputs = {name: DEPTH_FORMATS.check({"type": name}, name).build() for name in formats or ("png16",)}
    items = find_items([str(root)], [made.suffix for made in outputs.values()], output).items
    return OutputPlan(items, outputs, output)


def export(predictor: Predictor, plan: OutputPlan, **options: Any) -> Summary:
    return ImageExporter(predictor, plan, **options).export()


def before_each_image(predictor: Predictor, action: Callable[[Tensor], object]) -> Predictor:
    forward = predictor.model.forward

    def model(image: Tensor) -> dict[str, Tensor]:
        action(image)
        return forward(image)

    predictor.model.forward = model
    return predictor


def test_images_of_one_size_share_a_pass_wherever_they_are_in_their_group(tmp_path: Path) -> None:
    for i in range(6):
        photos(tmp_path / f"in/{i}", 1, (12, 16) if i % 2 else (16, 12))
    predict, alone = predictor(batch_size=4), predictor()
    export(predict, plan(tmp_path / "in", tmp_path / "out"))
    export(alone, plan(tmp_path / "in", tmp_path / "alone"))
    assert [x.shape for x in predict.model.seen] == [(2, 3, 16, 12), (2, 3, 12, 16), (1, 3, 16, 12), (1, 3, 12, 16)]
    maps = {name: data for name, data in contents(tmp_path / "out").items() if name.endswith(".png")}
    assert len(maps) == 6 and maps.items() <= contents(tmp_path / "alone").items()


def test_every_image_gets_its_own_depth_at_its_own_size(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 5)
    photos(root / "sub", 3, size=(9, 7))
    summary = export(predictor(), plan(root, tmp_path / "out"), workers=3)
    assert (summary.images, summary.done, summary.failed, summary.out_of_range) == (8, 8, {}, 0)
    for path in root.rglob("*.png"):
        image = cv2.imread(str(path))
        depth = read_depth(tmp_path / "out" / path.relative_to(root))
        np.testing.assert_allclose(depth, 1 + image.mean(-1) / 255, atol=0.5 / 1000 + 1e-6)


def test_one_bad_image_costs_one_line_and_mended_it_is_all_that_resuming_makes(tmp_path: Path) -> None:
    root = photos(tmp_path / "in")
    whole = (root / "4.png").read_bytes()
    (root / "4.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PartialError, match="1 of 10 images failed") as caught:
        export(predictor(batch_size=3), plan(root, tmp_path / "out"))
    assert caught.value.exit_code == 3
    done = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert done == {f"{i}.png" for i in range(10) if i != 4}
    failed = json.loads((tmp_path / "out" / "failed.json").read_text())["failed"]
    assert [entry["image"] for entry in failed] == [str(root / "4.png")] and failed[0]["reason"]
    lines = str(caught.value.summary).splitlines()
    assert len(lines) == 2 and "1 failed" in lines[0] and "4.png" in lines[1]
    (root / "4.png").write_bytes(whole)
    resuming = predictor()
    summary = export(resuming, plan(root, tmp_path / "out"), existing="resume")
    assert (summary.done, summary.already, len(resuming.model.seen)) == (1, 9, 1)
    export(predictor(), plan(root, tmp_path / "fresh"))
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")  # failed.json is gone, too


@pytest.mark.parametrize("batch_size", [1, 4])
def test_resuming_computes_the_batches_of_an_uninterrupted_run_and_leaves_its_bytes(
    tmp_path: Path, batch_size: int
) -> None:
    root = photos(tmp_path / "in")
    first = predictor(batch_size=batch_size)
    export(first, plan(root, tmp_path / "out", "png16", "npy"))
    before = contents(tmp_path / "out")
    untouched = [tmp_path / "out" / name for name in ("0.png", "5.npy", "7.png")]
    written = [path.stat().st_mtime_ns for path in untouched]
    for name in ("5.png", "6.npy"):
        (tmp_path / "out" / name).unlink()
    second = predictor(batch_size=batch_size)
    summary = export(second, plan(root, tmp_path / "out", "png16", "npy"), existing="resume")
    assert contents(tmp_path / "out") == before
    assert [path.stat().st_mtime_ns for path in untouched] == written
    assert (summary.done, summary.already) == (2, 8)
    passes = 2 if batch_size == 1 else 1  # 5 and 6 share a group of 4
    assert [x.shape for x in second.model.seen] == [(batch_size, 3, 12, 16)] * passes


def test_what_is_there_is_refused_then_overwritten_on_request(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "1.png").write_bytes(b"precious")
    for existing, told in (("refuse", ". --resume .* --overwrite"), ("resume", ", and no export.json")):
        with pytest.raises(ConfigError, match=rf"1 file \(.*1.png\) already there{told}"):
            export(predictor(), plan(root, tmp_path / "out"), existing=existing)
        assert contents(tmp_path / "out") == {"1.png": b"precious"}
    export(predictor(), plan(root, tmp_path / "out"), existing="overwrite")
    assert read_depth(tmp_path / "out" / "1.png").shape == (12, 16)


def test_what_a_killed_run_left_half_written_is_swept_away(tmp_path: Path) -> None:
    root = photos(tmp_path / "in" / "sub", 1).parent
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = tmp_path / "out" / "sub" / f".0.png.{dead.pid}.abcd1234{SUFFIX}"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    photos(root, 1)  # so that the structure below `sub` is kept
    export(predictor(), plan(root, tmp_path / "out"), existing="resume")
    assert set(contents(tmp_path / "out")) == {"0.png", "sub/0.png", "export.json", "outputs.jsonl"}


def test_resuming_with_other_settings_is_refused(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 2)
    export(predictor(), plan(root, tmp_path / "out"))
    other = predictor()
    other.model.nearest += 1
    with pytest.raises(ConfigError, match="cannot resume with other settings .weights was"):
        export(other, plan(root, tmp_path / "out"), existing="resume")
    flipped = predictor().with_options(flip=True)
    with pytest.raises(ConfigError, match="flip was False, is True"):
        export(flipped, plan(root, tmp_path / "out"), existing="resume")
    card = predictor().card  # of the same weights, calibrated or with another range
    for change in ({"calibration": Calibration(form="scale", a=2.0)}, {"range": (1e-3, 80.0)}):
        outputs = {"depth": replace(card.outputs["depth"], **change)}
        with pytest.raises(ConfigError, match="heads was"):
            other = predictor().with_options(card=replace(card, outputs=outputs))
            export(other, plan(root, tmp_path / "out"), existing="resume")
    for damaged in ("[]", "{", "3"):
        (tmp_path / "out" / "export.json").write_text(damaged)
        with pytest.raises(ConfigError, match="export.json: damaged"):
            export(predictor(), plan(root, tmp_path / "out"), existing="resume")


def test_an_output_never_replaces_an_input(tmp_path: Path) -> None:
    root = photos(tmp_path / "in" / "sub", 1)
    made = plan(root, tmp_path / "out")
    onto = OutputPlan(made.items, made.writers, root)
    with pytest.raises(ConfigError, match="would replace 1 input "):
        export(predictor(), onto, existing="overwrite")


def test_a_file_or_a_read_only_folder_as_output_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = photos(tmp_path / "in", 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="is a file, not a folder"):
        plan(root, tmp_path / "file" / "out").check()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StorageError, match="is read-only"):
        plan(root, tmp_path / "out").check()


def test_values_out_of_range_and_pixels_without_a_value_are_counted(tmp_path: Path) -> None:
    made = plan(photos(tmp_path / "in", 2), tmp_path / "out")
    far = predictor()
    far.model.nearest += 70  # all 2 x 12 x 16 pixels lie beyond 65.5 m
    summary = export(far, made)
    assert (summary.out_of_range, summary.invalid) == (2 * 12 * 16, 0)
    assert "384 values beyond 16 bits became 0" in str(summary)
    near = predictor()
    near.model.nearest -= 10
    assert export(near, made, existing="overwrite").invalid == 2 * 12 * 16


def test_pixels_without_a_value_count_once_whatever_the_number_of_heads(tmp_path: Path) -> None:
    names = ("depth", "depth/uncertainty")
    card = ModelCard(outputs={names[0]: HeadSpec(kind="metric"), names[1]: HeadSpec(kind="uncertainty")}, multiple=1)
    upper = fp32((MeanColour(*names), card), window=lambda h, w: (0, h // 2, 0, w))
    assert export(upper, plan(photos(tmp_path / "in", 2), tmp_path / "out", "npy", "confidence")).invalid == 2 * 6 * 16


def test_a_full_disk_ends_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(photos(tmp_path / "in"), tmp_path / "out")

    def full(*_: object) -> int:
        raise StorageError("no room")

    monkeypatch.setattr(Png16, "write", full)
    with pytest.raises(StorageError, match="no room"):
        export(predictor(), made)


def test_an_image_that_does_not_fit_into_memory_fails_alone(tmp_path: Path) -> None:
    made, left = plan(photos(tmp_path / "in", 4), tmp_path / "out"), [3]

    def tight(image: Tensor) -> None:
        if len(image) > 1 or left[0] == 0:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        left[0] -= 1

    with pytest.raises(PartialError) as caught:
        export(before_each_image(predictor(batch_size=4), tight), made)
    assert caught.value.summary.done == 3 and "does not fit into memory" in str(caught.value.summary)


def test_decoding_the_model_and_encoding_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, write = plan(photos(tmp_path / "in"), tmp_path / "out"), Png16.write
    predicted, encoded = [threading.Event() for _ in range(10)], count()
    seen = iter(predicted)

    def encode(*given: object) -> int:
        following = next(encoded) + 1
        assert following == 10 or predicted[following].wait(60), "the next image waits for this one's file"
        return write(*given)

    monkeypatch.setattr(Png16, "write", encode)
    assert export(before_each_image(predictor(), lambda image: next(seen).set()), made, workers=2).done == 10


@pytest.mark.parametrize("camera", [20.0, (20.0, 35.0), (20.0, 35.0, 6.0, 5.0), Lens(fov=60)])
def test_formats_take_the_camera_of_the_predictor(tmp_path: Path, camera: CameraNumbers | Lens) -> None:
    """As metres do, also where fx and fy differ."""
    (tmp_path / "in").mkdir()
    slope = np.add.outer(4 * np.arange(12), 9 * np.arange(16)).astype(np.uint8)
    Image.fromarray(np.stack([slope] * 3, -1)).save(tmp_path / "in/0.png")
    made = predictor(camera=camera)
    densevit.predict(made, tmp_path / "in", tmp_path / "out", formats=["normals_npy"])
    numbers = made.cameras.of_size((12, 16))
    assert numbers is not None
    matrix = pinhole(*as_camera(numbers, (12, 16)).values[0].tolist())
    expected = normals_of_map(made(tmp_path / "in/0.png"), matrix)
    assert expected.any()
    np.testing.assert_allclose(np.load(tmp_path / "out/0.normals.npy"), expected, atol=1e-5)


H, W, FOCAL = 120, 160, 100.0
LENS = Distortion("equidistant", (0.05, -0.02), fisheye=True)


@pytest.fixture(scope="module")
def reader() -> Predictor:
    """Depth is what the image shows of it: 4 m at white."""
    return toy_predictor(MeanColour(nearest=0.0, gain=4.0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A wall, z = 2 + 0.3 x, whose depth is its grey, as a fisheye shows it, and the calibration at twice the size."""
    u, v = np.meshgrid(np.arange(W), np.arange(H))
    seen = np.stack([u - (W - 1) / 2, v - (H - 1) / 2], -1).reshape(-1, 2) / FOCAL
    depth = (2 / (1 - 0.3 * LENS.undistort(seen)[:, 0])).reshape(H, W)
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        cv2.imwrite(str(tmp_path / f"in/{name}.png"), np.repeat((depth / 4 * 255)[..., None], 3, 2).round())
    facts = {"K": [2 * FOCAL, 0, W - 0.5, 0, 2 * FOCAL, H - 0.5, 0, 0, 1], "D": [0.05, -0.02, 0, 0]}
    facts |= {"distortion_model": "equidistant", "width": 2 * W, "height": 2 * H}
    (tmp_path / "camera.json").write_text(json.dumps(facts))
    (tmp_path / "camera.yaml").write_text(json.dumps(facts))
    return tmp_path


def test_a_wall_is_straight_in_clouds_of_a_fisheye(
    reader: Predictor, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"{name},{FOCAL},{FOCAL},79.5,59.5,equidistant,0.05,-0.02\n" for name in "ab")
    (folder / "table.csv").write_text(f"name,fx,fy,cx,cy,camera_model,k1,k2\n{rows}")
    for camera in ("camera.json", "camera.yaml", "table.csv"):
        options = {"formats": ["ply", "npy"], "intrinsics": str(folder / camera), "overwrite": True}
        assert densevit.predict(reader, folder / "in", folder / "out", **options).done == 2
        points = read_ply_points(folder / "out/a.ply")
        assert abs(points @ [0.3, 0, -1] + 2).max() < 0.02  # a grey is 0.016 m
    assert "Images are undistorted (equidistant (k1 0.05, k2 -0.02)), and so are the maps. Their camera" in caplog.text
    densevit.predict(reader, folder / "in", folder / "raw", formats=["ply"], intrinsics=[FOCAL, FOCAL, 79.5, 59.5])
    assert abs(read_ply_points(folder / "raw/a.ply") @ [0.3, 0, -1] + 2).max() > 0.04
    densevit.predict(reader, folder / "in", folder / "clips", formats=["npy"], fps=1, intrinsics=folder / "camera.yaml")
    np.testing.assert_array_equal(np.load(folder / "clips/in/a.npy"), np.load(folder / "out/a.npy"))


def test_measured_points_move_with_the_image(folder: Path) -> None:
    (folder / "points.csv").write_text("u,v,depth\n79.5,59.5,2\n120,80,2.3\n0,0,2\n")
    item = plan_cameras(find_items([str(folder / "in/a.png")], [".npy"], folder / "out").items, folder / "camera.yaml")[
        0
    ]
    assert isinstance(item.intrinsics, Intrinsics)
    points = PointFiles(folder / "points.csv").read(item, (H, W), single=True)
    assert points.depth.tolist() == [2, 2.3]  # the corner is not in the undistorted image
    view = item.view((H, W))
    assert view is not None
    for i, (u, v) in enumerate([(79.5, 59.5), (120, 80)]):
        for places, at in zip(view.places, (u, v), strict=True):
            row, column = round(points.v[i]), round(points.u[i])
            assert places[row, column] == pytest.approx(at, abs=1.5)


def test_calibrations_that_do_not_fit_are_refused_before_anything_is_written(reader: Predictor, folder: Path) -> None:
    facts = json.loads((folder / "camera.json").read_text())
    shape = r"a.png: the camera is of images of 320 x 240 \(h x w\), this one is 120 x 160"
    for name, text, fault in (
        ("tall.json", json.dumps(facts | {"height": 2 * W, "width": 2 * H}), shape),
        ("t.csv", "name,fx,fy,cx,cy,k1\na,90,90,79,59,much\n", "lens are numbers"),
        ("t.csv", "name,fx,fy,cx,cy,model,k1\na,90,90,79,59,omni,1\n", "distortion omni .*not read"),
        ("t.csv", "name,focal,k1\na,90,0.1\n", "fx, fy, cx, cy, which a lens's k1 needs; got focal, k1"),
        ("t.csv", 'name,fx,fy,cx,cy,D\na,90,90,79,59,"[0.1, 0, 0, 0, nan]"\n', "'k1': 0.1"),
        ("matrix.json", "[[90, 9, 79], [0, 90, 59], [0, 0, 1]]", "matrix.json: a skew of 9 pixels is not read"),
    ):
        (folder / name).write_text(text)
        with pytest.raises(DataError, match=fault):
            densevit.predict(reader, folder / "in/a.png", folder / "out", intrinsics=folder / name)
    (folder / "table.csv").write_text("name,focal\na,50\n")
    with pytest.raises(ConfigError, match="a clip has one camera; give FX,FY,CX,CY or its calibration"):
        densevit.predict(reader, folder / "in", folder / "out", fps=1, intrinsics=folder / "table.csv")
    assert not (folder / "out").exists()
