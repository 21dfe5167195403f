"""Renders frames of a scene: samples a camera pose, traces rays, shades, and simulates the sensor."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import itemgetter

import cv2
import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8, UInt16

from densevit.data.datasets.rooms import CLASSES, DEPTH_SCALE, scene_name
from densevit.structures import Sample
from densevit_rooms.camera import MOUNTS, Camera, Mount, look_direction
from densevit_rooms.lights import ambient, direct, smooth_light
from densevit_rooms.scene import Scene, build_scene, scene_rng
from densevit_rooms.variety import Sensor

PREVIEW_WIDTH = 24  # rays across, that rate a camera pose
BASELINE = (0.3, 1.2)  # metres between the camera poses of one place
AIMED = (0.25, 4.0)  # metres from a camera to the thing that it looks at
OVERLAP = 0.5  # share of a further view that the first one shows, too, from which on it is good
IGNORE = 255
TRIES = 12
GREY = 0.32  # mean linear brightness that the exposure aims at


@dataclass(frozen=True)
class Frame:
    """A sample, and what Sample has no field for."""

    sample: Sample
    instances: UInt16[np.ndarray, "h w"]  # 0 = walls, floor and ceiling; else one number per object of the scene


def render_scene(
    seed: int,
    split: str,
    scene: int,
    frames: int,
    size: tuple[int, int],
    *,
    fov: float | tuple[float, float] | None = None,
    mount: str | None = None,
    views: int = 1,
    baseline: tuple[float, float] = BASELINE,
    variety: str = "demo",
) -> Iterator[Frame]:
    """Yield the frames of one scene with depth, validity, labels (densevit.data.datasets.rooms.CLASSES) and intrinsics.
    Raises DataError if embreex is not installed.

    Args:
        size: (h, w) in pixels.
        fov: horizontal field of view in degrees, or the two ends of the range that it is drawn from for each frame;
            None takes the range of the mount.
        mount: how the camera is held (camera.MOUNTS); None takes the variety's: hand, or any for wide.
        views: camera poses of the place that a frame shows; those of one place follow each other.
        baseline: metres, low and high, from the first of these poses to the others.
        variety: how much rooms, light and cameras differ (variety.VARIETIES).
    """
    room = build_scene(seed, split, scene, variety)
    held = MOUNTS[mount or room.variety.mount]
    for frame in range(frames):
        rng = scene_rng(seed, split, scene, frame)
        camera = sample_camera(rng, room, size, held, fov)
        yield render_frame(rng, room, camera, f"{split}/{scene_name(scene)}/{frame * views:02d}")
        for view in range(1, views):
            rng = scene_rng(seed, split, scene, frame, view)
            other = sample_view(rng, room, camera, held, baseline)
            yield render_frame(rng, room, other, f"{split}/{scene_name(scene)}/{frame * views + view:02d}")


def sample_camera(
    rng: np.random.Generator,
    scene: Scene,
    size: tuple[int, int],
    mount: Mount,
    fov: float | tuple[float, float] | None = None,
) -> Camera:
    """Return a random camera pose on free floor: the first with the full rating, or the best of TRIES."""

    def draw() -> tuple[float, Camera]:
        mean, reach = mount.height[0], mount.spread
        height = min(float(np.clip(rng.normal(*mount.height), mean - reach, mean + reach)), scene.plan.height - 0.4)
        position = np.array([*scene.floor.spot(rng, 0.5), height])
        inward = np.array(scene.plan.extent) / 2 - position[:2]
        yaw = np.arctan2(inward[1], inward[0]) + rng.normal(0, 0.9)
        axes = look_direction(float(yaw), float(rng.normal(*mount.pitch)), float(rng.normal(0, mount.roll)))
        degrees = fov if isinstance(fov, float | int) else rng.uniform(*(fov or mount.fov))
        camera = Camera(position, axes, size, float(np.deg2rad(degrees)))
        if mount.centre:
            camera = replace(camera, centre=tuple(rng.normal(0, mount.centre, 2).tolist()))
        return rate_view(scene, camera), camera

    def draw_aimed() -> tuple[float, Camera]:
        camera = aim(rng, scene, draw()[1])
        return rate_view(scene, camera, near=0.2, far=0.4, furniture=0.02, largest=0.8), camera

    aimed = scene.variety.aimed and rng.random() < scene.variety.aimed
    return best_of(draw_aimed if aimed else draw)


def aim(rng: np.random.Generator, scene: Scene, camera: Camera) -> Camera:
    """Return the camera at a random distance from a random thing and from any side, looking at it but not quite.

    Where TRIES find no place from which it is seen, the camera stays where it was.
    """
    mesh, instance = scene.geometry.mesh, scene.geometry.instance
    outline = scene.plan.outline.astype(np.float32)
    for _ in range(TRIES):
        corners = mesh.vertices[mesh.faces[instance == rng.integers(1, max(instance.max(), 1) + 1)]].reshape(-1, 3)
        distance, rise = np.exp(rng.uniform(np.log(AIMED[0]), np.log(AIMED[1]))), rng.uniform(-0.3, 1.2)
        if not len(corners) or corners[:, 2].min() > 1.2:  # a lamp or a picture
            continue
        target = corners.mean(axis=0)
        position = target + distance * look_direction(float(rng.uniform(0, 2 * np.pi)), float(rise), 0.0)[:, 2]
        inside = cv2.pointPolygonTest(outline, (float(position[0]), float(position[1])), True) > 0.1
        halfway = ((target - position) / 2).astype(np.float32)[None]
        if not inside or not 0.08 < position[2] < scene.plan.height - 0.1:
            continue
        if scene.tracer.occluded(position.astype(np.float32)[None], halfway)[0]:
            continue
        ahead = target - position + rng.normal(0, 0.15, 3) * distance
        yaw, pitch = np.arctan2(ahead[1], ahead[0]), np.arctan2(ahead[2], np.hypot(ahead[0], ahead[1]))
        roll = rng.normal(0, 0.05 if rng.random() < 0.8 else 0.3)
        return replace(camera, position=position, axes=look_direction(float(yaw), float(pitch), float(roll)))
    return camera


def sample_view(
    rng: np.random.Generator, scene: Scene, first: Camera, mount: Mount, baseline: tuple[float, float] = BASELINE
) -> Camera:
    """Return the same camera at another pose that looks at the place of the first: the best of TRIES.

    It is `baseline` (low, high) metres away; where no floor is free there, it only turns. Height and pitch stay within
    what the mount allows.
    """
    _, depth, _ = scene.tracer.intersect(first.position, preview(first).rays())
    target = first.position + first.axes[:, 2] * float(np.median(depth))
    here = first.position[:2]
    frees = (scene.floor.spots_near(here, baseline, margin) for margin in (0.4, 0.2, 0.05))
    spots = next((free for free in frees if len(free)), here[None])

    def draw() -> tuple[float, Camera]:
        spot = spots[rng.integers(len(spots))]
        position = np.array([*spot, first.position[2] + rng.normal(0, min(0.1, mount.height[1]))])
        ahead = target - position
        yaw = np.arctan2(ahead[1], ahead[0]) + rng.normal(0, 0.1)
        pitch = np.arctan2(ahead[2], np.hypot(ahead[0], ahead[1])) + rng.normal(0, 0.05)
        mean, deviation = mount.pitch
        pitch = np.clip(pitch, mean - 4 * deviation, mean + 4 * deviation)
        camera = replace(first, position=position, axes=look_direction(float(yaw), float(pitch), rng.normal(0, 0.03)))
        return rate_view(scene, camera) * min(shared_view(scene, first, camera) / OVERLAP, 1.0), camera

    return best_of(draw)


def best_of(draw: Callable[[], tuple[float, Camera]]) -> Camera:
    """Return the first camera with the full rating, or the best of TRIES; `draw` gives rating and camera."""
    best = draw()
    for _ in range(TRIES - 1):
        if best[0] >= 1:
            break
        best = max(best, draw(), key=itemgetter(0))
    return best[1]


def shared_view(scene: Scene, first: Camera, second: Camera) -> float:
    """Return the share of the second view that the first one shows, too."""
    small = preview(second)
    rays = small.rays()
    _, depth, _ = scene.tracer.intersect(second.position, rays)
    to_points = second.position + rays * depth[:, None] - first.position
    local = to_points @ first.axes
    (f, _, cx), (_, _, cy) = first.intrinsics[:2]
    with np.errstate(divide="ignore", invalid="ignore"):
        u, v = f * local[:, 0] / local[:, 2] + cx, f * local[:, 1] / local[:, 2] + cy
    h, w = first.size
    inside = (local[:, 2] > 0) & (u > -0.5) & (u < w - 0.5) & (v > -0.5) & (v < h - 0.5)
    seen = ~scene.tracer.occluded(
        np.broadcast_to(first.position.astype(np.float32), rays.shape).copy(), (to_points * 0.99).astype(np.float32)
    )
    return float((inside & seen).mean())


def preview(camera: Camera) -> Camera:
    """Return the camera with an image a few rays wide."""
    h, w = camera.size
    return replace(camera, size=(max(round(PREVIEW_WIDTH * h / w), 2), PREVIEW_WIDTH))


def rate_view(
    scene: Scene,
    camera: Camera,
    *,
    near: float = 0.6,
    far: float = 1.5,
    furniture: float = 0.125,
    largest: float = 0.4,
) -> float:
    """Return 1 for a good view: an eighth furniture, no object over 40 %, nothing near, some depth; else less."""
    triangle, depth, _ = scene.tracer.intersect(camera.position, preview(camera).rays())
    things = (scene.geometry.label[triangle] >= CLASSES.index("bed")).mean()
    share = np.bincount(scene.geometry.instance[triangle])[1:].max(initial=0) / len(triangle)
    nearest, farthest = np.percentile(depth, (3, 90))
    marks = (things / furniture, 1 + largest - share, nearest / near, farthest / far)
    return float(np.prod(np.minimum(marks, 1.0)))


def render_frame(
    rng: np.random.Generator, scene: Scene, camera: Camera, name: str, look: np.random.Generator | None = None
) -> Frame:
    """Return the image and the ground truth that a camera records. `look`: draws the camera's vignette, exposure and
    white balance, so that several frames can share them."""
    h, w = camera.size
    rays = camera.rays()
    triangle, distance, weights = scene.tracer.intersect(camera.position, rays)
    hit = triangle >= 0  # a ray can slip between two triangles that only touch; such a pixel is not valid
    triangle, distance = np.where(hit, triangle, 0), np.where(hit, distance, np.float32(0))
    depth = np.where(distance < 65535 / DEPTH_SCALE, distance, 0).astype(np.float32).reshape(h, w)
    geometry = scene.geometry
    light = shade(rng, scene, camera, rays, triangle, distance, weights)
    light = np.where(hit[:, None], light, 0).reshape(h, w, 3).astype(np.float32)
    sample = Sample(
        name=name,
        image=simulate_sensor(rng, light, look or rng, scene.variety.sensor),
        depth=depth,
        valid=depth > 0,
        labels=np.where(hit, geometry.label[triangle], IGNORE).astype(np.int64).reshape(h, w),
        normals=np.where((depth > 0)[..., None], facing_normals(scene, camera, rays, triangle).reshape(h, w, 3), 0),
        intrinsics=camera.intrinsics,
        pose=camera.pose,
    )
    return Frame(sample, np.where(hit, geometry.instance[triangle], 0).astype(np.uint16).reshape(h, w))


def facing_normals(
    scene: Scene, camera: Camera, rays: Float32[np.ndarray, "n 3"], triangle: Int64[np.ndarray, " n"]
) -> Float32[np.ndarray, "n 3"]:
    """Return the unit normals of the triangles themselves, in camera axes, on the side that the camera sees."""
    flat = scene.geometry.flat[triangle]
    towards = -np.sign(np.einsum("ij,ij->i", flat, rays))
    return np.asarray((flat * towards[:, None]) @ camera.axes, dtype=np.float32)


def shade(
    rng: np.random.Generator,
    scene: Scene,
    camera: Camera,
    rays: Float32[np.ndarray, "n 3"],
    triangle: Int64[np.ndarray, " n"],
    distance: Float32[np.ndarray, " n"],
    weights: Float32[np.ndarray, "n 2"],
) -> Float32[np.ndarray, "n 3"]:
    """Return the linear radiance of each pixel."""
    geometry, mesh = scene.geometry, scene.geometry.mesh
    corners, share = mesh.faces[triangle], barycentric(weights)
    flat = geometry.flat[triangle].astype(np.float32)
    flat *= -np.sign(np.einsum("ij,ij->i", flat, rays))[:, None]  # models are not all closed: a face has two sides
    smooth = np.einsum("ijk,ij->ik", mesh.normals[corners], share)
    smooth *= np.sign(np.einsum("ij,ij->i", smooth, flat))[:, None]
    smooth /= np.sqrt(np.maximum(np.einsum("ij,ij->i", smooth, smooth), 1e-12))[:, None]
    points = (camera.position + rays * distance[:, None] + flat * 2e-3).astype(np.float32)

    facing = np.abs(np.einsum("ij,ij->i", flat, rays)) / np.linalg.norm(rays, axis=1)
    pixel = distance / camera.intrinsics[0, 0] / np.sqrt(np.maximum(facing, 0.05))
    albedo = albedo_of(scene, triangle, weights, (pixel * geometry.density[triangle]).astype(np.float32))

    occluded = scene.tracer.occluded
    lit = sum((direct(lamp, points, smooth, occluded, rng) for lamp in geometry.lights), np.zeros_like(points))
    mean = lit.mean()
    lit += (scene.ambient * mean * ambient(points, flat, occluded, rng, 0.8, scene.occluded_ambient))[:, None]
    h, w = camera.size
    lit = smooth_light(lit.reshape(h, w, 3), smooth.reshape(h, w, 3), distance.reshape(h, w)).reshape(-1, 3)
    glow = geometry.label[triangle] == CLASSES.index("window")
    light = np.asarray(np.where(glow[:, None], albedo * 2.5 * mean, albedo * lit), dtype=np.float32)
    if scene.gloss:
        floor = np.flatnonzero(geometry.label[triangle] == CLASSES.index("floor"))
        light[floor] += mirrored(rng, scene, rays[floor], points[floor], flat[floor], lit.mean(axis=0))
    return light


def barycentric(weights: Float32[np.ndarray, "n 2"]) -> Float32[np.ndarray, "n 3"]:
    """Return the share of each of a triangle's three vertices."""
    return np.column_stack([1 - weights[:, 0] - weights[:, 1], weights])


