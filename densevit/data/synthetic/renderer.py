"""Photographs of a scene: where the camera stands, what it sees, and what its sensor makes of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import cv2
import numpy as np
from jaxtyping import Float32, Float64, Int64, UInt8, UInt16

from densevit.data.datasets.rooms import CLASSES, DEPTH_SCALE, scene_name
from densevit.data.synthetic.camera import MOUNTS, Camera, Mount, aim
from densevit.data.synthetic.lights import ambient, direct, even
from densevit.data.synthetic.scene import Scene, build_scene, stream
from densevit.structures import Sample

PROBE = 24  # rays across that judge a view
IGNORE = 255
TRIES = 12
FILL = 0.8  # light from all around, as a share of the mean light from lamps
GREY = 0.32  # mean linear brightness that the exposure aims at


@dataclass(frozen=True)
class Frame:
    """A sample, and what Sample has no field for."""

    sample: Sample
    instances: UInt16[np.ndarray, "h w"]  # 0 = walls, floor and ceiling; else one number per thing of the scene


def render_scene(
    seed: int,
    split: str,
    scene: int,
    frames: int,
    size: tuple[int, int],
    *,
    fov: float | None = None,
    mount: str = "hand",
) -> Iterator[Sample]:
    """The frames of one scene with depth, validity, labels (densevit.data.datasets.rooms.CLASSES) and intrinsics.

    Args:
        size: (h, w) in pixels.
        fov: horizontal field of view in degrees; None draws one for each frame.
        mount: how the camera is held, `hand` or `robot` (camera.MOUNTS).

    Raises:
        DataError: embreex is not installed.
    """
    for frame in render_frames(seed, split, scene, frames, size, fov=fov, mount=mount):
        yield frame.sample


def render_frames(
    seed: int,
    split: str,
    scene: int,
    frames: int,
    size: tuple[int, int],
    *,
    fov: float | None = None,
    mount: str = "hand",
) -> Iterator[Frame]:
    """As `render_scene`, with instance numbers."""
    room = build_scene(seed, split, scene)
    for frame in range(frames):
        rng = stream(seed, split, scene, frame)
        camera = choose_view(rng, room, size, MOUNTS[mount], fov)
        yield photograph(rng, room, camera, f"{split}/{scene_name(scene)}/{frame:02d}")


def choose_view(
    rng: np.random.Generator, room: Scene, size: tuple[int, int], mount: Mount, fov: float | None = None
) -> Camera:
    """A view from free floor: the first of some that `judge` has nothing against, or the best of them."""
    best: tuple[float, Camera] | None = None
    for _ in range(TRIES):
        height = min(float(np.clip(rng.normal(*mount.height), 1.0, 1.8)), room.plan.height - 0.4)
        position = np.array([*room.floor.spot(rng, 0.5), height])
        inward = np.array(room.plan.extent) / 2 - position[:2]
        yaw = np.arctan2(inward[1], inward[0]) + rng.normal(0, 0.9)
        axes = aim(float(yaw), float(rng.normal(*mount.pitch)), float(rng.normal(0, mount.roll)))
        camera = Camera(position, axes, size, float(np.deg2rad(fov or rng.uniform(*mount.fov))))
        worth = judge(room, camera)
        if best is None or worth > best[0]:
            best = worth, camera
        if worth >= 1:
            break
    assert best is not None
    return best[1]


def judge(room: Scene, camera: Camera) -> float:
    """1 for a view worth keeping: an eighth furniture, no thing over 40 %, nothing near, some depth; else less."""
    h, w = camera.size
    probe = replace(camera, size=(max(round(PROBE * h / w), 2), PROBE))
    triangle, depth, _ = room.tracer.first(camera.position, probe.rays())
    furniture = (room.geometry.label[triangle] >= CLASSES.index("bed")).mean()
    largest = np.bincount(room.geometry.instance[triangle])[1:].max(initial=0) / len(triangle)
    near, far = np.percentile(depth, (3, 90))
    marks = (furniture / 0.125, 1.4 - largest, near / 0.6, far / 1.5)
    return float(np.prod(np.minimum(marks, 1.0)))


def photograph(rng: np.random.Generator, room: Scene, camera: Camera, name: str) -> Frame:
    """What a camera sees."""
    h, w = camera.size
    rays = camera.rays()
    triangle, distance, weights = room.tracer.first(camera.position, rays)
    hit = triangle >= 0  # a ray can slip between two triangles that only touch; such a pixel is not valid
    triangle, distance = np.where(hit, triangle, 0), np.where(hit, distance, np.float32(0))
    depth = np.where(distance < 65535 / DEPTH_SCALE, distance, 0).astype(np.float32).reshape(h, w)
    geometry = room.geometry
    light = shade(rng, room, camera, rays, triangle, distance, weights)
    sample = Sample(
        name=name,
        image=develop(rng, np.where(hit[:, None], light, 0).reshape(h, w, 3).astype(np.float32)),
        depth=depth,
        valid=depth > 0,
        labels=np.where(hit, geometry.label[triangle], IGNORE).astype(np.int64).reshape(h, w),
        intrinsics=camera.intrinsics,
    )
    return Frame(sample, np.where(hit, geometry.instance[triangle], 0).astype(np.uint16).reshape(h, w))


def shade(
    rng: np.random.Generator,
    room: Scene,
    camera: Camera,
    rays: Float32[np.ndarray, "n 3"],
    triangle: Int64[np.ndarray, " n"],
    distance: Float32[np.ndarray, " n"],
    weights: Float32[np.ndarray, "n 2"],
) -> Float32[np.ndarray, "n 3"]:
    """Linear light from each pixel's surface to the camera."""
    geometry, mesh = room.geometry, room.geometry.mesh
    corners = mesh.faces[triangle]
    share = np.column_stack([1 - weights[:, 0] - weights[:, 1], weights])
    flat = geometry.flat[triangle].astype(np.float32)
    flat *= -np.sign(np.einsum("ij,ij->i", flat, rays))[:, None]  # models are not all closed: a face has two sides
    smooth = np.einsum("ijk,ij->ik", mesh.normals[corners], share)
    smooth *= np.sign(np.einsum("ij,ij->i", smooth, flat))[:, None]
    smooth /= np.sqrt(np.maximum(np.einsum("ij,ij->i", smooth, smooth), 1e-12))[:, None]
    points = (camera.position + rays * distance[:, None] + flat * 2e-3).astype(np.float32)

    facing = np.abs(np.einsum("ij,ij->i", flat, rays)) / np.linalg.norm(rays, axis=1)
    pixel = distance / camera.intrinsics[0, 0] / np.sqrt(np.maximum(facing, 0.05))
    uv = np.einsum("ijk,ij->ik", mesh.uv[corners], share)
    texel = geometry.textures.sample(
        mesh.texture[triangle], uv, (pixel * geometry.density[triangle]).astype(np.float32)
    )
    albedo = (texel / 255) ** 2.2 * mesh.tint[triangle]

    blocked = room.tracer.blocked
    lit = sum((direct(lamp, points, smooth, blocked, rng) for lamp in geometry.lights), np.zeros_like(points))
    mean = lit.mean()
    lit += (FILL * mean * ambient(points, flat, blocked, rng, reach=0.8))[:, None]
    h, w = camera.size
    lit = even(lit.reshape(h, w, 3), smooth.reshape(h, w, 3), distance.reshape(h, w)).reshape(-1, 3)
    glow = geometry.label[triangle] == CLASSES.index("window")
    return np.asarray(np.where(glow[:, None], albedo * 2.5 * mean, albedo * lit), dtype=np.float32)


