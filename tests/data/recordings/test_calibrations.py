"""Cameras as calibrators write them, their distortion, and recordings that are undistorted by them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import yaml

from densevit.data.datasets.depth.tum import Tum
from densevit.data.datasets.folder import Folder
from densevit.data.datasets.recording import Recording, camera_file
from densevit.data.recordings.cameras import COLMAP, camera_of_json, read_camera, read_colmap, read_colmap_cameras
from densevit.data.recordings.distortion import CameraModel, Distortion
from densevit.data.validation import SplitToValidate, validate
from densevit.errors import DataError
from densevit.inference.predict.cameras import is_one_camera
from densevit.ops.geometry import backproject, pinhole

OPENCV = """%YAML:1.0
---
image_width: 64
image_height: 48
camera_matrix: !!opencv-matrix
   rows: 3
   cols: 3
   dt: d
   data: [ 5.0e+01, 0., 3.0e+01, 0., 5.1e+01, 2.5e+01, 0., 0., 1. ]
distortion_coefficients: !!opencv-matrix
   rows: 5
   cols: 1
   dt: d
   data: [ -2.0e-01, 3.0e-02, 1.0e-03, -2.0e-03, 4.0e-03 ]
"""
ROS = """image_width: 64
image_height: 48
camera_name: narrow
camera_matrix: {rows: 3, cols: 3, data: [50.0, 0.0, 30.0, 0.0, 51.0, 25.0, 0.0, 0.0, 1.0]}
distortion_model: plumb_bob
distortion_coefficients: {rows: 1, cols: 5, data: [-0.2, 0.03, 0.001, -0.002, 0.004]}
projection_matrix: {rows: 3, cols: 4, data: [40.0, 0.0, 30.0, 0.0, 0.0, 41.0, 25.0, 0.0, 0.0, 0.0, 1.0, 0.0]}
"""
CAMERA_INFO = """header: {frame_id: camera}
height: 48
width: 64
distortion_model: plumb_bob
d: [-0.2, 0.03, 0.001, -0.002, 0.004]
k: [50.0, 0.0, 30.0, 0.0, 51.0, 25.0, 0.0, 0.0, 1.0]
p: [40.0, 0.0, 30.0, 0.0, 0.0, 41.0, 25.0, 0.0, 0.0, 0.0, 1.0, 0.0]
---
"""
KALIBR = """cam0:
  camera_model: pinhole
  intrinsics: [50.0, 51.0, 30.0, 25.0]
  distortion_model: equidistant
  distortion_coeffs: [0.1, -0.02, 0.003, -0.001]
  resolution: [64, 48]
  rostopic: /cam0/image_raw
