"""Cameras as calibrators, recorders and COLMAP write them, with the distortion of their lenses.

| written by                     | form                                                                               |
| OpenCV, ROS camera_calibration | YAML, JSON, XML: camera_matrix, distortion_coefficients, distortion_model          |
| ROS CameraInfo                 | YAML or JSON: k, d, distortion_model, width, height, as `ros2 topic echo` prints it|
| Kalibr                         | YAML: intrinsics, distortion_coeffs, distortion_model, resolution                  |
| nerfstudio, Polycam            | JSON: fl_x, fl_y, cx, cy, k1, k2, p1, p2, camera_model, w, h                       |
| COLMAP                         | cameras.txt                                                                        |
| by hand                        | JSON or YAML: fx, fy, cx, cy; or 3 x 3 numbers; or Open3D's intrinsic_matrix       |
"""

import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import yaml
from jaxtyping import Float64

from densevit.data.recordings.distortion import CameraModel, Distortion
from densevit.data.recordings.poses import Pose, pose_of, read_lines
from densevit.errors import DataError
from densevit.ops.geometry import is_camera, pinhole, shift
from densevit.utils.json_files import MALFORMED, read_json

Camera = Float64[np.ndarray, "3 3"] | CameraModel
"""A matrix, or a model where the size of the images or the distortion is written."""

LARGEST = 4_000_000  # bytes of a calibration; those with the corners of all boards have some 100,000
MATRICES = ("camera_matrix", "Camera_Matrix", "cameraMatrix", "K", "k", "intrinsics")
COEFFICIENTS = re.compile(r"(dist|disto|distortion)(_?(coef|param)\w*)?|d|coeffs", re.IGNORECASE)  # a list called so
SKEW = 0.5  # pixels, about twice what it moves pixels at the upper and lower border by
NAMED = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")  # OpenCV's order
NERFSTUDIO = ("k1", "k2", "k3", "k4", "p1", "p2")  # the order of its `distortion_params`
SIZES = (("image_height", "image_width"), ("image_Height", "image_Width"), ("height", "width"), ("h", "w"))
FISHEYE = (
    *("equidistant", "fisheye", "kannala_brandt", "kannala_brandt4"),
    *("opencv_fisheye", "radial_fisheye", "simple_radial_fisheye"),
)
RADIAL = (
    *("", "plumb_bob", "rational_polynomial", "radtan", "radial_tangential", "brown_conrady"),
    "modified_brown_conrady",  # RealSense's: its tangential terms, of rays bent already, differ by some 0.1 pixels
    *("pinhole", "none", "opencv", "full_opencv", "simple_pinhole", "simple_radial", "radial", "perspective"),
)
# nerfstudio's cameras that are no pinholes whatever their coefficients, by how the names begin
UNREAD = ("equirectangular", "omnidirectional", "vr180", "orthophoto", "fisheye624")
RATIONAL = ("rational_polynomial", "full_opencv", "")  # k4 of others belongs to another formula
COLMAP = {
    "SIMPLE_PINHOLE": "f cx cy",
    "PINHOLE": "fx fy cx cy",
    "SIMPLE_RADIAL": "f cx cy k1",
    "RADIAL": "f cx cy k1 k2",
    "OPENCV": "fx fy cx cy k1 k2 p1 p2",
    "FULL_OPENCV": "fx fy cx cy k1 k2 p1 p2 k3 k4 k5 k6",
    "SIMPLE_RADIAL_FISHEYE": "f cx cy k1",
    "RADIAL_FISHEYE": "f cx cy k1 k2",
    "OPENCV_FISHEYE": "fx fy cx cy k1 k2 k3 k4",
}
"""The parameters of COLMAP's models, in its order."""


