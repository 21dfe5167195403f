"""The ROS 2 node of the examples, on stand-ins of ROS."""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from toy_models import MeanColour, toy_predictor

import densevit
from densevit.data.recordings.cameras import camera_of_json
from densevit.data.recordings.distortion import CameraModel

FOLDER = Path(__file__).parents[1] / "examples/ros2"
H, W = 6, 8
K = [10.0, 0, 3.5, 0, 10, 2.5, 0, 0, 1]


class Node:
    """Keeps what a node declares, subscribes to, publishes and logs."""

    remapped = "/camera/image_raw"

    def __init__(self, name: str) -> None:
        self.heard: dict[str, Callable[[Any], None]] = {}
        self.published: dict[str, list[Any]] = {}
        self.logged: list[str] = []

    def declare_parameter(self, name: str, value: object) -> SimpleNamespace:
        return SimpleNamespace(value=value)

    def resolve_topic_name(self, topic: str) -> str:
        return self.remapped

    def create_publisher(self, kind: type, topic: str, depth: int) -> SimpleNamespace:
        return SimpleNamespace(publish=self.published.setdefault(topic, []).append)

    def create_subscription(self, kind: type, topic: str, callback: Callable[[Any], None], profile: object) -> None:
        self.heard[topic] = callback

    def get_logger(self) -> SimpleNamespace:
        def log(text: str, **_: object) -> None:
            self.logged.append(text)

        return SimpleNamespace(warning=log, error=log)


class NoTransform(Exception):
    pass


class Buffer:
    """The LiDAR looks along x and sits 1 m behind the camera: its x, y, z are the camera's z, -x, -y."""

    known = True

    def lookup_transform(self, target: str, source: str, time: object) -> SimpleNamespace:
        if not self.known:
            raise NoTransform(f"no {source}")
        assert (target, source) == ("camera", "lidar")
        rotation = SimpleNamespace(x=0.5, y=-0.5, z=0.5, w=0.5)
        return SimpleNamespace(
            transform=SimpleNamespace(rotation=rotation, translation=SimpleNamespace(x=0.0, y=0.0, z=-1.0))
        )


@pytest.fixture
def node_module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    stands = {
        "rclpy": {},
        "rclpy.node": {"Node": Node},
        "rclpy.qos": {"qos_profile_sensor_data": None},
        "rclpy.time": {"Time": SimpleNamespace(from_msg=lambda stamp: stamp)},
        "sensor_msgs": {},
        "sensor_msgs.msg": dict.fromkeys(("CameraInfo", "Image", "PointCloud2", "PointField"), SimpleNamespace),
        "tf2_ros": {"Buffer": Buffer, "TransformException": NoTransform, "TransformListener": lambda *_: None},
    }
    for name, members in stands.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.syspath_prepend(str(FOLDER))
    import depth_node

    yield depth_node
    for name in ("depth_node", "messages"):
        sys.modules.pop(name)


def header(frame: str = "camera", sec: int = 5) -> SimpleNamespace:
    return SimpleNamespace(frame_id=frame, stamp=SimpleNamespace(sec=sec, nanosec=0))


def info(d: Sequence[float] = (), **fields: Any) -> SimpleNamespace:
    """A CameraInfo; its R and P as drivers leave them where a camera is alone and bends nothing."""
    roi = SimpleNamespace(x_offset=0, y_offset=0, height=0, width=0, do_rectify=False)
    plain = {"k": K, "r": np.eye(3).ravel(), "p": np.insert(K, [3, 6, 9], 0), "distortion_model": "plumb_bob"}
    return SimpleNamespace(**plain | {"d": d, "binning_x": 0, "binning_y": 0, "roi": roi} | fields)


def image(encoding: str = "bgr8", padding: int = 4) -> SimpleNamespace:
    rows = np.zeros((H, 3 * W + padding), np.uint8)
    rows[:, : 3 * W] = np.tile([10, 20, 30], W)
    return SimpleNamespace(
        header=header(), encoding=encoding, height=H, width=W, step=3 * W + padding, data=rows.tobytes()
    )


def cloud(xyz: np.ndarray, sec: int = 5) -> SimpleNamespace:
    layout = np.dtype({"names": list("xyz"), "formats": ["<f4"] * 3, "offsets": [4, 8, 12], "itemsize": 20})
    cells = np.zeros(len(xyz), layout)
    for i, axis in enumerate("xyz"):
        cells[axis] = xyz[:, i]
    fields = [SimpleNamespace(name=axis, offset=4 + 4 * i, datatype=7) for i, axis in enumerate("xyz")]
    size = {"height": 1, "width": len(xyz), "point_step": 20, "row_step": 20 * len(xyz)}
    return SimpleNamespace(header=header("lidar", sec), fields=fields, is_bigendian=False, data=cells.tobytes(), **size)