"""
BENT = Distortion("plumb_bob", (-0.2, 0.03, 0.004), (0.001, -0.002))
EXPECTED = CameraModel(50.0, 51.0, 30.0, 25.0, (48, 64), BENT)


@pytest.mark.parametrize("text", [OPENCV, ROS, CAMERA_INFO, KALIBR], ids=["opencv", "ros", "camera_info", "kalibr"])
def test_calibrations_are_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text.replace("\n", "\r\n"))
    camera = read_camera(tmp_path / "c.yaml")
    assert isinstance(camera, CameraModel) and camera.distortion is not None
    assert (camera.fx, camera.fy, camera.cx, camera.cy, camera.size) == (50.0, 51.0, 30.0, 25.0, (48, 64))
    if "equidistant" in text:
        assert camera.distortion == Distortion("equidistant", (0.1, -0.02, 0.003, -0.001), fisheye=True)
    else:
        assert (camera.distortion.radial, camera.distortion.tangential) == (BENT.radial, BENT.tangential)


def test_a_window_of_ros_has_its_part_of_the_camera() -> None:
    facts = yaml.safe_load(CAMERA_INFO.rstrip("-\n"))
    for window, size in (({}, (0, 0)), ({"x_offset": 16, "y_offset": 12}, (24, 32))):  # 0: no window
        window = {"x_offset": 0, "y_offset": 0, "do_rectify": False, **window}
        found = camera_of_json(facts | {"roi": window | {"height": size[0], "width": size[1]}}, "c.yaml")
        cx, cy = 30.0 - window["x_offset"], 25.0 - window["y_offset"]
        assert found == replace(EXPECTED, cx=cx, cy=cy, size=size if size[0] else (48, 64))


@pytest.mark.parametrize(
    ("facts", "lens"),
    [
        ({"D": [0, 0, 0, 0, 0], "distortion_model": "plumb_bob", "k1": 0, "p1": None}, None),
        ({"k1": 0.1, "k2": 0, "p2": 1e-3}, Distortion("radtan", (0.1,), (0.0, 1e-3))),
        ({"k1": 0.1, "k4": 0.2, "camera_model": "OPENCV_FISHEYE"},
         Distortion("OPENCV_FISHEYE", (0.1, 0.0, 0.0, 0.2), fisheye=True)),
        ({"fisheye_model": 1, "distortion_coefficients": [0.1, 0, 0, 0.2]},  # OpenCV's calibration sample
         Distortion("fisheye", (0.1, 0.0, 0.0, 0.2), fisheye=True)),
        ({"D": [0, 0, 0, 0], "distortion_model": "equidistant"}, Distortion("equidistant", (0.0,), fisheye=True)),
        ({"is_fisheye": True, "k1": 0.1, "k2": -0.02}, Distortion("fisheye", (0.1, -0.02), fisheye=True)),
        ({"D": [1, 2, 3, 4, 5, 6, 7, 8], "distortion_model": "rational_polynomial"},
         Distortion("rational_polynomial", (1, 2, 5, 6, 7, 8), (3, 4))),
        ({"dist": [[0.1, 0, 0, 1e-3]]}, Distortion("radtan", (0.1,), (0.0, 1e-3))),
        ({"Dist_Coef": [0.1], "distortion_model": "radial-tangential"}, Distortion("radial-tangential", (0.1,))),
        ({"distortion_params": [0.1, 0, 0, 0, 0, 1e-3]}, Distortion("radtan", (0.1,), (0.0, 1e-3))),
        ({"coeffs": [0.1, 0, 0, 0, 0], "model": "distortion.inverse_brown_conrady"}, "inverse_brown_conrady"),
        ({"coeffs": [0.1, 0, 0, 1e-3, 0], "model": "distortion.modified_brown_conrady"},
         Distortion("distortion.modified_brown_conrady", (0.1,), (0.0, 1e-3))),
        ({"distortion_coefficients": {"data": [0] * 8 + [0.1]}}, "coefficient 9"),
        ({"k1": 0.1, "k4": 0.2, "camera_model": "OPENCV"}, "OPENCV .*'k4'.* not read. It may be plumb_bob"),
        ({"k1": 0.1, "p1": 0.2, "distortion_model": "equidistant"}, "'p1'"),
        ({"D": [float("nan")] * 4}, "nan"),
        ({"camera_model": "EQUIRECTANGULAR"}, "EQUIRECTANGULAR"),
    ],
)  # fmt: skip
def test_coefficients_are_read_by_their_model_or_refused(facts: dict[str, Any], lens: Any) -> None:
    camera = {"fl_x": 30, "fl_y": 31, "cx": 20.5, "cy": 15.5, "w": 40, "h": 30, **facts}  # as nerfstudio writes it
    if isinstance(lens, str):
        with pytest.raises(DataError, match=f"c.json: the camera has distortion .*{lens}"):
            camera_of_json(camera, Path("c.json"))
        return
    assert camera_of_json(camera, Path("c.json")) == CameraModel(30, 31, 20, 15, (30, 40), lens)


def test_a_skew_is_kept_of_a_bare_matrix_and_refused_beside_a_size() -> None:
    matrix = [[30, 2, 20], [0, 31, 15], [0, 0, 1]]
    np.testing.assert_array_equal(camera_of_json(matrix, "c.json"), matrix)
    with pytest.raises(DataError, match="c.json: expected .* fx 0 cx, 0 fy cy"):
        camera_of_json({"K": matrix, "width": 40, "height": 30}, "c.json")


def test_the_models_of_colmap_are_read_in_the_order_of_its_parameters(tmp_path: Path) -> None:
    """colmap/sensor/models.h; the formulas are tested below."""
    models: dict[str, tuple[str, tuple[float, ...], tuple[float, float]]] = {
        "SIMPLE_PINHOLE": ("30 20.5 15.5", (), (0, 0)),
        "PINHOLE": ("30 31 20.5 15.5", (), (0, 0)),
        "SIMPLE_RADIAL": ("30 20.5 15.5 0.1", (0.1,), (0, 0)),
        "RADIAL": ("30 20.5 15.5 0.1 -0.02", (0.1, -0.02), (0, 0)),
        "OPENCV": ("30 31 20.5 15.5 0.1 -0.02 0.003 -0.002", (0.1, -0.02), (0.003, -0.002)),
        "FULL_OPENCV": ("30 31 20.5 15.5 0.1 -0.02 0.003 -0.002 0.004 0.02 0.01 0.003",
                        (0.1, -0.02, 0.004, 0.02, 0.01, 0.003), (0.003, -0.002)),
        "SIMPLE_RADIAL_FISHEYE": ("30 20.5 15.5 0.1", (0.1,), (0, 0)),
        "RADIAL_FISHEYE": ("30 20.5 15.5 0.1 -0.02", (0.1, -0.02), (0, 0)),
        "OPENCV_FISHEYE": ("30 31 20.5 15.5 0.1 -0.02 0.004 0.02", (0.1, -0.02, 0.004, 0.02), (0, 0)),
    }  # fmt: skip
    lines = [f"{i} {name} 40 30 {numbers}" for i, (name, (numbers, *_)) in enumerate(models.items())]
    assert models.keys() == COLMAP.keys()
    (tmp_path / "cameras.txt").write_text("# cameras\n" + "\n".join(lines) + "\n")
    cameras = read_colmap_cameras(tmp_path / "cameras.txt").values()
    for camera, (name, (_, radial, tangential)) in zip(cameras, models.items(), strict=True):
        fy = 30 if name.startswith(("SIMPLE", "RADIAL")) else 31
        lens = Distortion(name, radial, tangential, "FISHEYE" in name) if radial else None
        assert camera == CameraModel(30, fy, 20, 15, (30, 40), lens)


@pytest.mark.parametrize(
    ("cameras", "images", "message"),
    [
        ("1 FOV 40 30 30 30 20 15 0.9\n", "", r"cameras.txt:1: expected ID MODEL .* got '1 FOV"),
        ("1 OPENCV 40 30 30 30 20 15\n", "", "cameras.txt:1: expected ID MODEL"),
        ("1 PINHOLE 40 30 0 30 20 15\n", "", "focal lengths are numbers over 0"),
        ("1 PINHOLE 40 30 30 30 20 15\n", "1 1 0 0 0 0 0 0 2 a b.jpg\n\n", "images.txt:1: .* with a camera of"),
        (
            "1 PINHOLE 40 30 30 30 20 15\n",
            "1 1 0 0 0 0 0 0 1 a.jpg\n2 1 0 0 0 0 0 0 1 b.jpg\n",
            "images.txt:2: expected the second line of an image",
        ),
    ],
)
def test_damaged_models_of_colmap_are_named_with_their_line(
    cameras: str, images: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "cameras.txt").write_text(cameras)
    (tmp_path / "images.txt").write_text(images)
    with pytest.raises(DataError, match=message):
        read_colmap(tmp_path)


def test_blank_lines_before_the_images_of_colmap_are_none_of_theirs(tmp_path: Path) -> None:
    (tmp_path / "cameras.txt").write_text("1 PINHOLE 40 30 30 30 20.5 15.5\n")
    (tmp_path / "images.txt").write_text(
        "# IMAGES\n\n1 2 0 0 0 1 2 3 1 a b.jpg\n1.5 2 -1 3 4 7\n2 1 0 0 0 0 0 0 1 c.jpg\n\n"
    )
    found = read_colmap(tmp_path)
    assert [pose[:3, 3].tolist() for pose, _ in found.values()] == [[-1, -2, -3], [0, 0, 0]]
    assert list(found) == ["a b.jpg", "c.jpg"]


def test_a_file_of_several_cameras_is_refused(tmp_path: Path) -> None:
    (tmp_path / "camchain.yaml").write_text(KALIBR + KALIBR.replace("cam0", "cam1"))
    with pytest.raises(DataError, match="camchain.yaml: holds the cameras cam0, cam1; one for all images is expected"):
        read_camera(tmp_path / "camchain.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1\nb: 2")
    with pytest.raises(DataError, match="bad.yaml: cannot be read as YAML"):
        read_camera(tmp_path / "bad.yaml")


@pytest.mark.parametrize("suffix", ["xml", "yml", "json"])
@pytest.mark.parametrize("fisheye", [0, 1])
def test_what_opencv_stores_is_read(fisheye: int, suffix: str, tmp_path: Path) -> None:
    """As OpenCV's samples/cpp/tutorial_code/calib3d/camera_calibration writes its out_camera_data.xml."""
    k = [-0.2, 0.03, 0.001, -0.002] if fisheye else [-0.2, 0.03, 0.001, -0.002, 0.004]
    storage = cv2.FileStorage(str(tmp_path / f"out_camera_data.{suffix}"), cv2.FILE_STORAGE_WRITE)
    for key, value in {
        "calibration_time": "Thu Nov 26 01:43:15 2026", "image_width": 64, "image_height": 48, "flags": 4,
        "fisheye_model": fisheye, "camera_matrix": pinhole(50.0, 51.0, 30.0, 25.0),
        "distortion_coefficients": np.array(k)[:, None], "image_points": np.zeros((2, 3, 2), np.float32),
    }.items():  # fmt: skip
        storage.write(key, value)
    if suffix != "json":  # JSON has no comments
        storage.writeComment("flags: +fix_aspectRatio")
    storage.release()
    camera, name = camera_file(tmp_path) or (None, "")
    assert name == f"out_camera_data.{suffix}" and isinstance(camera, CameraModel) and camera.distortion is not None
    assert (camera.fx, camera.fy, camera.cx, camera.cy, camera.size) == (50.0, 51.0, 30.0, 25.0, (48, 64))
    expected = Distortion("fisheye", tuple(k), fisheye=True) if fisheye else replace(BENT, model="radtan")
    assert camera.distortion == expected and is_one_camera(tmp_path / name)