def distortion_of(model: str, values: Sequence[float] | Mapping[str, float], where: object) -> Distortion | None:
    """Return the distortion of a model; None where all coefficients are 0, unless it is a fisheye's, which bends then,
    too.

    Args:
        values: by name, or a list in OpenCV's order (k1, k2, p1, p2, k3 to k6; of a fisheye k1 to k4).

    Raises:
        DataError: a model or coefficients that are not read.
    """
    name = re.sub(r"\W+", "_", model.lower().removeprefix("distortion."))
    fisheye = name in FISHEYE
    order = ("k1", "k2", "k3", "k4") if fisheye else NAMED
    if not isinstance(values, Mapping):
        values = {order[i] if i < len(order) else f"coefficient {i + 1}": x for i, x in enumerate(values)}
    known = {key: float(value) for key, value in values.items() if value}
    if not known and not (fisheye and values) and not name.startswith(UNREAD):
        return None
    further = sorted(known.keys() - {*order})
    if not fisheye and name not in RATIONAL:
        further += sorted(known.keys() & {"k4", "k5", "k6"})
    if further or not (fisheye or name in RADIAL) or not np.isfinite([*known.values()]).all():
        raise DataError(
            f"{where}: the camera has distortion {model or 'without a name'} {known}, which is not read. "
            "It may be plumb_bob (4 or 5 coefficients), rational_polynomial (8), equidistant (4), or COLMAP's "
            f"{', '.join(COLMAP)}; or undistort images and depth, and write the new camera without coefficients."
        )
    radial = [known.get(key, 0.0) for key in (order if fisheye else ("k1", "k2", "k3", "k4", "k5", "k6"))]
    while not radial[-1] and len(radial) > 1:
        radial.pop()
    tangential = (known.get("p1", 0.0), known.get("p2", 0.0))
    return Distortion(model or "radtan", tuple(radial), tangential, fisheye)


def camera_of_json(value: Any, where: object) -> Camera | None:
    """Return a camera in one of the forms above; None where there is none. A list is 9 numbers or 3 rows by row.

    Raises:
        DataError: it is something else, or has distortion of an unknown model.
    """
    if value is None:
        return None
    try:
        if not isinstance(value, Mapping):
            matrix, size, lens = numbers_of(value).reshape(3, 3), None, None
        else:
            matrix, size = _matrix_of(value), _size_of(value)
            if (window := value.get("roi")) and window["width"] and window["height"]:  # of ROS, whose camera is whole
                matrix = shift(-window["x_offset"], -window["y_offset"]) @ matrix
                size = int(window["height"]), int(window["width"])
            lens = distortion_of(*coefficients_of(value), where)
    except DataError:
        raise
    except MALFORMED:
        matrix, size, lens = np.zeros((3, 3)), None, None
    skewed = abs(matrix[0, 1]) > SKEW and not (size is None and lens is None)  # a `CameraModel` has none
    if skewed or not is_camera(matrix):
        raise DataError(
            f"{where}: expected fx, fy, cx, cy or a 3 x 3 matrix, fx 0 cx, 0 fy cy, 0 0 1, in pixels and "
            f"fx and fy over 0, got {reprlib.repr(value):.200}."
        )
    return model_of_matrix(matrix, size, lens)


def model_of_matrix(
    matrix: Float64[np.ndarray, "3 3"], size: tuple[int, int] | None, lens: Distortion | None
) -> Camera:
    if size is None and lens is None:
        return matrix
    (fx, _, cx), (_, fy, cy) = matrix[:2].tolist()
    return CameraModel(fx, fy, cx, cy, size, lens)


def numbers_of(value: Any) -> Float64[np.ndarray, " n"]:
    """Return a number, a list, or a list of rows, row by row. (Deeper ones may be a few bytes of YAML's aliases that
    stand for gigabytes.)

    Raises:
        TypeError, ValueError: it is something else.
    """
    rows = value if isinstance(value, list | tuple) else [value]
    return np.array([float(x) for row in rows for x in (row if isinstance(row, list | tuple) else [row])])


