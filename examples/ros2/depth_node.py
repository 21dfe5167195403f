"""A ROS 2 node: Image and CameraInfo in, depth (32FC1, metres) and PointCloud2 out; a point cloud as measured points.

    python3 depth_node.py --ros-args -p model:=model.onnx -r image:=/camera/image_rect -r camera_info:=/camera/info

README.md beside it has the steps for a machine. A file `.onnx` needs onnxruntime alone, a checkpoint densevit;
raw images with distortion need OpenCV.
"""

import re
from collections import deque
from typing import Any, Protocol

import numpy as np
import rclpy
from messages import camera_of, fill_cloud, fill_depth, image_of, matrix_of, measured, rectify, xyz_of
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from rclpy.time import Time
from sensor_msgs.msg import CameraInfo, Image, PointCloud2, PointField
from tf2_ros import Buffer, TransformException, TransformListener


class Model(Protocol):
    def __call__(self, image: np.ndarray, camera: np.ndarray, points: np.ndarray | None) -> np.ndarray:
        """Return h w of metres. `points`: n 3 of u, v, metres."""


class OnnxModel:
    """An exported file. Points are an input of it, or else scale its map by the median ratio."""

    def __init__(self, path: str) -> None:
        import onnxruntime

        self.session = onnxruntime.InferenceSession(path, providers=onnxruntime.get_available_providers())
        self.inputs = [each.name for each in self.session.get_inputs()]

    def __call__(self, image: np.ndarray, camera: np.ndarray, points: np.ndarray | None) -> np.ndarray:
        given = {"image": image[None], "focal": np.array([camera[0, 0]], np.float32)}
        points = (
            np.empty((0, 3)) if points is None else points[np.argsort(-points[:, 2])]
        )  # the nearest is written last
        u, v = np.rint(points[:, :2]).astype(int).T
        given["points"] = np.zeros((1, *image.shape[:2]), np.float32)
        given["points"][0, v, u] = points[:, 2]
        (depth,) = self.session.run(["depth"], {name: given[name] for name in self.inputs})
        depth = depth[0, 0]
        if len(points) and "points" not in self.inputs:
            depth = depth * np.median(points[:, 2] / depth[v, u])
        return depth


class StreamModel:
    """A checkpoint, by `densevit.predict_frames`; with several frames in mind if `stabilize`."""

    def __init__(self, path: str, stabilize: bool) -> None:
        import densevit

        self.make, self.waiting = densevit.ImageInput, deque[Any]()
        model = densevit.load(path)
        self.start = lambda: densevit.predict_frames(model, iter(self.waiting.popleft, None), stabilize=stabilize)
        self.maps = self.start()

    def __call__(self, image: np.ndarray, camera: np.ndarray, points: np.ndarray | None) -> np.ndarray:
        numbers = [float(camera[place]) for place in ((0, 0), (1, 1), (0, 2), (1, 2))]
        self.waiting.append(self.make(image, camera=numbers, points=points))
        try:
            return np.asarray(next(self.maps))
        except Exception:
            self.maps = self.start()
            raise


class DepthNode(Node):
    """Predicts the newest image; a bad message is logged and the next one waited for."""

    def __init__(self, model: Model | None = None) -> None:
        super().__init__("densevit")
        path = self.declare_parameter("model", "model.onnx").value
        stabilize = self.declare_parameter("stabilize", False).value
        self.max_age = self.declare_parameter("max_age", 0.2).value  # seconds between image and points
        self.model = model or (OnnxModel(path) if str(path).endswith(".onnx") else StreamModel(path, stabilize))
        self.rectified = re.search("[/_]rect", self.resolve_topic_name("image")) is not None
        self.camera: CameraInfo | None = None
        self.cloud: PointCloud2 | None = None
        self.transforms = Buffer()
        self.listener = TransformListener(self.transforms, self)
        self.depth_out = self.create_publisher(Image, "depth", 2)
        self.cloud_out = self.create_publisher(PointCloud2, "points", 2)
        for kind, topic, callback in (
            (CameraInfo, "camera_info", lambda message: setattr(self, "camera", message)),
            (PointCloud2, "lidar", lambda message: setattr(self, "cloud", message)),
            (Image, "image", self.on_image),
        ):
            self.create_subscription(kind, topic, callback, qos_profile_sensor_data)

    def on_image(self, message: Image) -> None:
        if self.camera is None:
            self.get_logger().warning("no CameraInfo yet", throttle_duration_sec=5.0)
            return
        try:
            image = image_of(message) if self.rectified else rectify(image_of(message), self.camera)
            camera = camera_of(self.camera, rectified=True)
            depth = self.model(image, camera, self.points(message, camera, image.shape[:2]))
        except (ValueError, ImportError) as error:  # densevit's DataError is a ValueError
            self.get_logger().error(f"image left out: {error}", throttle_duration_sec=1.0)
            return
        self.depth_out.publish(fill_depth(Image(), depth, message.header))
        self.cloud_out.publish(fill_cloud(PointCloud2(), depth, camera, message.header, PointField))

    def points(self, image: Image, camera: np.ndarray, size: tuple[int, int]) -> np.ndarray | None:
        """Return the points of the last cloud in the image; None if it is older than `max_age`, or not placed by tf."""
        if self.cloud is None or abs(seconds(image) - seconds(self.cloud)) > self.max_age:
            return None
        frames = image.header.frame_id, self.cloud.header.frame_id
        try:
            placed = self.transforms.lookup_transform(*frames, Time.from_msg(self.cloud.header.stamp))
        except TransformException as error:
            self.get_logger().warning(f"points left out: {error}", throttle_duration_sec=5.0)
            return None
        found = measured(xyz_of(self.cloud), matrix_of(placed), camera, size)
        return found if len(found) else None


def seconds(message: Any) -> float:
    return message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec


def main() -> None:
    rclpy.init()
    node = DepthNode()
    try:
        rclpy.spin(node)
    except KeyboardInterrupt:
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
