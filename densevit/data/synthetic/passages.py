"""Open doors and archways in outer walls, and the room that is seen through each."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from densevit.data.synthetic.floorplan import FloorPlan, Wall
from densevit.data.synthetic.lights import Light
from densevit.data.synthetic.mesh import Mesh, box, quad
from densevit.data.synthetic.scene_builder import Builder
from densevit.data.synthetic.variety import Variety

DOOR = (0.9, 2.05)  # metres
THICKNESS = 0.12  # of the wall, in metres


@dataclass(frozen=True)
class Passage:
    """An opening of a wall; `low` and `high` are metres along it, the room behind has the same floor and ceiling."""

    wall: Wall
    low: float
    high: float
    height: float
    depth: float  # metres, of the room behind
    margins: tuple[float, float]  # metres by which that is wider, at `low` and at `high`


def draw_passages(rng: np.random.Generator, plan: FloorPlan, most: int) -> list[Passage]:
    """Up to `most` openings, one a wall, where the room behind meets no other part of this one."""
    width, depth = plan.extent
    edges = np.array([(0, 0), (width, depth)])
    outer = [
        wall
        for wall in plan.walls()
        if wall.length > DOOR[0] + 0.6 and (np.isclose(wall.start, edges) & np.isclose(wall.end, edges)).any()
    ]
    count = min(int(rng.integers(most + 1)), len(outer))
    return [_draw(rng, outer[i], plan.height) for i in rng.permutation(len(outer))[:count]]


def _draw(rng: np.random.Generator, wall: Wall, height: float) -> Passage:
    door = rng.random() < 0.6
    opening = DOOR[0] if door else rng.uniform(DOOR[0], min(2.6, wall.length - 0.5))
    low = rng.uniform(0.2, wall.length - opening - 0.2)
    top = DOOR[1] if door else rng.uniform(DOOR[1], height - 0.05)
    behind, *margins = rng.uniform((1.0, 0.0, 0.0), (6.0, 2.5, 2.5)).tolist()
    return Passage(wall, float(low), float(low + opening), float(top), behind, (margins[0], margins[1]))


def solid_parts(passage: Passage | None, length: float, low: float, high: float) -> Iterator[tuple[float, ...]]:
    """The rectangles (from, to, bottom, top) that an opening leaves of a wall between two heights."""
    if passage is None or passage.height <= low:
        yield 0.0, length, low, high
        return
    yield 0.0, passage.low, low, high
    yield passage.high, length, low, high
    if passage.height < high:
        yield passage.low, passage.high, passage.height, high


def build_behind(rng: np.random.Generator, build: Builder, plan: FloorPlan, passage: Passage, variety: Variety) -> None:
    """Adds the reveal, mostly a door that stands open, and a bare room with a light of its own or none."""
    wall, tall = passage.wall, plan.height
    left, right = passage.low - passage.margins[0], passage.high + passage.margins[1]
    near, far = -THICKNESS, -THICKNESS - passage.depth

    def add(label: str, meshes: list[Mesh], *, thing: bool = False) -> None:
        build.add(label, [mesh.transformed(wall.angle, (*wall.start, 0.0)) for mesh in meshes], thing=thing)

    def material(makers: str, value: tuple[float, float]) -> int:
        choice = getattr(variety, makers)
        return build.texture(choice[int(rng.integers(len(choice)))](rng, variety.colour(rng, (0.0, 0.5), value)))

    side, frame = material("walls", (0.3, 1.0)), material("walls", (0.3, 1.0))
    add("floor", [quad((left, far, 0), (right - left, 0, 0), (0, -far, 0), material("floors", (0.2, 0.9)), tile=1.2)])
    top = quad((left, far, tall), (right - left, 0, 0), (0, -far, 0), material("ceilings", (0.6, 1.0)), tile=1.6)
    add("ceiling", [top])
    add("wall", [
        quad((left, far, 0), (right - left, 0, 0), (0, 0, tall), side, tile=1.3),
        quad((left, near, 0), (0, far - near, 0), (0, 0, tall), side, tile=1.3),
        quad((right, near, 0), (0, far - near, 0), (0, 0, tall), side, tile=1.3),
        quad((passage.low, 0, 0), (0, near, 0), (0, 0, passage.height), frame, tile=1.0),
        quad((passage.high, 0, 0), (0, near, 0), (0, 0, passage.height), frame, tile=1.0),
        quad((passage.low, 0, passage.height), (passage.high - passage.low, 0, 0), (0, near, 0), frame, tile=1.0),
    ])  # fmt: skip
    if passage.high - passage.low == DOOR[0] and rng.random() < 0.7 and passage.depth > DOOR[0] + 0.1:
        leaf = box((0, -0.04, 0), (*DOOR[:1], 0, DOOR[1]), material("walls", (0.3, 1.0)), tile=1.0)
        add("door", [leaf.transformed(-rng.uniform(0.8, 1.6), (passage.low, near, 0))], thing=True)
    if rng.random() < 0.7:
        x, y = wall.point(rng.uniform(left + 0.2, right - 0.2), rng.uniform(far + 0.2, near - 0.2))
        power = float(rng.uniform(0.5, 2.0) * tall)
        build.lights.append(Light((x, y, tall - 0.3), (power, power, power), 0.2))