def test_images_and_points_become_depth_and_a_cloud(node_module: ModuleType) -> None:
    given = []

    def model(*words: Any) -> np.ndarray:
        given.append(words)
        return np.full((H, W), 2.0)

    node = node_module.DepthNode(model)
    node.heard["image"](image())
    assert not given and node.logged == ["no CameraInfo yet"]
    node.heard["camera_info"](info([0.0] * 5))
    # 4 m ahead of the camera's axis, then 0.4 m to its left; behind it; not finite; far outside.
    points = np.array([[5, 0, 0], [5, 0.4, 0], [0.5, 0, 0], [np.nan, 0, 0], [2, 9, 0]])
    node.heard["lidar"](cloud(points))
    node.heard["image"](image())
    pixels, camera, measured = given[0]
    assert (pixels == [30, 20, 10]).all() and pixels.shape == (H, W, 3) and camera[0, 2] == 3.5
    np.testing.assert_allclose(measured, [[3.5, 2.5, 4], [2.5, 2.5, 4]], atol=1e-6)
    depth, made = node.published["depth"][0], node.published["points"][0]
    assert (depth.encoding, depth.step, depth.header.frame_id) == ("32FC1", 4 * W, "camera")
    np.testing.assert_array_equal(np.frombuffer(depth.data, "<f4"), np.full(H * W, 2))
    xyz = np.frombuffer(made.data, "<f4").reshape(H, W, 3)
    np.testing.assert_allclose(xyz[0, 0], [-0.7, -0.5, 2], rtol=1e-6)
    assert made.row_step == 12 * W and [field.offset for field in made.fields] == [0, 4, 8]


