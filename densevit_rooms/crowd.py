"""What fills kitchens, workshops and cellars: stacks and pipes along the walls, cabinets and boards with things on the
walls, posts, and beams and pipes under the ceiling."""

from collections.abc import Sequence

import numpy as np

from densevit_rooms.clutter import compartment, draw_thing, material
from densevit_rooms.floorplan import FloorPlan, FreeFloor, Wall, footprint
from densevit_rooms.mesh import Mesh, box, cylinder, join
from densevit_rooms.scene_builder import Builder
from densevit_rooms.variety import Variety

STACKS, HUNG, POSTS, BEAMS, PIPES = 14, 9, 3, 8, 5  # at most
MATERIALS = 6  # that the things of a room share


def add_crowd(rng: np.random.Generator, build: Builder, plan: FloorPlan, floor: FreeFloor, variety: Variety) -> None:
    """Fill the room as far as its floor is free."""
    pool = [material(rng, build, variety) for _ in range(MATERIALS)]
    for _ in range(rng.integers(3, STACKS + 1)):
        add_stack(rng, build, plan, floor, pool)
    for _ in range(rng.integers(HUNG + 1)):
        hang_on_wall(rng, build, plan, floor, pool)
    for _ in range(rng.integers(POSTS + 1) if rng.random() < 0.5 else 0):
        add_post(rng, build, plan, floor, pool)
    for _ in range(rng.integers(PIPES + 1)):
        add_pipe(rng, build, plan, pool)
    if rng.random() < 0.4:
        add_beams(rng, build, plan, pool)


def add_stack(rng: np.random.Generator, build: Builder, plan: FloorPlan, floor: FreeFloor, pool: Sequence[int]) -> None:
    """Add a box at a wall with others on it, or nothing where that floor is taken."""
    w, d = np.exp(rng.uniform(np.log(0.25), np.log(1.1), 2)).tolist()
    wall, along = spot_at_wall(rng, plan)
    centre, angle = wall.point(along, d / 2 + rng.uniform(0.02, 0.15)), wall.angle + float(rng.normal(0, 0.05))
    corners = footprint(centre, (w, d), angle)
    if not floor.fits(corners):
        return
    floor.take(corners)
    rack = rng.random() < 0.3  # open, of one width and one height of its shelves
    height, top, h = float(rng.uniform(0.3, plan.height - 0.2)), 0.0, float(rng.uniform(0.25, 0.6))
    while top + (h if rack else 0.1) < height:
        if not rack:
            h = min(float(np.exp(rng.uniform(np.log(0.15), np.log(1.2)))), plan.height - top - 0.05)
        part = cabinet(rng, pool, (w, d, h), open_front=rack or rng.random() < 0.2)
        build.add("shelf" if rack else "object", [part.transformed(angle, (*centre, top))])
        top += h
        if not rack:
            angle += float(rng.normal(0, 0.1))
            w, d = (np.array([w, d]) * rng.uniform(0.6, 1.0, 2)).tolist()
    for thing in [draw_thing(rng, pool, (0.04, 0.3)) for _ in range(rng.integers(0, 3))]:
        if top + thing.size[2] < plan.height:
            build.add("object", [thing.mesh.transformed(float(rng.uniform(0, 6.3)), (*centre, top))])


def hang_on_wall(
    rng: np.random.Generator, build: Builder, plan: FloorPlan, floor: FreeFloor, pool: Sequence[int]
) -> None:
    """Add a closed or open cabinet, or a board with things on it, to a wall."""
    w, d, h = rng.uniform((0.4, 0.15, 0.3), (2.2, 0.45, 0.9)).tolist()
    wall, along = spot_at_wall(rng, plan, w / 2)
    bottom = min(float(rng.uniform(0.8, 1.7)), plan.height - h)
    board = rng.random() < 0.4
    if board:
        things = [draw_thing(rng, pool, (0.04, min(d, h))) for _ in range(rng.integers(0, 8))]
        spots = rng.uniform(-0.45, 0.45, len(things)) * w
        mesh = join([
            cabinet(rng, pool, (w, d, 0.03)),
            *(thing.mesh.transformed(float(rng.uniform(0, 6.3)), (float(x), 0.0, 0.03))
              for thing, x in zip(things, spots, strict=True)),
        ])  # fmt: skip
    else:
        mesh = cabinet(rng, pool, (w, d, h), open_front=rng.random() < 0.3)
    centre = wall.point(along, d / 2 + 0.01)
    floor.take(footprint(centre, (w, d), wall.angle))  # no camera within it
    build.add("shelf" if board else "cabinet", [mesh.transformed(wall.angle, (*centre, bottom))])