def _matrix_of(facts: Mapping[str, Any]) -> Float64[np.ndarray, "3 3"]:
    if "intrinsic_matrix" in facts:  # Open3D's, by column
        return numbers_of(facts["intrinsic_matrix"]).reshape(3, 3).T
    for key in MATRICES:
        if key in facts:
            value = facts[key]["data"] if isinstance(facts[key], Mapping) else facts[key]
            numbers = numbers_of(value)
            return pinhole(*numbers) if len(numbers) == 4 else numbers.reshape(3, 3)
    # nerfstudio and instant-ngp write COLMAP's cx, cy: the centre of the first pixel is (0.5, 0.5), ours (0, 0).
    keys, centre = (("fl_x", "fl_y"), 0.5) if "fl_x" in facts else (("fx", "fy"), 0.0)
    fx, fy, cx, cy = (float(facts[key]) for key in (*keys, "cx", "cy"))
    return pinhole(fx, fy, cx - centre, cy - centre)


def _size_of(facts: Mapping[str, Any]) -> tuple[int, int] | None:
    if "resolution" in facts:
        w, h = facts["resolution"]
        return int(h), int(w)
    return next(((int(facts[h]), int(facts[w])) for h, w in SIZES if facts.get(h) and facts.get(w)), None)


def coefficients_of(facts: Mapping[str, Any]) -> tuple[str, Sequence[float] | Mapping[str, float]]:
    """Return model and coefficients, as `distortion_of` takes them. Raises LookupError, TypeError or ValueError: no
    numbers."""
    names = (facts.get(key) for key in ("distortion_model", "camera_model", "model"))
    model = next((str(name) for name in names if name and str(name).lower() != "pinhole"), "")
    if facts.get("is_fisheye") or facts.get("fisheye_model"):
        model = "fisheye"
    for key, value in facts.items():
        if isinstance(value, str) and value.lstrip().startswith("["):  # a list in a cell of CSV
            value = value.strip(" []").replace(",", " ").split()
        if COEFFICIENTS.fullmatch(str(key)) and isinstance(value, Mapping | list | tuple):
            numbers = numbers_of(value["data"] if isinstance(value, Mapping) else value).tolist()
            return model, dict(zip(NERFSTUDIO, numbers, strict=False)) if key == "distortion_params" else numbers
    return model, {key: float(facts[key] or 0) for key in facts if re.fullmatch(r"[kp]\d", key)}


def is_camera_object(tree: Any) -> bool:
    """Return whether an object of JSON or YAML is one camera, not names with one each."""
    keys = {"intrinsic_matrix", "fx", "fl_x", *MATRICES}
    return isinstance(tree, Mapping) and not keys.isdisjoint(tree)


def read_camera(path: Path) -> Camera:
    """Return the one camera of a file: JSON, YAML, OpenCV's XML or COLMAP's cameras.txt.

    Raises:
        DataError: it cannot be read, or holds none or several.
    """
    if (suffix := path.suffix.lower()) == ".txt":
        cameras = read_colmap_cameras(path)
        if len(cameras) != 1:
            raise DataError(f"{path}: holds {len(cameras)} cameras; one for all images is expected.")
        return next(iter(cameras.values()))
    if path.is_file() and (size := path.stat().st_size) > LARGEST:
        raise DataError(f"{path}: has {size / 1e6:.1f} MB; the calibration of a camera has under {LARGEST / 1e6:.0f}.")
    readers: Mapping[str, Callable[[Path], Any]] = {".json": read_json, ".xml": read_xml}
    tree = readers.get(suffix, read_yaml)(path)
    if isinstance(tree, dict) and not is_camera_object(tree):  # Kalibr's camchain
        inner = [value for value in tree.values() if is_camera_object(value)]
        if len(inner) > 1:
            raise DataError(f"{path}: holds the cameras {', '.join(map(str, tree))}; one for all images is expected.")
        tree = inner[0] if inner else tree
    camera = camera_of_json(tree, path)
    if camera is None:
        raise DataError(f"{path}: holds no camera.")
    return camera


