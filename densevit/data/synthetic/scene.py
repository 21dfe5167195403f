"""Builds a furnished room as a function of (seed, split, scene)."""

import zlib
from dataclasses import dataclass, replace

import numpy as np

from densevit.data.synthetic import furniture_models, room_shell
from densevit.data.synthetic.floorplan import FloorPlan, FreeFloor, draw_plan
from densevit.data.synthetic.furniture_layout import ROOM_TYPES, Placed, furnish
from densevit.data.synthetic.lights import Light
from densevit.data.synthetic.ray_tracer import RayTracer
from densevit.data.synthetic.scene_builder import Builder, Geometry

MAX_EXTENT = 12.5  # metres; the longest diagonal that 16-bit depth at 5000 units per metre holds, with a margin


@dataclass(frozen=True)
class Scene:
    geometry: Geometry
    plan: FloorPlan
    floor: FreeFloor  # where a camera can stand
    tracer: RayTracer


def scene_rng(seed: int, split: str, scene: int, frame: int | None = None, view: int = 0) -> np.random.Generator:
    """The random generator of one scene, of one frame of it, or of a further view of that; all are independent."""
    key = (seed, zlib.crc32(split.encode()), scene, 0 if frame is None else frame + 1)
    return np.random.default_rng(np.random.SeedSequence((*key, view) if view else key))


def build_scene(seed: int, split: str, scene: int) -> Scene:
    rng = scene_rng(seed, split, scene)
    room_type = ROOM_TYPES[str(rng.choice(list(ROOM_TYPES)))]
    plan = draw_plan(rng, room_type.sides, room_type.height)
    while np.hypot(*plan.extent) > MAX_EXTENT - plan.height / 4:
        plan = draw_plan(rng, room_type.sides, room_type.height)
    floor, build = FreeFloor(plan), Builder()
    room_shell.build_shell(rng, build, plan)
    room_shell.build_openings(rng, build, plan, floor)
    room_shell.build_rug(rng, build, plan, floor)
    pieces = list(furnish(rng, plan, floor, room_type))
    for piece in pieces:
        add_furniture(rng, build, piece)
    build.lights.extend(build_lights(rng, plan, pieces))
    geometry = build.finish()
    return Scene(geometry, plan, floor, RayTracer(geometry.mesh.vertices, geometry.mesh.faces))


def add_furniture(rng: np.random.Generator, build: Builder, piece: Placed) -> None:
    """Adds a model with a random tint, so that copies of a model differ in colour."""
    mesh, images = furniture_models.load(piece.model.name)
    numbers = np.array([build.texture(image) for image in images])
    tint = np.exp(rng.normal(0, 0.25)) * np.exp(rng.normal(0, 0.12, 3))
    tinted = replace(mesh, texture=numbers[mesh.texture], tint=np.clip(mesh.tint * tint, 0, 0.95).astype(np.float32))
    build.add(piece.model.label, [tinted.transformed(piece.angle, piece.centre)])


def build_lights(rng: np.random.Generator, plan: FloorPlan, pieces: list[Placed]) -> list[Light]:
    """Lights of one colour temperature: the hanging lamps, and one or two spots under the ceiling."""
    tone = rng.uniform((0.9, 0.75, 0.5), (1.0, 1.0, 1.05))
    power = float(rng.uniform(2.0, 6.0)) * plan.height
    spots = [p.centre for p in pieces if p.model.name == "lamp2"]
    for _ in range(int(rng.integers(1, 3))):
        spots.append((*plan.inside(rng, 0.4), plan.height - 0.25))
    radius = float(rng.uniform(0.05, 0.3))
    share = power / len(spots)
    colour = (float(tone[0] * share), float(tone[1] * share), float(tone[2] * share))
    return [Light(spot, colour, radius) for spot in spots]