def opencv_xml(inner: str, head: str = "") -> str:
    return f'<?xml version="1.0"?>\n{head}<opencv_storage>{inner}</opencv_storage>\n'


def test_names_of_opencv_2_and_metashape_are_read(tmp_path: Path) -> None:
    matrix = '<{0} type_id="opencv-matrix"><rows>{1}</rows><cols>{2}</cols><dt>d</dt><data>\n {3}</data></{0}>'
    inner = "<image_Width>64</image_Width><image_Height>48</image_Height>"
    inner += matrix.format("Camera_Matrix", 3, 3, "50. 0. 30. 0. 51. 25. 0. 0. 1.")
    inner += matrix.format("Distortion_Coefficients", 5, 1, "-0.2 0.03 0.001 -0.002 4e-3")
    (tmp_path / "camera.xml").write_text("\ufeff" + opencv_xml(inner).replace("\n", "\r\n"), encoding="utf-8")
    assert read_camera(tmp_path / "camera.xml") == replace(EXPECTED, distortion=replace(BENT, model="radtan"))


BOMB = "<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'>" + "".join(
    f"<!ENTITY {name} '{10 * f'&{inner};'}'>" for inner, name in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no element found"),
        (opencv_xml("<fx>5</fx>")[:-20], "not well-formed|unclosed token"),
        (opencv_xml("<fx>50</fx>"), "expected fx, fy, cx, cy or a 3 x 3 matrix"),
        (opencv_xml("<a>" * 200_000 + "</a>" * 200_000), "expected fx, fy, cx, cy"),  # ends cv2.FileStorage's process
        (opencv_xml("<camera_matrix><data>1 2 x</data></camera_matrix>"), "expected fx, fy, cx, cy"),
        (opencv_xml("<fx>&j;</fx>", BOMB + "]>"), "a DTD"),
        (opencv_xml("<fx>&x;</fx>", "<!DOCTYPE x [<!ENTITY x SYSTEM 'file:///etc/hostname'>]>"), "a DTD"),
        ("<calibration><fx>50</fx></calibration>", "<opencv_storage> is expected, not <calibration>"),
        (opencv_xml("<fx>50</fx>" * 400_000), "has 4.4 MB; the calibration of a camera has under 4"),
    ],
    ids=["empty", "cut", "no_camera", "deep", "no_numbers", "entities", "external_entity", "other", "huge"],
)
def test_damaged_xml_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "camera.xml").write_text(text)
    with pytest.raises(DataError, match=f"camera.xml: .*({message})"):
        read_camera(tmp_path / "camera.xml")


