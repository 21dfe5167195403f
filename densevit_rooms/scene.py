"""Builds a furnished room as a function of (seed, split, scene)."""

import zlib
from dataclasses import dataclass, replace

import numpy as np

from densevit_rooms import furniture_models, room_shell, textures
from densevit_rooms.clutter import add_clutter
from densevit_rooms.crowd import add_crowd
from densevit_rooms.floorplan import FloorPlan, FreeFloor, draw_plan
from densevit_rooms.furniture_layout import Placed, furnish
from densevit_rooms.lights import Light
from densevit_rooms.mesh import quad
from densevit_rooms.ray_tracer import RayTracer
from densevit_rooms.scene_builder import Builder, Geometry
from densevit_rooms.variety import DEMO, VARIETIES, Variety

MAX_EXTENT = 12.5  # metres; the longest diagonal that 16-bit depth at 5000 units per metre holds, with a margin


@dataclass(frozen=True)
class Scene:
    geometry: Geometry
    plan: FloorPlan
    floor: FreeFloor  # where a camera can stand
    tracer: RayTracer
    variety: Variety = DEMO
    ambient: float = DEMO.ambient[0]  # ambient light, as a share of the mean direct light
    occluded_ambient: float = DEMO.occluded_ambient[0]  # share of it that is left in corners and inside things
    gloss: float = 0.0  # share of light that the floor reflects as a mirror does, seen from very low


def scene_rng(seed: int, split: str, scene: int, frame: int | None = None, view: int = 0) -> np.random.Generator:
    """Return the random generator of one scene, of one frame of it, or of a further view of that; all are
    independent."""
    key = (seed, zlib.crc32(split.encode()), scene, 0 if frame is None else frame + 1)
    return np.random.default_rng(np.random.SeedSequence((*key, view) if view else key))


def build_scene(seed: int, split: str, scene: int, variety: str = "demo") -> Scene:
    """Return a room of one of VARIETIES; those of two have nothing in common."""
    rng, chosen = scene_rng(seed, split, scene), VARIETIES[variety]
    room_type = chosen.rooms[str(rng.choice(list(chosen.rooms)))]

    def draw() -> FloorPlan:
        return draw_plan(rng, room_type.sides, room_type.height, room_type.width)

    plan = draw()
    while np.hypot(*plan.extent) > MAX_EXTENT - plan.height / 4:
        plan = draw()
    floor, build = FreeFloor(plan), Builder()
    passages = room_shell.draw_passages(rng, plan, chosen.passages) if chosen.passages else []
    room_shell.build_shell(rng, build, plan, chosen, passages)
    room_shell.build_openings(rng, build, plan, floor, chosen, passages)
    room_shell.build_rug(rng, build, plan, floor)
    pieces = list(furnish(rng, plan, floor, room_type))
    for piece in pieces:
        add_furniture(rng, build, piece)
    if chosen.clutter:
        add_clutter(rng, build, floor, pieces, chosen)
    if chosen.crowded and rng.random() < chosen.crowded:
        add_crowd(rng, build, plan, floor, chosen)
    build.lights.extend(build_lights(rng, plan, pieces, chosen.power))
    if chosen.panels and rng.random() < chosen.panels:
        add_panels(rng, build, plan)
    ambient = float(np.exp(rng.uniform(*np.log(chosen.ambient))))
    gloss = float(rng.uniform(0.1, 0.8)) if chosen.gloss and rng.random() < chosen.gloss else 0.0
    occluded = float(rng.uniform(*chosen.occluded_ambient))
    geometry = build.finish()
    tracer = RayTracer(geometry.mesh.vertices, geometry.mesh.faces)
    return Scene(geometry, plan, floor, tracer, chosen, ambient, occluded, gloss)


def add_furniture(rng: np.random.Generator, build: Builder, piece: Placed) -> None:
    """Add a model with a random tint, so that copies of a model differ in colour."""
    mesh, images = furniture_models.load(piece.model.name)
    numbers = np.array([build.texture(image) for image in images])
    tint = np.exp(rng.normal(0, 0.25)) * np.exp(rng.normal(0, 0.12, 3))
    tinted = replace(mesh, texture=numbers[mesh.texture], tint=np.clip(mesh.tint * tint, 0, 0.95).astype(np.float32))
    build.add(piece.model.label, [tinted.transformed(piece.angle, piece.centre)])


def add_panels(rng: np.random.Generator, build: Builder, plan: FloorPlan) -> None:
    """Add one to three lit panels in the ceiling, alike, which light what is below them."""
    w, d = rng.choice([(0.6, 0.6), (1.2, 0.3), (1.2, 0.6), (0.2, 0.2)]).tolist()
    power = rng.uniform(0.5, 2.5) * plan.height * rng.uniform((0.85, 0.9, 0.8), (1.0, 1.0, 1.1))
    white = build.texture(textures.plain((255, 255, 255)))
    for _ in range(rng.integers(1, 4)):
        x, y = plan.inside(rng, 0.7)
        panel = quad((x - w / 2, y - d / 2, plan.height - 0.01), (w, 0, 0), (0, d, 0), white, (6.0, 6.0, 6.0))
        build.add("lamp", [panel])
        red, green, blue = power.tolist()
        build.lights.append(Light((x, y, plan.height - 0.03), (red, green, blue), 0.3, (0.0, 0.0, -1.0)))


def build_lights(
    rng: np.random.Generator, plan: FloorPlan, pieces: list[Placed], power: tuple[float, float]
) -> list[Light]:
    """Return the lights of one colour temperature: the hanging lamps, and one or two spots under the ceiling."""
    tone = rng.uniform((0.9, 0.75, 0.5), (1.0, 1.0, 1.05))
    total = float(rng.uniform(*power)) * plan.height
    spots = [p.centre for p in pieces if p.model.name == "lamp2"]
    for _ in range(int(rng.integers(1, 3))):
        spots.append((*plan.inside(rng, 0.4), plan.height - 0.25))
    radius = float(rng.uniform(0.05, 0.3))
    share = total / len(spots)
    colour = (float(tone[0] * share), float(tone[1] * share), float(tone[2] * share))
    return [Light(spot, colour, radius) for spot in spots]
