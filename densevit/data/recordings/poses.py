"""Camera poses as recorders and SLAM programs write them; read as 4 x 4 matrices, camera to world, in metres.

Camera axes are right, down, forward. n poses, in order of time.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from densevit.errors import DataError
from densevit.utils.json_files import read_text

Pose = Float64[np.ndarray, "4 4"]

QUATERNION = ("tx", "ty", "tz", "qx", "qy", "qz", "qw")
"""A pose in tables: the position in metres and a unit quaternion, w last (TUM RGB-D's order)."""

OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])
"""From our camera axes to those of ARKit, NeRF and Blender (right, up, back); its own inverse."""


def pose_of(position: Sequence[float], quaternion: Sequence[float]) -> Pose:
    """Return the matrix of a position and a quaternion x, y, z, w.

    Raises:
        ValueError: the quaternion is zero, or a number is missing or not finite.
    """
    from scipy.spatial.transform import Rotation  # takes half a second, and few commands read poses

    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = Rotation.from_quat(np.array(quaternion, float)).as_matrix(), position
    if not np.isfinite(pose).all():
        raise ValueError("numbers that are not finite")
    return pose


def pose_of_cells(cells: Mapping[str, Any]) -> Pose:
    """Return the pose in the columns QUATERNION of a table's row.

    Raises:
        KeyError, TypeError, ValueError: one is missing or no number.
    """
    values = [float(cells[key]) for key in QUATERNION]
    return pose_of(values[:3], values[3:])


def poses_at(
    wanted: Float64[np.ndarray, " m"],
    times: Float64[np.ndarray, " n"],
    poses: Float64[np.ndarray, "n 4 4"],
    max_gap: float,
) -> list[Pose | None]:
    """Return the pose at each time, interpolated between the poses before and after it.

    Args:
        times: in seconds, ascending.
        max_gap: seconds to the nearest pose, above which there is none.
    """
    from scipy.spatial.transform import Rotation, Slerp

    at = wanted.clip(times[0], times[-1])
    after = np.searchsorted(times, at).clip(max=len(times) - 1)
    gaps = np.minimum(np.abs(times[after] - wanted), np.abs(times[(after - 1).clip(0)] - wanted))
    found = np.tile(poses[0], (len(wanted), 1, 1))
    if len(times) > 1:
        found[:, :3, :3] = Slerp(times, Rotation.from_matrix(poses[:, :3, :3]))(at).as_matrix()
        found[:, :3, 3] = np.stack([np.interp(at, times, poses[:, axis, 3]) for axis in range(3)], axis=1)
    return [pose if gap <= max_gap else None for pose, gap in zip(found, gaps, strict=True)]


def check_pose(values: Any, where: str) -> Pose | None:
    """Return 16 numbers as a pose; None where the recorder lost track (numbers that are not finite).

    Raises:
        DataError: they are no rigid motion; naming `where`.
    """
    try:
        pose = np.array(values, np.float64).reshape(4, 4)
    except (TypeError, ValueError):
        raise DataError(f"{where}: expected a pose of 4 x 4 numbers, got {str(values)[:60]}.") from None
    if not np.isfinite(pose).all():
        return None
    turn = pose[:3, :3]
    if not np.allclose(turn @ turn.T, np.eye(3), atol=1e-2) or np.linalg.det(turn) < 0:
        raise DataError(f"{where}: its upper left 3 x 3 numbers are no rotation, so this is no pose.")
    if not np.allclose(pose[3], (0, 0, 0, 1)):
        raise DataError(f"{where}: the last row of a pose is 0 0 0 1, got {pose[3]}. Is it written column by column?")
    return pose


def read_pose_file(path: Path) -> Pose | None:
    """Return the pose in a text file of 4 x 4 numbers (7-Scenes, ScanNet); None without the file, or where tracking was
    lost.

    Raises:
        DataError: it holds something else.
    """
    if not path.is_file():
        return None
    try:
        return check_pose([float(word) for word in read_words(path)], str(path))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: no readable pose ({error}).") from error


def read_trajectory(path: Path) -> tuple[Float64[np.ndarray, " n"], Float64[np.ndarray, "n 4 4"]]:
    """Return times in seconds and poses of a trajectory in TUM RGB-D's format: `time tx ty tz qx qy qz qw` a line.

    Raises:
        DataError: it cannot be read; naming the line.
    """
    times, poses = [], []
    for number, line in read_lines(path, "the trajectory"):
        if not line.strip():
            continue
        try:
            time, *values = (float(word) for word in line.replace(",", " ").split())
            poses.append(pose_of(values[:3], values[3:]))
        except (ValueError, IndexError):
            raise DataError(f"{path}:{number}: expected TIME TX TY TZ QX QY QZ QW, got {line[:80]!r}.") from None
        times.append(time)
    if not times:
        raise DataError(f"{path}: no poses in it.")
    order = np.argsort(times, kind="stable")
    order = order[np.concatenate([[True], np.diff(np.array(times)[order]) > 0])]
    return np.array(times)[order], np.array(poses)[order]


def read_words(path: Path) -> list[str]:
    """Return what blanks or commas separate in a text file of numbers. Raises OSError, ValueError: no such text."""
    return path.read_text(encoding="utf-8-sig").replace(",", " ").split()


def read_lines(path: Path, what: str) -> list[tuple[int, str]]:
    """Return number and text of each line that is no comment. Raises DataError that says `what` cannot be read."""
    lines = enumerate(read_text(path, what).splitlines(), 1)
    return [(number, line) for number, line in lines if not line.startswith("#")]
