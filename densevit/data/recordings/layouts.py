"""The layouts in which recorders write a sequence of images with depth, poses and cameras.

Frames are named uniquely in their sequence; depth that is listed need not be there. Their one mask is the confidence of
the depth map: depth of confidence 0, ARKit's low, is not measured.

| layout  | what is in the folder of a sequence                                                                     |
| tum     | rgb.txt, depth.txt (`TIME FILE` a line), groundtruth.txt: TUM RGB-D and programs that write like it     |
| frames  | frame-000000.color.png or .jpg, .depth.png, .pose.txt: 7-Scenes, tsdf-fusion                            |
| scannet | color/0.jpg, depth/0.png, pose/0.txt, intrinsic/intrinsic_{color,depth}.txt: ScanNet's exporter         |
| arkit   | frame_00000.jpg beside .json with `intrinsics` and `cameraPoseARFrame`, depth_00000.png, conf_00000.png |
| stray   | depth/000000.png, confidence/, odometry.csv, camera_matrix.csv, frames of rgb.mp4 in rgb/: Stray Scanner|
| nerf    | transforms.json: Polycam, nerfstudio, Record3D's converter                                              |
| colmap  | images/, depths/, and COLMAP's text model in sparse/0/ or colmap/                                       |
| folders | images/ (rgb, color) and depths/ (depth), of equal names or named by time; poses in groundtruth.txt,    |
|         | trajectory.txt (TUM's format), poses.csv or poses/NAME.txt                                              |
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from densevit.data.index.manifest import CAMERA, read_table
from densevit.data.index.matching import DEPTH_SUFFIXES, IMAGE_SUFFIXES, match_names
from densevit.data.index.paths import SampleFiles, check_inside, glob_visible
from densevit.data.io.readers import image_size
from densevit.data.io.video import natural_order
from densevit.data.recordings.cameras import camera_of_json, read_colmap
from densevit.data.recordings.poses import (
    OPENGL,
    QUATERNION,
    Pose,
    check_pose,
    pose_of_cells,
    poses_at,
    read_lines,
    read_pose_file,
    read_trajectory,
    read_words,
)
from densevit.errors import DataError
from densevit.ops.geometry import focal_length, is_camera
from densevit.utils.json_files import MALFORMED, read_object

Matrix = Float64[np.ndarray, "3 3"]

IMAGE_FOLDERS, DEPTH_FOLDERS = ("images", "rgb", "color", "image"), ("depths", "depth")
MODELS = ("sparse/0", "sparse", "colmap")  # of COLMAP
TRAJECTORIES = ("groundtruth.txt", "trajectory.txt", "poses.txt")
TUM_SCALE, MILLIMETRES = 5000.0, 1000.0


def associate(first: Sequence[float], second: Sequence[float], max_gap: float) -> list[tuple[int, int]]:
    """Return pairs of positions whose times lie less than `max_gap` apart, by time: the nearest first, none used twice
    (as associate.py of the TUM RGB-D benchmark)."""
    a, b = np.array(first), np.array(second)
    order = np.argsort(b, kind="stable")
    start = np.searchsorted(b[order], a - max_gap, "left")
    stop = np.searchsorted(b[order], a + max_gap, "right")
    near = [(i, int(order[k])) for i in range(len(a)) for k in range(start[i], stop[i])]
    gaps = {pair: abs(a[pair[0]] - b[pair[1]]) for pair in near}
    free_first, free_second = set(range(len(a))), set(range(len(b)))
    pairs = []
    for i, j in sorted((pair for pair in near if gaps[pair] < max_gap), key=lambda pair: (gaps[pair], pair)):
        if i in free_first and j in free_second:
            free_first.remove(i)
            free_second.remove(j)
            pairs.append((i, j))
    return sorted(pairs, key=lambda pair: a[pair[0]])


def with_trajectory(frames: list[SampleFiles], path: Path, max_gap: float) -> list[SampleFiles]:
    """Return the frames with their poses of a trajectory, by time, where there is such a file.

    Raises:
        DataError: no frame lies within `max_gap` seconds of it.
    """
    if not path.is_file() or any(frame.time is None for frame in frames):
        return frames
    times = np.array([frame.time for frame in frames], np.float64)
    poses = poses_at(times, *read_trajectory(path), max_gap)
    if all(pose is None for pose in poses):
        raise DataError(
            f"{path}: its times lie nowhere within {max_gap:g} s of the images', which begin at {times[0]:.6f}."
        )
    return [replace(frame, pose=pose) for frame, pose in zip(frames, poses, strict=True)]


def read_tum(folder: Path, max_gap: float) -> list[SampleFiles]:
    images, depths = read_stamps(folder / "rgb.txt"), read_stamps(folder / "depth.txt")
    times, maps = sorted(images), list(depths.values())
    pairs = {times[i]: maps[j] for i, j in associate(times, list(depths), max_gap)}
    if not pairs:
        raise DataError(f"{folder}: no image and depth map within {max_gap} s of each other.")
    frames = [SampleFiles(images[time].stem, images[time], pairs.get(time), time=time) for time in times]
    return with_trajectory(frames, folder / "groundtruth.txt", max_gap)


def read_stamps(path: Path) -> dict[float, Path]:
    """Return time -> file of a list in TUM RGB-D's format.

    Raises:
        DataError: it cannot be read; naming the line.
    """
    found: dict[float, Path] = {}
    for number, line in read_lines(path, "the list"):
        if not line.strip():
            continue
        try:
            stamp, name = line.strip().split(maxsplit=1)
            time = float(stamp)
        except ValueError:
            raise DataError(f"{path}:{number}: expected TIME FILE, got {line[:80]!r}.") from None
        found[time] = path.parent / check_inside([name], path)[0]
    return found


def read_frames(folder: Path, max_gap: float = 0) -> list[SampleFiles]:
    return [
        SampleFiles(
            base,
            image,
            folder / f"{base}.depth.png",
            pose=read_pose_file(folder / f"{base}.pose.txt"),
        )
        for image in sorted(folder.glob("frame-*.color.*"))
        for base in [image.name.split(".")[0]]
    ]


def read_scannet(folder: Path, max_gap: float) -> list[SampleFiles]:
    cameras = [_matrix_file(folder / f"intrinsic/intrinsic_{kind}.txt") for kind in ("color", "depth")]
    return [
        SampleFiles(
            image.stem,
            image,
            folder / f"depth/{image.stem}.png",
            pose=read_pose_file(folder / f"pose/{image.stem}.txt"),
            intrinsics=cameras[0],
            depth_intrinsics=cameras[1],
        )
        for image in files_below(folder / "color", IMAGE_SUFFIXES)
    ]


def read_arkit(folder: Path, max_gap: float) -> list[SampleFiles]:
    frames = []
    for file in sorted(folder.glob("frame_*.json"), key=natural_order):
        image = next((path for s in (".jpg", ".png") if (path := file.with_suffix(s)).is_file()), None)
        if image is None:  # 3D Scanner App writes pose and depth of every frame, and every sixth image or so
            continue
        facts = read_object(file)
        depth, confidence = (folder / f"{kind}_{file.stem.partition('_')[2]}.png" for kind in ("depth", "conf"))
        pose = check_pose(facts.get("cameraPoseARFrame"), str(file))
        frames.append(
            SampleFiles(
                file.stem,
                image,
                depth if depth.is_file() else None,
                time=None if facts.get("time") is None else float(facts["time"]),
                pose=None if pose is None else pose @ OPENGL,
                intrinsics=camera_of_json(facts.get("intrinsics"), file),
                masks=(confidence,) if confidence.is_file() else (),
            )
        )
    return frames


def read_stray(folder: Path, max_gap: float) -> list[SampleFiles]:
    camera = _matrix_file(folder / "camera_matrix.csv")
    rows = [{key.strip(): value for key, value in row.items()} for _, row in read_table(folder / "odometry.csv")]
    columns = dict(zip(("tx", "ty", "tz"), "xyz", strict=True))
    images = {path.stem: path for path in files_below(folder / "rgb", IMAGE_SUFFIXES)}
    if not images:
        unpack = "ffmpeg -i rgb.mp4 -fps_mode passthrough -start_number 0 rgb/%06d.jpg"
        raise DataError(f"{folder}: no frames in rgb/. Unpack the video: {unpack}")
    frames = []
    for row in rows:
        try:
            name, time = str(row["frame"]).strip(), float(row["timestamp"])
            pose = pose_of_cells(row | {key: row[axis] for key, axis in columns.items()})
            own = camera_of_json({key: float(row[key]) for key in CAMERA}, name) if row.get("fx") else camera
        except (KeyError, TypeError, ValueError):
            raise DataError(
                f"{folder / 'odometry.csv'}: expected timestamp, frame, x, y, z, qx ... qw, got {row}."
            ) from None
        if name in images:
            depth, confidence = (folder / kind / f"{name}.png" for kind in ("depth", "confidence"))
            masks = (confidence,) if confidence.is_file() else ()
            # Its axes are ours: OdometryEncoder.swift, q_AC.
            frames.append(SampleFiles(name, images[name], depth, time=time, pose=pose, intrinsics=own, masks=masks))
    return frames


def read_nerf(folder: Path, max_gap: float) -> list[SampleFiles]:
    file = folder / "transforms.json"
    facts = read_object(file)
    frames = []
    for number, entry in enumerate(facts.get("frames") or ()):
        own = {**facts, **entry}
        image, depth = (_inside(folder, own.get(key), file) for key in ("file_path", "depth_file_path"))
        pose = check_pose(own.get("transform_matrix"), f"{file}: frame {number}")
        if image is None or pose is None:
            raise DataError(f"{file}: frame {number} needs file_path and transform_matrix.")
        if not image.suffix:
            image = image.with_suffix(".png")
        camera = (
            camera_of_json(nerf_camera(own, image, file), file) if {"fl_x", "camera_angle_x"} & own.keys() else None
        )
        pose, time = pose @ OPENGL, None if own.get("timestamp") is None else float(own["timestamp"])
        frames.append(SampleFiles(image.stem, image, depth, time=time, pose=pose, intrinsics=camera))
    frames.sort(key=lambda frame: (frame.image.parent, natural_order(frame.image)))
    if len({frame.name for frame in frames}) == len(frames):
        return frames
    # Several cameras, each with a folder of its own.
    return [replace(f, name=f.image.relative_to(folder).with_suffix("").as_posix()) for f in frames]


def nerf_camera(facts: Mapping[str, Any], image: Path, file: Path) -> Mapping[str, Any]:
    """Return the facts of a frame with what its camera leaves out, as instant-ngp and Blender's exporters do: square
    pixels, the principal point in the middle, and the focal length of a field of view in radians. Raises DataError."""
    if {"fl_x", "fl_y", "cx", "cy"} <= facts.keys():
        return facts
    try:
        h, w = (facts["h"], facts["w"]) if {"h", "w"} <= facts.keys() else image_size(image)
        fx = facts.get("fl_x") or focal_length(w, math.degrees(facts["camera_angle_x"]))
        fy = focal_length(h, math.degrees(facts["camera_angle_y"])) if "camera_angle_y" in facts else fx
        return {"fl_x": fx, "fl_y": fy, "cx": w / 2, "cy": h / 2, **facts}
    except MALFORMED:
        raise DataError(f"{file}: expected fl_x in pixels, or camera_angle_x in radians, of the camera.") from None


def read_colmap_folder(folder: Path, max_gap: float) -> list[SampleFiles]:
    poses = read_colmap(next(folder / model for model in MODELS if (folder / model / "images.txt").is_file()))
    frames = read_folders(folder, max_gap)
    names = {frame.image.relative_to(folder / _present(folder, IMAGE_FOLDERS)).as_posix(): frame for frame in frames}
    return [replace(frame, pose=poses[n][0], intrinsics=poses[n][1]) for n, frame in names.items() if n in poses]


def read_folders(folder: Path, max_gap: float) -> list[SampleFiles]:
    found = []
    for choices, suffixes in ((IMAGE_FOLDERS, IMAGE_SUFFIXES), (DEPTH_FOLDERS, DEPTH_SUFFIXES)):
        base = folder / (_present(folder, choices) or "none")
        found.append({path.relative_to(base).with_suffix("").as_posix(): path for path in files_below(base, suffixes)})
    images, depths = found
    times = [_time(list(files)) for files in found]
    pairs = match_names(list(images), list(depths))
    if len(pairs) < min(len(images), len(depths)) and None not in times:
        names, others = list(images), list(depths)
        pairs = {names[i]: others[j] for i, j in associate(times[0] or [], times[1] or [], max_gap)}
    stamps = dict(zip(images, times[0] or [], strict=False))
    found_depths = {name: depths.get(pairs.get(name, "")) for name in images}
    frames = [SampleFiles(n, path, found_depths[n], time=stamps.get(n)) for n, path in images.items()]
    for name in TRAJECTORIES:
        frames = with_trajectory(frames, folder / name, max_gap)
    table = read_pose_table(folder / "poses.csv") if (folder / "poses.csv").is_file() else {}
    poses = {f.name: read_pose_file(p) for f in frames if (p := folder / f"poses/{f.name}.txt").is_file()}
    poses |= {f.name: table[key] for f in frames for key in (f.image.name, f.name) if key in table}
    return [replace(frame, pose=poses.get(frame.name, frame.pose)) for frame in frames]


def files_below(folder: Path, suffixes: frozenset[str]) -> list[Path]:
    """Return the files of a folder and of those in it, in natural order, without hidden ones (`glob_visible`)."""
    files = [path for path in glob_visible(folder, "**/*") if path.suffix.lower() in suffixes]
    return sorted(files, key=lambda path: (path.parent, natural_order(path)))


def read_pose_table(path: Path) -> dict[str, Pose]:
    """Return the pose of each image named in a CSV or JSONL with the columns name, tx, ty, tz, qx, qy, qz, qw.

    Raises:
        DataError: a column or number is missing; naming the line.
    """
    found = {}
    for number, cells in read_table(path):
        try:
            found[str(cells["name"]).strip()] = pose_of_cells(cells)
        except (KeyError, TypeError, ValueError):
            columns = ", ".join(("name", *QUATERNION))
            raise DataError(f"{path}:{number}: expected the columns {columns}, got {dict(cells)}.") from None
    return found


def _time(names: Sequence[str]) -> list[float] | None:
    """Return the times that names are, in seconds: 1305031452.79 as it is, whole numbers of 16 digits and more in
    microseconds or nanoseconds; None where names are only numbered."""
    try:
        values = [float(name.rpartition("/")[2]) for name in names]
    except ValueError:
        return None
    digits = min((len(name.rpartition("/")[2].partition(".")[0]) for name in names), default=0)
    if any("." in name for name in names):
        return values
    unit = {16: 1e6, 19: 1e9, 13: 1e3}.get(digits)
    return None if unit is None else [value / unit for value in values]


def _present(folder: Path, names: Sequence[str]) -> str:
    return next((name for name in names if (folder / name).is_dir()), "")


def _matrix_file(path: Path) -> Matrix | None:
    if not path.is_file():
        return None
    try:
        numbers = [float(word) for word in read_words(path)]
        size = {9: 3, 16: 4}[len(numbers)]
        matrix = np.array(numbers).reshape(size, size)[:3, :3].copy()
        if not is_camera(matrix):
            raise ValueError
    except (OSError, ValueError, KeyError):
        raise DataError(
            f"{path}: expected a camera of 3 x 3 or 4 x 4 numbers, fx 0 cx, 0 fy cy, 0 0 1, in pixels."
        ) from None
    return matrix


def _inside(folder: Path, name: Any, source: Path) -> Path | None:
    return None if name is None else folder / check_inside([str(name)], source)[0]


@dataclass(frozen=True)
class RecordingLayout:
    """How a recorder writes a sequence.

    Attributes:
        signs: of each of these one pattern fits a file or folder of the sequence.
        read: the folder and the seconds that may lie between an image and its depth or pose -> its frames, by time.
        depth_scale: stored units per metre of whole numbers.
    """

    name: str
    signs: tuple[tuple[str, ...], ...]
    read: Callable[[Path, float], list[SampleFiles]]
    depth_scale: float = MILLIMETRES

    def fits(self, folder: Path) -> bool:
        return all(any(any(folder.glob(pattern)) for pattern in patterns) for patterns in self.signs)


LAYOUTS = [
    RecordingLayout("tum", (("rgb.txt",), ("depth.txt",)), read_tum, TUM_SCALE),
    RecordingLayout("frames", (("frame-*.color.*",), ("frame-*.depth.png", "frame-*.pose.txt")), read_frames),
    RecordingLayout("scannet", (("color",), ("depth",), ("pose",)), read_scannet),
    RecordingLayout("arkit", (("frame_*.json",), ("depth_*.png", "frame_*.jpg")), read_arkit),
    RecordingLayout("stray", (("odometry.csv",), ("camera_matrix.csv",)), read_stray),
    RecordingLayout("nerf", (("transforms.json",),), read_nerf),
    RecordingLayout("colmap", (IMAGE_FOLDERS, tuple(f"{m}/images.txt" for m in MODELS)), read_colmap_folder),
    RecordingLayout("folders", (IMAGE_FOLDERS, (*TRAJECTORIES, "poses.csv", "poses")), read_folders),
]


def find_sequences(root: Path) -> list[tuple[Path, RecordingLayout]]:
    """Return the sequences of a root, which is one itself or holds them at most two folders down."""
    for pattern in (".", "*", "*/*"):
        folders = [root] if pattern == "." else sorted((p for p in root.glob(pattern) if p.is_dir()), key=natural_order)
        fitting = [(path, next((layout for layout in LAYOUTS if layout.fits(path)), None)) for path in folders]
        if found := [(path, layout) for path, layout in fitting if layout is not None]:
            return found
    return []