def develop(rng: np.random.Generator, light: Float32[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h w 3"]:
    """An 8-bit photograph: lens blur, vignette, exposure, noise, a shoulder for the highlights, sRGB's gamma."""
    h, w, _ = light.shape
    soft = cv2.GaussianBlur(light, (0, 0), 0.55)
    exposed = (
        soft
        * vignette(h, w, rng.uniform(0, 0.35))
        * (GREY * np.exp(rng.normal(0, 0.25)) / max(float(soft.mean()), 1e-6))
    )
    exposed *= np.exp(rng.normal(0, 0.04, 3))  # white balance
    noise = rng.standard_normal((h, w, 3), dtype=np.float32)
    noisy = exposed + noise * rng.uniform(0.002, 0.012) * np.sqrt(exposed + 0.02)
    film = 1 - np.exp(-1.6 * np.maximum(noisy, 0))
    srgb = (film / (1 - np.exp(-1.6 * 1.8))) ** (1 / 2.2)
    return np.asarray((255 * srgb).clip(0, 255), dtype=np.uint8)


def vignette(h: int, w: int, strength: float) -> Float64[np.ndarray, "h w 1"]:
    y, x = np.linspace(-1, 1, h)[:, None], np.linspace(-1, 1, w)[None]
    return np.asarray(1 - strength * (x**2 + y**2) / 2)[..., None]
