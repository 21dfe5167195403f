"""Camera walks through a room: a smooth path, things that move, and exact depth, poses and optical flow. Metres, z up.

A camera walks from spot to spot at walking pace and looks about; some of the furniture slides and turns. Exposure,
white balance and vignette are those of one camera, noise is new in every frame.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from jaxtyping import Float32, Float64
from scipy.interpolate import CubicSpline

from densevit.data.datasets.rooms import CLASSES, scene_name
from densevit_rooms.camera import MOUNTS, Camera, look_direction
from densevit_rooms.floorplan import CELL
from densevit_rooms.ray_tracer import RayTracer
from densevit_rooms.renderer import Frame, render_frame, sample_camera
from densevit_rooms.scene import Scene, build_scene, scene_rng

PACE = (0.3, 0.8)  # metres a second, low and high
STRIDE = (0.6, 1.5)  # metres from one spot to the next
CLEAR = (0.35, 0.2, 0.1)  # metres that a camera stays from everything; the lesser where it could go nowhere else
TURN = 0.5  # radians, the deviation of where a camera looks at the next spot
MOVABLE = ("chair", "object", "plant", "television")
WALK = 1 << 16  # the view number of the generator that draws a scene's walk: no view has it

Spot = Float64[np.ndarray, "2"]
"""On the floor, x and y in metres."""


@dataclass(frozen=True, eq=False)
class WalkFrame:
    """A frame of a walk."""

    frame: Frame
    time: float  # seconds
    # to the next frame, x and y in pixels, also of what is hidden there; NaN where a pixel shows nothing; None of the
    # last frame
    flow: Float32[np.ndarray, "h w 2"] | None


@dataclass(frozen=True)
class Mover:
    """A thing that slides to and fro, and turns about its own middle."""

    instance: int
    centre: tuple[float, float]
    reach: tuple[float, float]  # metres, along x and y
    turn: float  # radians
    period: float  # seconds
    phase: float

    def pose(self, time: float) -> tuple[float, Float64[np.ndarray, "3"]]:
        """Return the angle about z through the world's origin, and the offset after that."""
        wave = np.sin(2 * np.pi * time / self.period + self.phase) - np.sin(self.phase)
        angle = float(self.turn * wave)
        cos, sin = np.cos(angle), np.sin(angle)
        x, y = self.centre
        shift = np.array([x - cos * x + sin * y, y - sin * x - cos * y, 0.0])
        return angle, shift + wave * np.array([*self.reach, 0.0])


def render_walk(
    seed: int,
    split: str,
    scene: int,
    frames: int,
    size: tuple[int, int],
    fps: float,
    *,
    fov: float | tuple[float, float] | None = None,
    mount: str = "hand",
    movers: int = 2,
) -> Iterator[WalkFrame]:
    """Yield the frames of one walk. Raises DataError if embreex is not installed.

    Args:
        size: (h, w) in pixels.
        fps: frames a second.
        fov, mount: as of `render_scene`; one camera walks.
        movers: things that move, at most.
    """
    room = build_scene(seed, split, scene)
    rng = scene_rng(seed, split, scene, 0, WALK)
    cameras = list(walk_path(rng, room, sample_camera(rng, room, size, MOUNTS[mount], fov), frames, fps))
    things = draw_movers(rng, room, movers)
    look = int(rng.integers(1 << 31))
    for number, camera in enumerate(cameras):
        time = number / fps
        name = f"{split}/{scene_name(scene)}/{number:02d}"
        shown = moved_scene(room, things, time)
        noise = scene_rng(seed, split, scene, number)
        frame = render_frame(noise, shown, camera, name, np.random.default_rng(look))
        following = cameras[number + 1] if number + 1 < frames else None
        flow = None if following is None else optical_flow(frame, camera, following, things, time, time + 1 / fps)
        yield WalkFrame(frame, time, flow)


def walk_path(rng: np.random.Generator, scene: Scene, first: Camera, frames: int, fps: float) -> Iterator[Camera]:
    """Yield the camera at each frame: cubic splines through spots of the free floor, at one pace.

    Where no spot is in reach it turns where it stands.
    """
    pace, seconds = rng.uniform(*PACE), frames / fps
    spots, looks, walked = [first.position[:2]], [view_angles(first)], [0.0]
    clear = scene.floor.clearance()
    middle = np.array(scene.plan.extent) / 2
    while walked[-1] < pace * seconds:
        here = spots[-1]
        there = next(reachable_spots(rng, scene, clear, here), here)
        yaw, pitch = looks[-1]
        inward = middle - there
        towards = np.arctan2(inward[1], inward[0])
        back = np.angle(np.exp(1j * (towards - yaw)))  # a camera does not end up with its nose to a wall
        looks.append((yaw + 0.3 * back + rng.normal(0, TURN), float(np.clip(pitch + rng.normal(0, 0.1), -0.5, 0.3))))
        spots.append(there)
        walked.append(walked[-1] + max(float(np.hypot(*(there - here))), 0.3 * STRIDE[0]))
    along = np.minimum(np.arange(frames) / fps * pace, walked[-1])
    track = CubicSpline(walked, np.stack(spots), bc_type="clamped")(along)
    angles = CubicSpline(walked, np.array(looks), bc_type="clamped")(along)
    steps = 2 * np.pi * along / 0.7  # a bob a step
    for (x, y), (yaw, pitch), step in zip(track, angles, steps, strict=True):
        position = np.array([x, y, first.position[2] + 0.01 * np.sin(step)])
        axes = look_direction(float(yaw), float(pitch), float(0.01 * np.sin(step / 2)))
        yield replace(first, position=position, axes=axes)