def test_bad_messages_are_logged_and_old_or_unplaced_points_left_out(
    node_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    node = node_module.DepthNode(lambda *words: given.append(words) or np.ones((H, W)))
    node.heard["camera_info"](info())
    node.heard["image"](image("yuv422"))
    short = image()
    short.data = short.data[:40]
    node.heard["image"](short)
    node.heard["camera_info"](info([0.1, 0], distortion_model="fov"))
    node.heard["image"](image())
    node.heard["camera_info"](info(k=[0] * 9, p=[0] * 12))
    node.heard["image"](image())
    words = ("yuv422", "40 bytes", "distortion 'fov' with 2 numbers", "not calibrated")
    assert not given and all(word in line for word, line in zip(words, node.logged, strict=True))
    node.heard["camera_info"](info())
    node.heard["lidar"](cloud(np.array([[5.0, 0, 0]]), sec=3))
    node.heard["image"](image())
    monkeypatch.setattr(Buffer, "known", False)
    node.heard["lidar"](cloud(np.array([[5.0, 0, 0]])))
    node.heard["image"](image())
    assert [words[2] for words in given] == [None, None] and "points left out: no lidar" in node.logged[-1]


P = [9.0, 0, 3, 0, 0, 8, 2, 0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("fields", "raw", "rectified"),
    [
        ({"p": [0] * 12}, [10, 10, 3.5, 2.5], [10, 10, 3.5, 2.5]),
        ({"p": P, "binning_x": 1}, [10, 10, 3.5, 2.5], [9, 8, 3, 2]),
        ({"p": P, "binning_x": 2, "binning_y": 4}, [5, 2.5, 1.75, 0.625], [4.5, 2, 1.5, 0.5]),
        ({"p": P, "roi": SimpleNamespace(x_offset=2, y_offset=1)}, [10, 10, 1.5, 1.5], [9, 8, 1, 1]),
        (
            {"p": P, "binning_x": 2, "roi": SimpleNamespace(x_offset=2, y_offset=1)},
            [5, 10, 0.75, 1.5],
            [4.5, 8, 0.5, 1],
        ),
    ],
)
def test_the_camera_is_that_of_the_part_sent_and_binned(
    node_module: ModuleType, fields: dict[str, Any], raw: list[float], rectified: list[float]
) -> None:
    """By hand, the formulas of image_geometry: c' = (c - offset) / binning, f' = f / binning."""
    for is_rectified, expected in ((False, raw), (True, rectified)):
        camera = node_module.camera_of(info(**fields), is_rectified)
        np.testing.assert_allclose(camera[[0, 1, 0, 1], [0, 1, 2, 2]], expected)


def test_a_rectified_image_has_the_camera_p_and_a_raw_one_is_rectified(
    node_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A raw pixel at x of K shows, in the rectified image, the ray that the lens bends there. With k1 = -0.1 a ray at
    x / z = 0.3 and y = 0 is bent to 0.3 * (1 - 0.1 * 0.09) = 0.2973; the ramp below has the value of its column."""
    given = []
    for topic in ("/camera/image_rect_color", "/camera/color/rect/image", "/directions/image_raw"):
        monkeypatch.setattr(Node, "remapped", topic)
        node = node_module.DepthNode(lambda *words: given.append(words[:2]) or np.ones((H, W)))
        node.heard["camera_info"](info([-0.1, 0, 0, 0, 0], p=P))
        message = image("mono8", 0)
        message.step, message.data = W, np.tile(20 * np.arange(W, dtype=np.uint8), H).tobytes()
        node.heard["image"](message)
    assert all((camera[[0, 1, 0, 1], [0, 1, 2, 2]] == [9, 8, 3, 2]).all() for _, camera in given)
    ramp = np.tile(20 * np.arange(W), (H, 1))
    assert (given[0][0][..., 0] == ramp).all() and (given[1][0][..., 0] == ramp).all()
    x, y = np.meshgrid((np.arange(W) - 3) / 9, (np.arange(H) - 2) / 8)
    column = 10 * x * (1 - 0.1 * (x**2 + y**2)) + 3.5
    inside = (column >= 0) & (column <= W - 1) & (10 * y + 2.5 <= H - 1)
    np.testing.assert_allclose(given[2][0][..., 0][inside], 20 * column[inside], atol=1)


@pytest.mark.parametrize(
    ("model", "d"), [("equidistant", [0.1, -0.02, 0, 0]), ("rational_polynomial", [0.1, *[0] * 6, 0.2])]
)
def test_other_lenses_are_undone_as_densevit_undoes_them(node_module: ModuleType, model: str, d: list[float]) -> None:
    h, w = 48, 64
    facts = {"k": [50, 0, 30, 0, 51, 25, 0, 0, 1], "d": d, "distortion_model": model, "height": h, "width": w}
    camera = camera_of_json(facts, "camera_info.yaml")
    assert isinstance(camera, CameraModel)
    view, pixels = camera.undistorted((h, w)), np.random.default_rng(0).integers(0, 255, (h, w, 3), np.uint8)
    pixels = cv2.GaussianBlur(pixels, (0, 0), 3)
    message = info(d, k=facts["k"], p=np.insert(view.matrix, 3, 0, 1).ravel(), distortion_model=model)
    np.testing.assert_allclose(node_module.rectify(pixels, message).astype(int), view.image(pixels), atol=1)
    assert node_module.rectify(pixels, info()) is pixels


def test_a_checkpoint_runs_frame_by_frame_and_goes_on_after_one_that_fails(
    node_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(densevit, "load", lambda path: toy_predictor(MeanColour(nearest=0.0, gain=255.0)))
    model = node_module.StreamModel("runs/mine", False)
    for metres, scale in ((2, 1.0), (3, 1.5)):
        image, points = np.full((H, W, 3), metres, np.uint8), np.array([[1, 1, metres * scale]])
        with pytest.raises(ValueError, match="points: there are no points"):
            model(image, np.array(K).reshape(3, 3), points[:0])
        np.testing.assert_allclose(model(image, np.array(K).reshape(3, 3), points), metres * scale, rtol=1e-6)


def test_a_file_takes_points_as_an_input_or_is_scaled_by_them(node_module: ModuleType) -> None:
    class Session:
        def run(self, names: list[str], given: dict[str, np.ndarray]) -> list[np.ndarray]:
            self.given = given
            return [np.full((1, 1, H, W), 2.0, np.float32)]

    for inputs, expected in ((["image", "points"], 2.0), (["image", "focal"], 3.0)):
        model = object.__new__(node_module.OnnxModel)
        model.session, model.inputs = Session(), inputs
        points = np.array([[1, 2, 3.0], [1, 2, 9], [4, 4, 3]])
        depth = model(np.zeros((H, W, 3), np.uint8), np.array(K).reshape(3, 3), points)
        assert model.session.given.keys() == set(inputs) and (depth == expected).all()
    given = model.session.given
    assert given["focal"] == np.float32(10)
    model.inputs = ["points"]
    model(np.zeros((H, W, 3), np.uint8), np.array(K).reshape(3, 3), points)
    assert model.session.given["points"][0, 2, 1] == 3 and (model.session.given["points"] > 0).sum() == 2