def test_a_yaml_of_aliases_is_refused_before_it_grows(tmp_path: Path) -> None:
    rows = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    (tmp_path / "camera.yaml").write_text("\n".join(rows) + "\nK: *i\n")
    with pytest.raises(DataError, match=r"camera.yaml: expected .* a 3 x 3 matrix, .* got {'K': \[\[.{,200}$"):
        read_camera(tmp_path / "camera.yaml")


def test_json_beside_the_images_that_is_no_calibration_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "cameras.json").write_text("[]")  # of a splatting program
    (tmp_path / "calibration.json").write_text('{"fx": 50, "fy": 51, "cx": 30, "cy": 25}')
    assert (camera_file(tmp_path) or (0, ""))[1] == "calibration.json"


def room(rays: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Image, depth and classes of a smooth wall, z = 2 + 0.3 x + 0.2 y, in the directions `rays`, h w 2."""
    x, y = rays[..., 0], rays[..., 1]
    depth = 2 / (1 - 0.3 * x - 0.2 * y)
    shade = 127 + 60 * np.sin(6 * x * depth) + 60 * np.cos(5 * y * depth)
    labels = (x * depth > 0.1).astype(np.uint8) + 2 * (y * depth > -0.2).astype(np.uint8)
    return np.repeat(shade[..., None], 3, 2).astype(np.uint8), depth, labels


def write_walk(root: Path, lens: Distortion | None, size: tuple[int, int], depth_size: tuple[int, int]) -> None:
    """One frame of the wall as a lens shows it, with depth registered to it."""
    for (h, w), kinds in ((size, "images labels"), (depth_size, "depths")):
        s = w / 64
        u, v = np.meshgrid(np.arange(w), np.arange(h))
        seen = np.stack([(u - ((30 + 0.5) * s - 0.5)) / (50 * s), (v - ((25 + 0.5) * s - 0.5)) / (51 * s)], -1)
        rays = seen if lens is None else lens.undistort(seen.reshape(-1, 2)).reshape(seen.shape)
        image, depth, labels = room(rays)
        parts = {"images": image, "labels": labels, "depths": np.rint(depth * 10000).astype(np.uint16)}
        for kind in kinds.split():
            (root / kind).mkdir(parents=True, exist_ok=True)
            assert cv2.imwrite(str(root / kind / "0.png"), parts[kind])
    (root / "poses.csv").write_text("name,tx,ty,tz,qx,qy,qz,qw\n0.png,0,0,0,0,0,0,1\n")


@pytest.mark.parametrize("depth_size", [(240, 320), (120, 160)])
@pytest.mark.parametrize("lens", [BENT, Distortion("equidistant", (0.1, -0.02, 0.003), fisheye=True)])
def test_a_distorted_room_is_the_room_again(lens: Distortion, depth_size: tuple[int, int], tmp_path: Path) -> None:
    h, w = 240, 320
    write_walk(tmp_path, lens, (h, w), depth_size)
    k = [*lens.radial, 0.0][:4] if lens.fisheye else [*lens.radial[:2], *lens.tangential, *lens.radial[2:]]
    camera = {"K": [50, 0, 30, 0, 51, 25, 0, 0, 1], "D": k, "distortion_model": lens.model, "width": 64, "height": 48}
    (tmp_path / "intrinsics.json").write_text(json.dumps(camera))
    data = Recording(root=tmp_path, depth_scale=10000)
    sample = data.read(0)
    assert sample.depth is not None and sample.intrinsics is not None and sample.valid is not None
    image, depth, _ = room(backproject(np.ones((h, w)), sample.intrinsics)[..., :2])
    error = abs(sample.image.astype(int) - image)
    assert np.percentile(error, 99) <= 2 and sample.valid.all()
    step = 0.03 * w / depth_size[1]  # of the depth between neighbouring pixels
    assert abs(sample.depth - depth).max() < step
    straight = backproject(sample.depth.astype(np.float64), sample.intrinsics)
    off = straight @ [0.3, 0.2, -1] + 2  # of the wall
    assert abs(off).mean() < 0.2 * step
    np.testing.assert_array_equal(data.depth_map(0), sample.depth)
    assert any("undistorted: " in fact and "bends the corner by" in fact for fact in data.facts)


def test_labels_depth_maps_and_check_data_follow_the_lens(tmp_path: Path) -> None:
    write_walk(tmp_path, BENT, (240, 320), (240, 320))
    (tmp_path / "intrinsics.json").write_text(json.dumps({"fx": 100, "fy": 100, "cx": 0, "cy": 0}))
    (tmp_path / "ros.yaml").write_text(ROS)
    plain = Folder(root=tmp_path, depth_scale=10000, classes=None)
    data = Folder(root=tmp_path, depth_scale=10000, intrinsics="ros.yaml")
    sample = data.read(0)
    assert sample.labels is not None and sample.intrinsics is not None
    _, _, labels = room(backproject(np.ones((240, 320)), sample.intrinsics)[..., :2])
    assert (sample.labels != labels).mean() < 0.002 < (plain.read(0).labels != labels).mean()
    np.testing.assert_array_equal(data.label_map(0), sample.labels)
    np.testing.assert_array_equal(data.depth_map(0), sample.depth)
    report = validate([SplitToValidate("all", lambda: data)])
    assert not [issue for issue in report.issues if issue.severity == "error"]
    assert any("plumb_bob (k1 -0.2, k2 0.03, k3 0.004, p1 0.001, p2 -0.002)" in fact for fact in data.facts)
    (tmp_path / "ros.yaml").write_text(ROS.replace("0.03", "0.04"))
    other = Folder(root=tmp_path, depth_scale=10000, intrinsics="ros.yaml")
    assert len({plain.version, data.version, other.version}) == 3


def test_depth_of_a_camera_of_its_own_is_found_in_the_undistorted_image(tmp_path: Path) -> None:
    write_walk(tmp_path, BENT, (240, 320), (120, 160))
    write_walk(tmp_path / "straight", None, (240, 320), (120, 160))
    (tmp_path / "straight/depths/0.png").rename(tmp_path / "depths/0.png")
    (tmp_path / "intrinsics.json").write_text(json.dumps({"K": [250, 0, 152, 0, 255, 127, 0, 0, 1], "D": [-0.2, 0.03]}))
    own = (125.0, 127.5, 75.75, 63.25)
    sample = Recording(root=tmp_path, depth_scale=10000, depth_camera=own).read(0)
    assert sample.depth is not None and sample.intrinsics is not None
    _, depth, _ = room(backproject(np.ones((240, 320)), sample.intrinsics)[..., :2])
    inside = sample.depth > 0
    assert inside.mean() > 0.8 and abs(sample.depth - depth)[inside].max() < 0.06


def test_tum_is_undistorted_by_its_published_coefficients(tmp_path: Path) -> None:
    folder = tmp_path / "rgbd_dataset_freiburg1_desk"
    for kind, pixels in (("rgb", np.zeros((480, 640, 3), np.uint8)), ("depth", np.full((480, 640), 5000, np.uint16))):
        (folder / kind).mkdir(parents=True)
        cv2.imwrite(str(folder / kind / "1.png"), pixels)
        (folder / f"{kind}.txt").write_text(f"1.0 {kind}/1.png\n")
    data, raw = Tum(root=folder), Tum(root=folder, undistort=False)
    assert np.array_equal(raw.read(0).intrinsics, pinhole(517.3, 516.5, 318.6, 255.3))
    k = np.array([0.2624, -0.9531, -0.0054, 0.0026, 1.1633])
    u, v = (x.reshape(480, 640) for x in cv2.initUndistortRectifyMap(
        pinhole(517.3, 516.5, 318.6, 255.3), k, np.eye(3), data.read(0).intrinsics, (640, 480), cv2.CV_32FC1
    ))  # fmt: skip
    assert min(u.min(), v.min()) > -2e-3 and u.max() < 639.002 and v.max() < 479.002
    assert "plumb_bob (k1 0.2624" in " ".join(data.facts) and len(raw.facts) == 1


LENSES = {
    "freiburg1": Distortion("plumb_bob", (0.2624, -0.9531, 1.1633), (-0.0054, 0.0026)),
    "barrel": Distortion("RADIAL", (-0.28, 0.07)),
    "rational": Distortion("rational_polynomial", (-0.3, 0.1, -0.02, 0.05, 0.01, 0.002), (1e-3, -2e-3)),
    "fisheye": Distortion("equidistant", (0.05, -0.01, 0.004, -0.001), fisheye=True),
    "pure_fisheye": Distortion("equidistant", (0.0,), fisheye=True),
}


def opencv(lens: Distortion) -> np.ndarray:
    """The coefficients in OpenCV's order."""
    k = np.zeros(6)
    k[: len(lens.radial)] = lens.radial
    return k[:4] if lens.fisheye else np.array([*k[:2], *lens.tangential, *k[2:]])


@pytest.mark.parametrize("name", LENSES)
def test_distortion_is_opencvs_and_undone_exactly(name: str) -> None:
    lens = LENSES[name]
    within, k = min(2.0 if lens.fisheye else 0.6, 0.65 * lens.reach), opencv(lens)
    rays = np.random.default_rng(0).uniform(-within, within, (500, 2))
    if lens.fisheye:
        expected = cv2.fisheye.distortPoints(rays[None], np.eye(3), k)[0]
    else:
        points = np.hstack([rays, np.ones((len(rays), 1))])
        expected = cv2.projectPoints(points, np.zeros(3), np.zeros(3), np.eye(3), k)[0][:, 0]
    bent = lens.distort(rays)
    np.testing.assert_allclose(bent, expected, atol=1e-12)
    np.testing.assert_allclose(lens.undistort(bent), rays, atol=1e-9)
    if not lens.fisheye:
        stop = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 500, 1e-14)
        undistort = getattr(cv2, "undistortPointsIter", cv2.undistortPoints)  # of OpenCV 4, and 5
        theirs = undistort(bent[:, None], np.eye(3), k, R=np.eye(3), P=np.eye(3), criteria=stop)[:, 0]
        np.testing.assert_allclose(lens.undistort(bent), theirs, atol=1e-6)


