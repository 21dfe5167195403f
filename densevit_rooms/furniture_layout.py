"""Items of each type of room, placed where nothing overlaps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from densevit_rooms.floorplan import FloorPlan, FreeFloor, footprint
from densevit_rooms.furniture_models import Model, models

Where = Literal["wall", "middle", "ceiling"]
TRIES = 12
WALL_GAP = 0.06  # metres behind a piece; pictures, window frames and skirting are thinner


@dataclass(frozen=True)
class Placed:
    """A piece of furniture with its pose."""

    model: Model
    centre: tuple[float, float, float]  # metres; z of its lowest point
    angle: float  # radians about z


@dataclass(frozen=True)
class Items:
    """`low` to `high` pieces chosen from `names`."""

    names: tuple[str, ...]
    low: int
    high: int
    where: Where = "wall"


@dataclass(frozen=True)
class RoomType:
    """A type of room: the range of its longer side and of its height in metres, and its furniture."""

    sides: tuple[float, float]
    height: tuple[float, float]
    furniture: tuple[Items, ...]
    width: tuple[float, float] | None = None  # of a corridor


SOFAS = ("sofa", "sofa2", "couch", "couch2")
SEATS = ("armchair2", "modernArmchair")
CHAIRS = ("chair", "chair2", "osakaChair", "sillaBlanca", "thonet", "plasticChair", "chairWithCushion", "stool2")
TABLES = ("table", "oakTable", "tableWithTablecloth")
ROUND = ("oakTable", "tableWithTablecloth")
DESKS = ("desk", "lbDesk")
SHELVES = ("bookcase", "shelves", "verticalShelves", "cupboard")
BEDS = ("bed2", "bed3", "bedWithTexture")
CHESTS = ("shelves", "bedsideTable2", "drawersCabinet", "cupboard")
KITCHEN = ("lowerCabinet", "drawersCabinet", "highCabinet")
FLOOR_OBJECTS = ("crate", "basketball", "dustbin", "box", "speaker3", "plant")
TOP_OBJECTS = ("littlePlant", "desklamp", "led_tv", "tetrapak", "bread", "littlePlant", "speaker3")
LAMP = Items(("lamp2",), 0, 1, "ceiling")

ROOM_TYPES = {
    "living": RoomType((3.8, 9.5), (2.4, 3.6), (
        Items(SOFAS, 1, 2), Items(SEATS, 0, 2, "middle"), Items(SHELVES, 1, 3), Items(ROUND, 0, 1, "middle"),
        Items(SOFAS, 0, 1, "middle"), Items(("pianoAQueue",), 0, 1, "middle"), Items(("plant",), 0, 2),
        Items(FLOOR_OBJECTS, 0, 3), LAMP)),
    "bedroom": RoomType((3.0, 5.5), (2.3, 2.9), (
        Items(BEDS, 1, 1), Items(("wardrobeWithSlidingDoors", "cupboard"), 1, 2), Items(CHESTS, 1, 3),
        Items(SEATS, 0, 1), Items(FLOOR_OBJECTS, 0, 3), LAMP)),
    "dining": RoomType((3.2, 7.5), (2.4, 3.4), (
        Items(TABLES, 1, 2, "middle"), Items(SHELVES, 1, 2), Items(CHAIRS, 0, 2), Items(("plant",), 0, 2), LAMP)),
    "office": RoomType((3.0, 9.0), (2.5, 3.4), (
        Items(DESKS, 1, 4), Items(DESKS, 0, 2, "middle"), Items(SHELVES, 1, 4), Items(("whiteBoard",), 0, 1),
        Items(("dustbin",), 0, 2), Items(("plant",), 0, 1), Items(("radiator1",), 0, 1))),
    "kitchen": RoomType((2.8, 5.5), (2.4, 3.0), (
        Items(("largeFridge",), 1, 1), Items(KITCHEN, 2, 6), Items(TABLES, 0, 1, "middle"),
        Items(("dustbin", "box"), 0, 2), LAMP)),
    "bathroom": RoomType((2.2, 3.5), (2.2, 2.7), (
        Items(("toiletsUnit",), 1, 1), Items(("modernVanity",), 1, 1),
        Items(("verticalShelves", "drawersCabinet"), 0, 1), Items(("dustbin",), 0, 1))),
    "store": RoomType((2.6, 8.5), (2.3, 3.8), (
        Items(("crate", "box", "shelves", "verticalShelves"), 3, 8), Items(("crate", "box", *CHAIRS), 1, 5, "middle"))),
}  # fmt: skip


def furnish(rng: np.random.Generator, plan: FloorPlan, floor: FreeFloor, room_type: RoomType) -> Iterator[Placed]:
    """Place the furniture of the room type as far as it fits, and mark its footprint as taken in `floor`."""
    for spec in room_type.furniture:
        for _ in range(rng.integers(spec.low, spec.high + 1)):
            model = models()[str(rng.choice(spec.names))]
            placed = PLACES[spec.where](rng, plan, floor, model)
            if placed is None:
                continue
            yield placed
            if model.label == "table":
                yield from place_chairs(rng, floor, placed)
            if model.label in ("table", "cabinet", "shelf") and has_flat_top(model):
                yield from place_on_top(rng, placed)


def place_at_wall(rng: np.random.Generator, plan: FloorPlan, floor: FreeFloor, model: Model) -> Placed | None:
    for _ in range(TRIES):
        wall = plan.draw_wall(rng)
        if wall.length < model.size[0]:
            continue
        along = rng.uniform(model.size[0] / 2, wall.length - model.size[0] / 2)
        spot = wall.point(along, model.size[1] / 2 + WALL_GAP + rng.uniform(0, 0.05))
        if placed := place(floor, model, spot, wall.angle):
            return placed
    return None


def place_in_middle(rng: np.random.Generator, plan: FloorPlan, floor: FreeFloor, model: Model) -> Placed | None:
    for _ in range(TRIES):
        spot = rng.uniform((0, 0), plan.extent).tolist()
        angle = rng.integers(4) * np.pi / 2 + rng.normal(0, 0.2)
        if placed := place(floor, model, spot, float(angle), margin=0.25):
            return placed
    return None


def hang(rng: np.random.Generator, plan: FloorPlan, floor: FreeFloor, model: Model) -> Placed | None:
    """Hang it under the ceiling, over the spot that is farthest from everything else."""
    spot = floor.spot(rng, np.inf)
    return Placed(model, (*spot, plan.height - model.size[2]), float(rng.uniform(0, 2 * np.pi)))


PLACES = {"wall": place_at_wall, "middle": place_in_middle, "ceiling": hang}


def place(floor: FreeFloor, model: Model, spot: Sequence[float], angle: float, margin: float = 0.06) -> Placed | None:
    """Return the model at `spot`, if nothing stands within `margin` metres of it."""
    width, depth, _ = model.size
    if not floor.fits(footprint(spot, (width + 2 * margin, depth + 2 * margin), angle)):
        return None
    floor.take(footprint(spot, (width, depth), angle))
    return Placed(model, (float(spot[0]), float(spot[1]), 0.0), angle)


def place_chairs(rng: np.random.Generator, floor: FreeFloor, table: Placed) -> Iterator[Placed]:
    """Yield the chairs of one kind along the long sides of a table, facing it; some are missing."""
    model = models()[str(rng.choice(CHAIRS if table.model.name not in DESKS else ("armchair", *CHAIRS)))]
    width, depth, _ = table.model.size
    per_side = max(1, int(width / 0.75))
    sides = (1,) if table.model.name in DESKS else (1, -1)
    for side in sides:
        for i in range(per_side):
            across = (i - (per_side - 1) / 2) * width / per_side + rng.normal(0, 0.03)
            off = side * (depth / 2 + model.size[1] / 2 + rng.uniform(0.05, 0.3))
            turn = table.angle + (np.pi if side > 0 else 0.0)
            spot = _beside(table, across, off)
            chair = place(floor, model, spot, float(turn + rng.normal(0, 0.15))) if rng.random() < 0.8 else None
            if chair:
                yield chair


def has_flat_top(model: Model) -> bool:
    """Return whether its highest part is a surface for small objects, at a usual height."""
    return model.surface is not None and model.surface > model.size[2] - 0.05 and model.surface < 1.3


def place_on_top(rng: np.random.Generator, below: Placed) -> Iterator[Placed]:
    """Yield up to three small objects on a table or a chest, side by side."""
    count = int(rng.integers(0, 4))
    width, depth = (0.7 * side if below.model.name in ROUND else side for side in below.model.size[:2])
    assert below.model.surface is not None
    for i in range(count):
        model = models()[str(rng.choice(TOP_OBJECTS))]
        slot = 0.8 * width / count
        if model.size[0] > slot or model.size[1] > 0.9 * depth:
            continue
        across = (i - (count - 1) / 2) * slot + rng.uniform(-1, 1) * (slot - model.size[0]) / 2
        off = rng.uniform(-1, 1) * (0.7 * depth - model.size[1]) / 2 if model.size[1] < 0.7 * depth else 0.0
        x, y = _beside(below, across, off)
        yield Placed(model, (x, y, below.model.surface), below.angle + float(rng.normal(0, 0.1)))


def _beside(base: Placed, across: float, off: float) -> tuple[float, float]:
    cos, sin = np.cos(base.angle), np.sin(base.angle)
    return float(base.centre[0] + across * cos - off * sin), float(base.centre[1] + across * sin + off * cos)