def add_post(rng: np.random.Generator, build: Builder, plan: FloorPlan, floor: FreeFloor, pool: Sequence[int]) -> None:
    """Add a round or square post from floor to ceiling."""
    width = float(rng.uniform(0.06, 0.45))
    spot = floor.spot(rng, width + 0.3)
    floor.take(footprint(spot, (width, width), 0.0))
    square = rng.random() < 0.5
    post = cabinet(rng, pool, (width, width, plan.height)) if square else pipe(rng, pool, width / 2, plan.height)
    build.add("object", [post.transformed(0.0, (*spot, 0.0))])


def add_pipe(rng: np.random.Generator, build: Builder, plan: FloorPlan, pool: Sequence[int]) -> None:
    """Add a pipe up a wall, or along one under the ceiling."""
    radius = float(rng.uniform(0.01, 0.12))
    wall, along = spot_at_wall(rng, plan)
    off = radius + float(rng.uniform(0.01, 0.1))
    if rng.random() < 0.5:
        mesh = pipe(rng, pool, radius, plan.height).transformed(0.0, (*wall.point(along, off), 0.0))
    else:
        # Tipped, it lies along -y; a quarter turn takes that to the direction of the wall.
        lying = pipe(rng, pool, radius, wall.length).tipped()
        place = (*wall.point(0.0, off + float(rng.uniform(0, 0.8))), plan.height - radius - float(rng.uniform(0, 0.3)))
        mesh = lying.transformed(wall.angle + np.pi / 2, place)
    build.add("object", [mesh])


def add_beams(rng: np.random.Generator, build: Builder, plan: FloorPlan, pool: Sequence[int]) -> None:
    """Add parallel beams under the ceiling; what of them is outside the walls is not visible from inside."""
    across = int(rng.integers(2))
    w, h = float(rng.uniform(0.05, 0.25)), float(rng.uniform(0.05, 0.35))
    texture, (red, green, blue) = int(rng.choice(pool)), rng.uniform(0.25, 1.0, 3).tolist()
    count = int(rng.integers(2, BEAMS + 1))
    beams = []
    for position in (np.arange(count) + 0.5) / count * plan.extent[across]:
        low, high = np.zeros(2), np.array(plan.extent)
        low[across], high[across] = position - w / 2, position + w / 2
        beams.append(box((*low.tolist(), plan.height - h), (*high.tolist(), plan.height), texture, (red, green, blue)))
    build.add("ceiling", beams, thing=False)


def spot_at_wall(rng: np.random.Generator, plan: FloorPlan, margin: float = 0.0) -> tuple[Wall, float]:
    """Return a random wall and the metres along it, `margin` from its ends if it is long enough."""
    wall = plan.draw_wall(rng)
    margin = min(margin, wall.length / 2)
    return wall, float(rng.uniform(margin, wall.length - margin))


def cabinet(
    rng: np.random.Generator, pool: Sequence[int], size: tuple[float, float, float], *, open_front: bool = False
) -> Mesh:
    """Return a box of a random material that stands on z = 0; an open one holds things and shows them along y."""
    texture, (red, green, blue) = int(rng.choice(pool)), rng.uniform(0.25, 1.0, 3).tolist()
    if open_front:
        return compartment(rng, pool, size, texture, (red, green, blue)).transformed(np.pi, (0.0, 0.0, 0.0))
    w, d, h = size
    return box((-w / 2, -d / 2, 0), (w / 2, d / 2, h), texture, (red, green, blue), tile=max(h, 0.3))


def pipe(rng: np.random.Generator, pool: Sequence[int], radius: float, height: float) -> Mesh:
    return cylinder(radius, height, int(rng.choice(pool)), rng.uniform(0.25, 1.0, 3).tolist())