@pytest.mark.parametrize("name", LENSES)
@pytest.mark.parametrize("size", [(480, 640), (120, 160)])
def test_a_view_is_opencvs_map_and_has_no_borders(name: str, size: tuple[int, int]) -> None:
    lens, (h, w) = LENSES[name], size
    camera = CameraModel(517.3, 516.5, 318.6, 235.3, (480, 640), lens)
    view = camera.undistorted(size)
    own = camera.of_size(size)
    assert own.fx == pytest.approx(517.3 * w / 640) and own.cx == pytest.approx((318.6 + 0.5) * w / 640 - 0.5)
    makes = cv2.fisheye.initUndistortRectifyMap if lens.fisheye else cv2.initUndistortRectifyMap
    expected = makes(
        pinhole(own.fx, own.fy, own.cx, own.cy), opencv(lens), np.eye(3), view.matrix, (w, h), cv2.CV_32FC1
    )
    for ours, theirs, last in zip(view.places, expected, (w - 1, h - 1), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-3)
        assert ours.min() >= 0 and ours.max() <= last
    ends = [abs(ours - at).min() for ours, last in zip(view.places, (w - 1, h - 1), strict=True) for at in (0, last)]
    assert min(ends) < 0.01  # as wide as it can be
    corners = np.array([(u, v) for u in (3.0, w - 4) for v in (3.0, h - 4)])
    columns, rows = corners.astype(int).T
    there = np.stack([places[rows, columns] for places in view.places], 1)
    np.testing.assert_allclose(view.pixels(there.astype(np.float64)), corners, atol=1e-3)


