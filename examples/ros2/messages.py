"""ROS messages as NumPy arrays and back; of any objects with the fields of the messages. h x w pixels, n points."""

from functools import lru_cache
from typing import Any

import numpy as np

CHANNELS = {"rgb8": [0, 1, 2], "bgr8": [2, 1, 0], "rgba8": [0, 1, 2], "bgra8": [2, 1, 0], "mono8": [0, 0, 0]}
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 8: "f8"}  # sensor_msgs/PointField
LENSES = {"plumb_bob": (4, 5), "rational_polynomial": (8, 12, 14), "equidistant": (4,)}  # counts that OpenCV takes


def image_of(message: Any) -> np.ndarray:
    """Return h w 3 of RGB; raise ValueError for another encoding, or fewer bytes than pixels."""
    if message.encoding not in CHANNELS:
        raise ValueError(f"image of encoding {message.encoding}; {', '.join(CHANNELS)} are read.")
    count = {"mono8": 1, "rgb8": 3, "bgr8": 3}.get(message.encoding, 4)
    data, width = np.frombuffer(bytes(message.data), np.uint8), message.width * count
    if not data.size or data.size < message.height * message.step or message.step < width:
        raise ValueError(f"image of {message.height}x{message.width} with {data.size} bytes, {message.step} a row.")
    rows = data[: message.height * message.step].reshape(message.height, message.step)[:, :width]
    return np.ascontiguousarray(rows.reshape(message.height, message.width, count)[..., CHANNELS[message.encoding]])


def camera_of(message: Any, rectified: bool) -> np.ndarray:
    """Return the 3 x 3 matrix of raw images (K of a CameraInfo) or of rectified ones (P of the same).

    Both are of the whole sensor: `roi` moves the principal point, then `binning` divides, as in image_geometry.

    Raises:
        ValueError: the camera is not calibrated.
    """
    matrix = np.array(message.k, float).reshape(3, 3)
    if rectified and any(message.p):
        matrix = np.array(message.p, float).reshape(3, 4)[:, :3]
    if matrix[0, 0] <= 0 or matrix[1, 1] <= 0:
        raise ValueError("the CameraInfo is not calibrated: its focal length is 0.")
    matrix[:2, 2] -= message.roi.x_offset, message.roi.y_offset
    matrix[:2] /= [[message.binning_x or 1], [message.binning_y or 1]]
    return matrix


def rectify(image: np.ndarray, message: Any) -> np.ndarray:
    """Return a raw image as image_proc rectifies it: of the same size, by the camera `camera_of(message, True)`.

    Raises:
        ValueError: the camera is not calibrated, or its lens is of a model or a count that LENSES has not.
        ImportError: OpenCV is needed, and is not installed.
    """
    turn = np.array(message.r, float).reshape(3, 3) if any(message.r) else np.eye(3)
    raw, new = camera_of(message, False), camera_of(message, True)
    model, lens = (message.distortion_model, tuple(message.d)) if any(message.d) else ("plumb_bob", (0.0,) * 5)
    if len(lens) not in LENSES.get(model, ()):
        raise ValueError(f"distortion {model!r} with {len(lens)} numbers; {', '.join(LENSES)} are undone.")
    if not any(lens) and np.allclose(new @ turn, raw):
        return image
    import cv2

    maps = _maps(model, lens, np.stack([raw, turn, new]).tobytes(), image.shape[1::-1])
    return np.asarray(cv2.remap(image, *maps, cv2.INTER_LINEAR))


@lru_cache(maxsize=2)
def _maps(model: str, lens: tuple[float, ...], matrices: bytes, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the column and the row of the raw image that each pixel shows."""
    import cv2

    raw, turn, new = np.frombuffer(matrices).reshape(3, 3, 3)
    make = cv2.fisheye.initUndistortRectifyMap if model == "equidistant" else cv2.initUndistortRectifyMap
    u, v = make(raw, np.array(lens), turn, new, size, cv2.CV_32FC1)
    return u, v


def xyz_of(message: Any) -> np.ndarray:
    """Return n 3 of a PointCloud2, without points that are not finite; raise ValueError if it has no x, y, z."""
    fields = {field.name: field for field in message.fields}
    if not {"x", "y", "z"} <= fields.keys():
        raise ValueError(f"point cloud with fields {', '.join(fields)}; x, y and z are needed.")
    order = ">" if message.is_bigendian else "<"
    formats = [order + TYPES[fields[axis].datatype] for axis in "xyz"]
    offsets = [fields[axis].offset for axis in "xyz"]
    layout = np.dtype({"names": list("xyz"), "formats": formats, "offsets": offsets, "itemsize": message.point_step})
    rows = np.frombuffer(bytes(message.data), np.uint8).reshape(message.height, message.row_step)
    cells = np.ascontiguousarray(rows[:, : message.width * message.point_step]).reshape(-1).view(layout)
    points = np.stack([cells[axis].astype(np.float64) for axis in "xyz"], 1)
    return points[np.isfinite(points).all(1)]


def matrix_of(message: Any) -> np.ndarray:
    """Return the 4 x 4 matrix of a TransformStamped."""
    q, t = message.transform.rotation, message.transform.translation
    x, y, z, w = np.array([q.x, q.y, q.z, q.w]) / np.linalg.norm([q.x, q.y, q.z, q.w])
    matrix = np.eye(4)
    matrix[:3, :3] = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    matrix[:3, 3] = t.x, t.y, t.z
    return matrix


def measured(xyz: np.ndarray, to_camera: np.ndarray, camera: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return n 3 of u, v and metres: the points in front of the camera that fall into its image."""
    moved = xyz @ to_camera[:3, :3].T + to_camera[:3, 3]
    moved = moved[moved[:, 2] > 1e-3]
    u, v = ((moved @ camera.T)[:, :2] / moved[:, 2:]).T
    inside = (u >= -0.5) & (u < size[1] - 0.5) & (v >= -0.5) & (v < size[0] - 0.5)
    return np.stack([u, v, moved[:, 2]], 1)[inside]


def fill_depth(message: Any, depth: np.ndarray, header: Any) -> Any:
    """Return an Image of 32FC1, metres."""
    message.header, message.encoding, message.is_bigendian = header, "32FC1", 0
    message.height, message.width = depth.shape
    message.step, message.data = 4 * depth.shape[1], depth.astype("<f4").tobytes()
    return message


def fill_cloud(message: Any, depth: np.ndarray, camera: np.ndarray, header: Any, make_field: Any) -> Any:
    """Return an organised PointCloud2 of the pixels, in the frame of the camera."""
    h, w = depth.shape
    x = (np.arange(w)[None] - camera[0, 2]) / camera[0, 0] * depth
    y = (np.arange(h)[:, None] - camera[1, 2]) / camera[1, 1] * depth
    message.header, message.height, message.width = header, h, w
    message.fields = [make_field(name=axis, offset=4 * i, datatype=7, count=1) for i, axis in enumerate("xyz")]
    message.is_bigendian, message.is_dense, message.point_step, message.row_step = False, False, 12, 12 * w
    message.data = np.stack([x, y, depth], -1).astype("<f4").tobytes()
    return message