def read_yaml(path: Path) -> Any:
    """Return the first document of a file of OpenCV, ROS or Kalibr."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        text = "\n".join(line for line in lines if not line.startswith("%")).replace("!!opencv-matrix", "")
        return next(iter(yaml.safe_load_all(text)), None)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, *MALFORMED) as error:
        raise DataError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())[:120]}).") from None


def read_xml(path: Path) -> dict[str, Any]:
    """Return what OpenCV's FileStorage wrote as XML. (Its own reader ends the process where elements are nested deep.)

    Raises:
        DataError: it cannot be read, is other XML, or declares entities.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        if "<!" in text.replace("<!--", ""):
            raise ValueError("a DTD or CDATA, which OpenCV does not write")
        root = ElementTree.fromstring(text)
        if root.tag != "opencv_storage":
            raise ValueError(f"OpenCV's <opencv_storage> is expected, not <{root.tag[:40]}>")
    except (OSError, ElementTree.ParseError, *MALFORMED) as error:
        raise DataError(f"{path}: cannot be read as XML ({' '.join(str(error).split())[:120]}).") from None
    return {node.tag: _xml_value(node.findtext("data") or node.text or "") for node in root}


def _xml_value(text: str) -> Any:
    """Return a number, a string, or a list of numbers."""
    try:
        numbers = [float(word) for word in text.split()]
    except ValueError:
        return text.strip()
    return numbers[0] if len(numbers) == 1 else numbers


def read_colmap_cameras(path: Path) -> dict[str, Camera]:
    """Return the cameras of COLMAP's cameras.txt by their ids. Its first pixel's centre is (0.5, 0.5), ours (0, 0).

    Raises:
        DataError: it is missing or damaged, or a model is not read.
    """
    cameras = {}
    for number, line in read_lines(path, "COLMAP's text model"):
        if not (words := line.split()):
            continue
        try:
            name, model, w, h, *numbers = words
            facts = dict(zip(COLMAP[model].split(), map(float, numbers), strict=True))
            fx, fy = (facts.get(key, facts.get("f", 0.0)) for key in ("fx", "fy"))
            matrix, size = pinhole(fx, fy, facts["cx"] - 0.5, facts["cy"] - 0.5), (int(h), int(w))
        except (ValueError, KeyError):
            raise DataError(
                f"{path}:{number}: expected ID MODEL WIDTH HEIGHT and the parameters of one of the models "
                f"{', '.join(COLMAP)}, got {line[:80]!r}."
            ) from None
        coefficients = {key: value for key, value in facts.items() if re.fullmatch(r"[kp]\d", key)}
        lens = distortion_of(model, coefficients, f"{path}:{number}")
        if not is_camera(matrix):
            raise DataError(f"{path}:{number}: focal lengths are numbers over 0, got {line[:80]!r}.")
        cameras[name] = model_of_matrix(matrix, size, lens)
    return cameras


def read_colmap(folder: Path) -> dict[str, tuple[Pose, Camera]]:
    """Return pose and camera of each image of a COLMAP model in text form (cameras.txt, images.txt).

    COLMAP has no unit: depth of another source fits only where the model was scaled to metres.

    Raises:
        DataError: a file is missing or damaged, or a camera is of a model that is not read.
    """
    cameras, found = read_colmap_cameras(folder / "cameras.txt"), {}
    rows = read_lines(folder / "images.txt", "COLMAP's text model")
    rows = list(dropwhile(lambda row: not row[1].strip(), rows))
    for number, line in rows[1::2]:
        if line.strip() and not re.search(r"\s-?\d+\s*$", line):  # the number of a point, not the name of an image
            raise DataError(
                f"{folder / 'images.txt'}:{number}: expected the second line of an image, which is blank or holds "
                f"X Y POINT3D of the points that it shows, got {line[:80]!r}."
            )
    for number, line in rows[::2]:
        if not line.strip():
            continue
        try:
            _, w, x, y, z, *position, camera, name = line.split(maxsplit=9)
            pose = np.linalg.inv(pose_of([float(v) for v in position], [float(v) for v in (x, y, z, w)]))
            found[name] = (pose, cameras[camera])
        except (ValueError, KeyError):
            raise DataError(
                f"{folder / 'images.txt'}:{number}: expected ID QW QX QY QZ TX TY TZ CAMERA NAME, with a camera of "
                f"cameras.txt, got {line[:80]!r}."
            ) from None
    return found