def test_a_lens_that_bends_nothing_changes_nothing() -> None:
    image = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)
    view = CameraModel(30.0, 31.0, 15.0, 12.0).undistorted((24, 32))
    assert view.image(image) is image and view.nearest(image) is image and view.bend == 0
    assert np.array_equal(view.pixels(np.ones((1, 2))), np.ones((1, 2)))
    tiny = CameraModel(30.0, 31.0, 15.0, 12.0, None, Distortion("radtan", (1e-9,))).undistorted((24, 32))
    assert np.array_equal(tiny.image(image), image) and tiny.matrix[0, 0] == pytest.approx(30.0, abs=1e-2)


def test_rays_beyond_the_turning_point_of_the_polynomial_are_none() -> None:
    """r (1 - 0.5 r^2) has its maximum at r = sqrt(2 / 3), where it is 0.544."""
    lens = Distortion("SIMPLE_RADIAL", (-0.5,))
    assert lens.reach == pytest.approx(np.sqrt(2 / 3))
    assert np.isnan(lens.undistort(np.array([[0.6, 0.0]]))).all()
    np.testing.assert_allclose(lens.undistort(np.array([[0.5, 0.0]])), [[0.6180339887, 0.0]], atol=1e-9)
    view = CameraModel(20.0, 20.0, 15.5, 11.5, None, lens).undistorted((24, 32))  # its corners lie beyond
    assert np.hypot(*((view.matrix[[0, 1], 2] + 0.5) / view.matrix[0, 0])) <= lens.reach + 0.05


def test_images_of_another_shape_and_impossible_lenses_are_refused() -> None:
    camera = CameraModel(517.3, 516.5, 318.6, 255.3, (480, 640), LENSES["barrel"])
    with pytest.raises(DataError, match=r"of images of 480 x 640 \(h x w\), this one is 640 x 480, of another shape"):
        camera.undistorted((640, 480))
    with pytest.raises(
        DataError, match=r"distortion RADIAL \(k1 -5e\+06\): no view without borders is left of 480 x 640"
    ):
        replace(camera, distortion=Distortion("RADIAL", (-5e6,))).undistorted((480, 640))