def view_angles(camera: Camera) -> tuple[float, float]:
    """Return the yaw and pitch in radians."""
    x, y, z = camera.axes[:, 2]
    return float(np.arctan2(y, x)), float(np.arcsin(np.clip(z, -1, 1)))


def reachable_spots(
    rng: np.random.Generator, scene: Scene, clear: Float64[np.ndarray, "h w"], here: Spot
) -> Iterator[Spot]:
    """Yield random spots of the free floor a stride away, those that are farthest from everything first. `clear`: the
    floor's clearance."""
    for margin in CLEAR:
        near = scene.floor.spots_near(here, STRIDE, margin)
        draws = (near[rng.integers(len(near))] for _ in range(12 if len(near) else 0))
        yield from (spot for spot in draws if is_free(clear, here, spot, margin))


def is_free(clear: Float64[np.ndarray, "h w"], here: Spot, there: Spot, margin: float) -> bool:
    """Return whether the straight way keeps clear of everything, as far as its beginning does."""
    points = here + np.linspace(0, 1, 20)[:, None] * (there - here)
    cells = (points / CELL).astype(int).clip(0, np.array(clear.shape[::-1]) - 1)
    room = clear[cells[:, 1], cells[:, 0]]
    return bool((room >= min(0.8 * margin, float(room[0]))).all())


def draw_movers(rng: np.random.Generator, scene: Scene, most: int) -> list[Mover]:
    """Return the things that stay inside the room on their way."""
    geometry = scene.geometry
    movable = np.isin(geometry.label, [CLASSES.index(name) for name in MOVABLE])
    candidates = rng.permutation(np.unique(geometry.instance[movable])).tolist()
    outline = scene.plan.outline.astype(np.float32).reshape(-1, 1, 2)
    found: list[Mover] = []
    for instance in candidates:
        if len(found) == most:
            break
        corners = geometry.mesh.vertices[geometry.mesh.faces[geometry.instance == instance]].reshape(-1, 3)
        low, high = corners[:, :2].min(0), corners[:, :2].max(0)
        x, y = ((low + high) / 2).tolist()
        angle, length = rng.uniform(0, 2 * np.pi), rng.uniform(0.15, 0.4)
        reach = (float(length * np.cos(angle)), float(length * np.sin(angle)))
        margin = float(np.max(high - low)) / 2
        ends = [(x + side * 2 * reach[0], y + side * 2 * reach[1]) for side in (-1, 1)]
        if all(cv2.pointPolygonTest(outline, end, True) > margin for end in ends):
            turn, period, phase = rng.normal(0, 0.5), rng.uniform(2, 5), rng.uniform(0, 2 * np.pi)
            found.append(Mover(int(instance), (x, y), reach, float(turn), float(period), float(phase)))
    return found


def moved_scene(scene: Scene, movers: Sequence[Mover], time: float) -> Scene:
    """Return the scene with its moving things where they are at `time`, in seconds."""
    if not movers:
        return scene
    mesh = scene.geometry.mesh
    vertices, normals, flat = mesh.vertices.copy(), mesh.normals.copy(), scene.geometry.flat.copy()
    for mover in movers:
        faces = np.flatnonzero(scene.geometry.instance == mover.instance)
        own = np.unique(mesh.faces[faces])
        angle, offset = mover.pose(time)
        turn = about_z(angle)
        vertices[own] = mesh.vertices[own] @ turn.T + offset
        normals[own] = (mesh.normals[own] @ turn.T).astype(np.float32)
        flat[faces] = scene.geometry.flat[faces] @ turn.T
    geometry = replace(scene.geometry, mesh=replace(mesh, vertices=vertices, normals=normals), flat=flat)
    return replace(scene, geometry=geometry, tracer=RayTracer(vertices, mesh.faces))


def optical_flow(
    frame: Frame, camera: Camera, following: Camera, movers: Sequence[Mover], now: float, then: float
) -> Float32[np.ndarray, "h w 2"]:
    """Return where each pixel's point is in the next frame, less where it is now; NaN without depth or behind the
    camera."""
    h, w = camera.size
    assert frame.sample.depth is not None
    depth = frame.sample.depth.reshape(-1)
    points = camera.position + camera.rays().astype(np.float64) * depth[:, None]
    for mover in movers:
        own = np.flatnonzero(frame.instances.reshape(-1) == mover.instance)
        (angle, offset), (angle_then, offset_then) = mover.pose(now), mover.pose(then)
        at_rest = (points[own] - offset) @ about_z(angle)
        points[own] = at_rest @ about_z(angle_then).T + offset_then
    local = (points - following.position) @ following.axes
    (f, _, cx), (_, fy, cy) = following.intrinsics[:2]
    seen = (depth > 0) & (local[:, 2] > 1e-3)
    z = np.where(seen, local[:, 2], 1)
    to = np.stack([f * local[:, 0] / z + cx, fy * local[:, 1] / z + cy], 1)
    x, y = np.meshgrid(np.arange(w), np.arange(h))
    flow = np.where(seen[:, None], to - np.stack([x, y], -1).reshape(-1, 2), np.nan)
    return np.asarray(flow.reshape(h, w, 2), dtype=np.float32)


def about_z(angle: float) -> Float64[np.ndarray, "3 3"]:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
