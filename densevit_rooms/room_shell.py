"""Shell of a room: floor, ceiling, walls with skirting, doors, windows, framed pictures and rugs.

In wide rooms also open doors and archways in outer walls, and the room that is seen through each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from densevit_rooms import textures
from densevit_rooms.floorplan import FloorPlan, FreeFloor, Wall, footprint
from densevit_rooms.lights import Light
from densevit_rooms.mesh import Mesh, box, quad
from densevit_rooms.scene_builder import Builder
from densevit_rooms.variety import DEMO, Variety

DOOR = (0.9, 2.05)  # metres
THICKNESS = 0.12  # of the wall, in metres

SKIRTING = (0.09, 0.015)


@dataclass(frozen=True)
class Passage:
    """An opening of a wall; `low` and `high` are metres along it, the room behind has the same floor and ceiling."""

    wall: Wall
    low: float
    high: float
    height: float
    depth: float  # metres, of the room behind
    margins: tuple[float, float]  # metres by which that is wider, at `low` and at `high`


def build_shell(
    rng: np.random.Generator, build: Builder, plan: FloorPlan, variety: Variety = DEMO, passages: Sequence[Passage] = ()
) -> None:
    """Build floor, ceiling and bare walls, with the rooms behind their open passages."""
    w, d = plan.extent
    colour = variety.colour
    floor = build.texture(_pick(rng, variety.floors)(rng, colour(rng, (0.1, 0.65), (0.25, 0.85))))
    ceiling = build.texture(_pick(rng, variety.ceilings)(rng, colour(rng, (0.0, 0.1), (0.75, 0.95))))
    # Both cover the whole bounding box: the parts outside the walls are not visible from inside.
    build.add("floor", [quad((0, 0, 0), (w, 0, 0), (0, d, 0), floor, tile=rng.uniform(0.7, 1.8))], thing=False)
    top = quad((0, d, plan.height), (w, 0, 0), (0, -d, 0), ceiling, tile=rng.uniform(1.2, 2.4))
    build.add("ceiling", [top], thing=False)
    build.add("wall", _walls(rng, build, plan, variety, passages), thing=False)
    for passage in passages:
        build_behind(rng, build, plan, passage, variety)


def _walls(
    rng: np.random.Generator, build: Builder, plan: FloorPlan, variety: Variety, passages: Sequence[Passage]
) -> list[Mesh]:
    colour = variety.colour
    main, accent = (
        build.texture(_pick(rng, variety.walls)(rng, colour(rng, (0.02, 0.5), (0.45, 0.97)))) for _ in range(2)
    )
    trim = build.texture(textures.plain(colour(rng, (0.0, 0.4), (0.3, 1.0))))
    tile, dado = rng.uniform(0.8, 2.0), rng.uniform(0.8, 1.3) if rng.random() < 0.25 else 0.0
    meshes = []
    for wall in plan.walls():
        chosen = accent if rng.random() < 0.2 else main
        passage = next((p for p in passages if p.wall == wall), None)
        for low, high, texture in ((0.0, dado, accent), (dado, plan.height, chosen)):
            for start, end, bottom, top in solid_parts(passage, wall.length, low, high) if low < high else ():
                meshes.append(_upright(wall, (start, end), (bottom, top), texture, tile))
        for start, end, bottom, _ in solid_parts(passage, wall.length, 0.0, SKIRTING[0]):
            length = end - start
            trimmed = box((-length / 2, 0, bottom), (length / 2, SKIRTING[1], SKIRTING[0]), trim)
            meshes.append(_against(wall, (start + end) / 2, trimmed))
    return meshes


def draw_passages(rng: np.random.Generator, plan: FloorPlan, most: int) -> list[Passage]:
    """Return up to `most` openings, one a wall, where the room behind meets no other part of this one."""
    width, depth = plan.extent
    edges = np.array([(0, 0), (width, depth)])
    outer = [
        wall
        for wall in plan.walls()
        if wall.length > DOOR[0] + 0.6 and (np.isclose(wall.start, edges) & np.isclose(wall.end, edges)).any()
    ]
    count = min(int(rng.integers(most + 1)), len(outer))
    return [_draw_passage(rng, outer[i], plan.height) for i in rng.permutation(len(outer))[:count]]


def _draw_passage(rng: np.random.Generator, wall: Wall, height: float) -> Passage:
    door = rng.random() < 0.6
    opening = DOOR[0] if door else rng.uniform(DOOR[0], min(2.6, wall.length - 0.5))
    low = rng.uniform(0.2, wall.length - opening - 0.2)
    top = DOOR[1] if door else rng.uniform(DOOR[1], height - 0.05)
    behind, *margins = rng.uniform((1.0, 0.0, 0.0), (6.0, 2.5, 2.5)).tolist()
    return Passage(wall, float(low), float(low + opening), float(top), behind, (margins[0], margins[1]))


def solid_parts(passage: Passage | None, length: float, low: float, high: float) -> Iterator[tuple[float, ...]]:
    """Yield the rectangles (from, to, bottom, top) that an opening leaves of a wall between two heights."""
    if passage is None or passage.height <= low:
        yield 0.0, length, low, high
        return
    yield 0.0, passage.low, low, high
    yield passage.high, length, low, high
    if passage.height < high:
        yield passage.low, passage.high, passage.height, high


def build_behind(rng: np.random.Generator, build: Builder, plan: FloorPlan, passage: Passage, variety: Variety) -> None:
    """Add the reveal, mostly a door that stands open, and a bare room with a light of its own or none."""
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


def build_openings(
    rng: np.random.Generator,
    build: Builder,
    plan: FloorPlan,
    floor: FreeFloor,
    variety: Variety = DEMO,
    passages: Sequence[Passage] = (),
) -> None:
    """Build doors, windows and framed pictures that do not overlap, and a light for each window."""
    colour = variety.colour
    walls = [wall for wall in plan.walls() if wall.length > 1.0]
    taken: dict[Wall, list[tuple[float, float]]] = {wall: [] for wall in walls}
    for passage in passages:
        taken[passage.wall].append((passage.low - 0.1, passage.high + 0.1))
        before = passage.wall.point((passage.low + passage.high) / 2, 0.45)
        floor.take(footprint(before, (passage.high - passage.low, 0.9), passage.wall.angle))
    frame = colour(rng, (0.0, 0.5), (0.35, 1.0))
    for _ in range(rng.integers(*variety.doors)):
        if spot := _free_stretch(rng, taken, DOOR[0] + 0.2):
            _door(rng, build, *spot, frame)
            floor.take(footprint(spot[0].point(spot[1], 0.45), (DOOR[0], 0.9), spot[0].angle))
    daylight = rng.uniform(0.0, 6.0)
    for _ in range(rng.integers(*variety.windows)):
        width = rng.uniform(0.7, 2.2)
        if spot := _free_stretch(rng, taken, width + 0.2):
            _window(rng, build, *spot, width, plan.height, frame, daylight)
    for _ in range(rng.integers(*variety.pictures)):
        width = rng.uniform(0.3, 1.1)
        if spot := _free_stretch(rng, taken, width + 0.1):
            _picture(rng, build, *spot, width)


def build_rug(rng: np.random.Generator, build: Builder, plan: FloorPlan, floor: FreeFloor) -> None:
    """Build a rug in half of the rooms; furniture may stand on it."""
    w, d = rng.uniform((0.9, 0.6), (2.6, 1.8)).tolist()
    angle = float(rng.integers(2) * np.pi / 2 + rng.normal(0, 0.1))
    spot = plan.inside(rng, d / 2)
    if rng.random() < 0.5 and floor.fits(footprint(spot, (w, d), angle)):
        image = build.texture(_pick(rng, textures.RUGS)(rng, textures.colour(rng, (0.2, 0.8), (0.3, 0.9))))
        rug = box((-w / 2, -d / 2, 0), (w / 2, d / 2, 0.012), image, tile=None)
        build.add("rug", [rug.transformed(angle, (*spot, 0))])


def _free_stretch(
    rng: np.random.Generator, taken: dict[Wall, list[tuple[float, float]]], width: float
) -> tuple[Wall, float] | None:
    """Return a random wall and the centre of a free segment of `width` on it, which is marked as taken; None without
    any."""
    walls = [wall for wall in taken if wall.length > width + 0.1]
    for _ in range(6 if walls else 0):
        wall = walls[rng.integers(len(walls))]
        middle = rng.uniform(width / 2 + 0.05, wall.length - width / 2 - 0.05)
        low, high = middle - width / 2, middle + width / 2
        if all(high < a or b < low for a, b in taken[wall]):
            taken[wall].append((low, high))
            return wall, float(middle)
    return None


def _door(rng: np.random.Generator, build: Builder, wall: Wall, along: float, frame: Sequence[float]) -> None:
    w, h = DOOR
    border = build.texture(textures.plain(frame))
    make = textures.planks if rng.random() < 0.5 else textures.plaster
    leaf = build.texture(make(rng, textures.colour(rng, (0.05, 0.6), (0.35, 0.95))))
    side = rng.choice([-1, 1]) * (w / 2 - 0.08)
    parts = [
        box((-w / 2, 0, 0), (w / 2, 0.02, h), leaf, tile=1.0),
        *_frame(w, 0.0, h, 0.07, 0.04, border, sill=False),
        box((side - 0.06, 0.02, 1.0), (side + 0.06, 0.055, 1.03), border, (0.35, 0.35, 0.35)),
    ]
    if rng.random() < 0.4:  # panels
        parts += [box((-w / 3, 0.02, z), (w / 3, 0.03, z + 0.7), leaf, tile=1.0) for z in (0.2, 1.1)]
    build.add("door", [_against(wall, along, part) for part in parts])


def _window(
    rng: np.random.Generator, build: Builder, wall: Wall, along: float, width: float, height: float,
    frame: Sequence[float], daylight: float,
) -> None:  # fmt: skip
    low = float(rng.choice([0.05, 0.85, 0.95, 1.2]))
    high = min(height - 0.15, max(low + 0.6, rng.uniform(2.0, 2.4)))
    border = build.texture(textures.plain(frame))
    view = build.texture(textures.sky(rng, textures.colour(rng, (0.2, 0.6), (0.3, 0.7))))
    pane = box((-width / 2, 0, low), (width / 2, 0.005, high), view, (1.6, 1.6, 1.6), tile=None)
    bars = [box((x - 0.025, 0, low), (x + 0.025, 0.03, high), border) for x in _between(width, 0.8)]
    parts = [pane, *_frame(width, low, high, 0.05, 0.04, border, sill=True), *bars]
    build.add("window", [_against(wall, along, part) for part in parts])
    if daylight > 0.5:
        x, y = wall.point(along, 0.15)
        area = width * (high - low)
        red, green, blue = (rng.uniform((0.85, 0.92, 1.0), (1.0, 1.0, 1.1)) * daylight * area).tolist()
        inward = (-float(np.sin(wall.angle)), float(np.cos(wall.angle)), 0.0)
        build.lights.append(Light((x, y, (low + high) / 2), (red, green, blue), float(0.3 * np.sqrt(area)), inward))


def _picture(rng: np.random.Generator, build: Builder, wall: Wall, along: float, width: float) -> None:
    photo = textures.photograph(str(rng.choice(textures.PICTURES)))
    height = min(width * photo.shape[0] / photo.shape[1], 1.2)
    middle = float(rng.uniform(1.35, 1.7))
    border = build.texture(textures.plain(textures.colour(rng, (0.0, 0.6), (0.1, 0.9))))
    low, high = middle - height / 2, middle + height / 2
    canvas = quad((width / 2, 0.015, low), (-width, 0, 0), (0, 0, high - low), build.texture(photo))
    parts = [canvas, *_frame(width, low, high, 0.03, 0.03, border, sill=True)]
    build.add("picture", [_against(wall, along, part) for part in parts])


def _frame(width: float, low: float, high: float, thick: float, deep: float, texture: int, *, sill: bool) -> list[Mesh]:
    w = width / 2
    beams = [
        box((-w - thick, 0, low), (-w, deep, high), texture),
        box((w, 0, low), (w + thick, deep, high), texture),
        box((-w - thick, 0, high), (w + thick, deep, high + thick), texture),
    ]
    return [*beams, box((-w - thick, 0, low - thick), (w + thick, deep, low), texture)] if sill else beams


def _between(width: float, pitch: float) -> list[float]:
    count = int(width / pitch)
    return [width * (i + 1) / (count + 1) - width / 2 for i in range(count)]


def _upright(wall: Wall, along: tuple[float, float], heights: tuple[float, float], texture: int, tile: float) -> Mesh:
    """Return a rectangle of a wall; ends of the wall are taken as they are, so that its corners stay closed."""
    (x0, y0), (x1, y1) = (
        wall.start if at == 0 else wall.end if at == wall.length else wall.point(at, 0.0) for at in along
    )
    return quad((x0, y0, heights[0]), (x1 - x0, y1 - y0, 0.0), (0, 0, heights[1] - heights[0]), texture, tile=tile)


def _against(wall: Wall, along: float, mesh: Mesh) -> Mesh:
    """Places a mesh, whose back is at y = 0, at the wall."""
    return mesh.transformed(wall.angle, (*wall.point(along, 0.0), 0.0))


def _pick(rng: np.random.Generator, makers: Sequence[textures.Maker]) -> textures.Maker:
    return makers[int(rng.integers(len(makers)))]