def albedo_of(
    scene: Scene,
    triangle: Int64[np.ndarray, " n"],
    weights: Float32[np.ndarray, "n 2"],
    footprint: Float32[np.ndarray, " n"],
) -> Float32[np.ndarray, "n 3"]:
    """Return the share of light that points of triangles reflect; `footprint` is the side of a pixel in units of uv."""
    geometry, mesh = scene.geometry, scene.geometry.mesh
    uv = np.einsum("ijk,ij->ik", mesh.uv[mesh.faces[triangle]], barycentric(weights))
    texel = geometry.textures.sample(mesh.texture[triangle], uv, footprint)
    return np.asarray((texel / 255) ** 2.2 * mesh.tint[triangle])


def mirrored(
    rng: np.random.Generator,
    scene: Scene,
    rays: Float32[np.ndarray, "n 3"],
    points: Float32[np.ndarray, "n 3"],
    normals: Float32[np.ndarray, "n 3"],
    mean: Float32[np.ndarray, "3"],
) -> Float32[np.ndarray, "n 3"]:
    """Return what a polished floor adds: its surroundings in mean light, more the lower it is seen (Schlick's
    Fresnel)."""
    if not len(rays):
        return np.zeros_like(rays)
    cos = np.einsum("ij,ij->i", rays, normals)
    away = rays - 2 * cos[:, None] * normals
    length = np.linalg.norm(away, axis=1, keepdims=True)
    away = away / length + rng.normal(0, 0.02, away.shape)  # not quite even
    triangle, _, weights = scene.tracer.intersect(points, away.astype(np.float32))
    albedo = albedo_of(scene, np.maximum(triangle, 0), weights, np.full(len(triangle), 0.05, np.float32))
    fresnel = scene.gloss * (0.06 + 0.94 * (1 - np.abs(cos) / length[:, 0]) ** 5)
    return np.asarray(fresnel[:, None] * np.minimum(albedo, 3) * mean, dtype=np.float32)


