"""The ROS 2 node of the examples, on stand-ins of ROS."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import densevit
from densevit.inference.predictor import Predictor
from densevit.model_card import HeadSpec, ModelCard

FOLDER = Path(__file__).parents[1] / "examples/ros2"
H, W = 6, 8
K = [10.0, 0, 3.5, 0, 10, 2.5, 0, 0, 1]


class Node:
    """Keeps what a node declares, subscribes to, publishes and logs."""

    def __init__(self, name: str) -> None:
        self.heard: dict[str, Callable[[Any], None]] = {}
        self.published: dict[str, list[Any]] = {}
        self.logged: list[str] = []

    def declare_parameter(self, name: str, value: object) -> SimpleNamespace:
        return SimpleNamespace(value=value)

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
    node.heard["camera_info"](SimpleNamespace(k=K, d=[0.0] * 5))
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
    node.heard["camera_info"](SimpleNamespace(k=K, d=[]))
    node.heard["image"](image("yuv422"))
    short = image()
    short.data = short.data[:40]
    node.heard["image"](short)
    node.heard["camera_info"](SimpleNamespace(k=K, d=[0.1, 0, 0, 0, 0]))
    node.heard["image"](image())
    assert not given and ["yuv422" in node.logged[0], "40 bytes" in node.logged[1], "distortion" in node.logged[2]]
    node.heard["camera_info"](SimpleNamespace(k=K, d=[]))
    node.heard["lidar"](cloud(np.array([[5.0, 0, 0]]), sec=3))
    node.heard["image"](image())
    monkeypatch.setattr(Buffer, "known", False)
    node.heard["lidar"](cloud(np.array([[5.0, 0, 0]])))
    node.heard["image"](image())
    assert [words[2] for words in given] == [None, None] and "points left out: no lidar" in node.logged[-1]


class Red(nn.Module):
    def forward(self, image: Tensor) -> dict[str, Tensor]:
        return {"depth": image[:, :1] * 255}


def test_a_checkpoint_runs_frame_by_frame_and_goes_on_after_one_that_fails(
    node_module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1)
    monkeypatch.setattr(densevit, "load", lambda path: Predictor(Red(), card, device="cpu", precision="fp32"))
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
