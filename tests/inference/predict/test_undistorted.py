"""Predictions with the calibration of a lens: the model sees undistorted images, and point clouds are straight."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from toy_models import MeanColour, toy_predictor

import densevit
from densevit.data.recordings.distortion import Distortion
from densevit.errors import ConfigError, DataError
from densevit.inference.camera import Intrinsics
from densevit.inference.predict.cameras import plan_cameras
from densevit.inference.predict.inputs import find_items
from densevit.inference.predict.point_files import PointFiles, read_ply_points
from densevit.inference.predictor import Predictor

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
    (folder / "tall.json").write_text(json.dumps(facts | {"height": 2 * W, "width": 2 * H}))
    with pytest.raises(
        DataError, match=r"a.png: the camera is of images of 320 x 240 \(h x w\), this one is 120 x 160"
    ):
        densevit.predict(reader, folder / "in", folder / "out", formats=["npy"], intrinsics=folder / "tall.json")
    for bent, fault in (
        ("fx,fy,cx,cy,k1\na,90,90,79,59,much", "lens are numbers"),
        ("fx,fy,cx,cy,model,k1\na,90,90,79,59,omni,1", "distortion omni .*not read"),
        ("focal,k1\na,90,0.1", "fx, fy, cx, cy, which a lens's k1 needs; got focal, k1"),
        ('fx,fy,cx,cy,D\na,90,90,79,59,"[0.1, 0, 0, 0, nan]"', "'k1': 0.1"),
    ):
        (folder / "table.csv").write_text(f"name,{bent}\n")
        with pytest.raises(DataError, match=fault):
            densevit.predict(reader, folder / "in/a.png", folder / "out", intrinsics=folder / "table.csv")
    (folder / "matrix.json").write_text("[[90, 9, 79], [0, 90, 59], [0, 0, 1]]")
    with pytest.raises(DataError, match=r"matrix.json: a skew of 9 pixels is not read"):
        densevit.predict(reader, folder / "in", folder / "out", formats=["npy"], intrinsics=folder / "matrix.json")
    (folder / "table.csv").write_text("name,focal\na,50\n")
    with pytest.raises(ConfigError, match="a clip has one camera; give FX,FY,CX,CY or its calibration"):
        densevit.predict(reader, folder / "in", folder / "out", fps=1, intrinsics=folder / "table.csv")
    assert not (folder / "out").exists()