def simulate_sensor(
    rng: np.random.Generator, light: Float32[np.ndarray, "h w 3"], look: np.random.Generator, sensor: Sensor
) -> UInt8[np.ndarray, "h w 3"]:
    """Return an 8-bit image: lens blur, vignette, exposure, noise, a filmic tone curve, sRGB gamma."""
    h, w, _ = light.shape
    soft = cv2.GaussianBlur(light, (0, 0), look.uniform(*sensor.blur) if sensor.blur else 0.55)
    if sensor.shake and rng.random() < 0.15:
        soft = cv2.filter2D(soft, -1, streak(rng, sensor.shake))
    exposed = (
        soft
        * vignette(h, w, look.uniform(0, 0.35))
        * (GREY * np.exp(look.normal(0, sensor.exposure)) / max(float(soft.mean()), 1e-6))
    )
    exposed *= np.exp(look.normal(0, sensor.white_balance, 3))
    noise = rng.standard_normal((h, w, 3), dtype=np.float32)
    noisy = exposed + noise * rng.uniform(*sensor.noise) * np.sqrt(exposed + 0.02)
    steep = look.uniform(*sensor.curve) if sensor.curve else 1.6
    film = 1 - np.exp(-steep * np.maximum(noisy, 0))
    srgb = (film / (1 - np.exp(-steep * 1.8))) ** (1 / 2.2)
    return np.asarray((255 * srgb).clip(0, 255), dtype=np.uint8)


def streak(rng: np.random.Generator, most: float) -> Float32[np.ndarray, "s s"]:
    """Return the kernel of a straight smear of random direction, up to `most` pixels long."""
    side = 2 * int(np.ceil(most / 2)) + 1
    kernel = np.zeros((side, side), dtype=np.float32)
    middle, turn, reach = side // 2, rng.uniform(0, np.pi), rng.uniform(0.5, most / 2)
    step = (round(reach * np.cos(turn)), round(reach * np.sin(turn)))
    cv2.line(kernel, (middle - step[0], middle - step[1]), (middle + step[0], middle + step[1]), 1.0)
    return np.asarray(kernel / kernel.sum(), dtype=np.float32)


def vignette(h: int, w: int, strength: float) -> Float64[np.ndarray, "h w 1"]:
    y, x = np.linspace(-1, 1, h)[:, None], np.linspace(-1, 1, w)[None]
    return np.asarray(1 - strength * (x**2 + y**2) / 2)[..., None]
