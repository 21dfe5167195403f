"""Who lives here: what a kind of room holds, and where its furniture can stand without running into anything."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from densevit.data.synthetic.floorplan import FloorPlan, FreeFloor, footprint
from densevit.data.synthetic.furniture_models import Model, models

Where = Literal["wall", "middle", "ceiling"]
TRIES = 12
BACK = 0.06  # metres left behind a piece: pictures, window frames and skirting are thinner than this


@dataclass(frozen=True)
class Placed:
    """A piece of furniture at its place."""

    model: Model
    centre: tuple[float, float, float]  # metres; z of its lowest point
    angle: float  # radians about z


@dataclass(frozen=True)
class Wish:
    """`low` to `high` pieces chosen from `names`."""

    names: tuple[str, ...]
    low: int
    high: int
    where: Where = "wall"


@dataclass(frozen=True)
class Theme:
    """A kind of room: the range of its longer side and of its height in metres, and what stands in it."""

    sides: tuple[float, float]
    height: tuple[float, float]
    wishes: tuple[Wish, ...]


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
FLOOR_THINGS = ("crate", "basketball", "dustbin", "box", "speaker3", "plant")
TOP_THINGS = ("littlePlant", "desklamp", "led_tv", "tetrapak", "bread", "littlePlant", "speaker3")
LAMP = Wish(("lamp2",), 0, 1, "ceiling")

THEMES = {
    "living": Theme((3.8, 9.5), (2.4, 3.6), (
        Wish(SOFAS, 1, 2), Wish(SEATS, 0, 2, "middle"), Wish(SHELVES, 1, 3), Wish(ROUND, 0, 1, "middle"),
        Wish(SOFAS, 0, 1, "middle"), Wish(("pianoAQueue",), 0, 1, "middle"), Wish(("plant",), 0, 2),
        Wish(FLOOR_THINGS, 0, 3), LAMP)),
    "bedroom": Theme((3.0, 5.5), (2.3, 2.9), (
        Wish(BEDS, 1, 1), Wish(("wardrobeWithSlidingDoors", "cupboard"), 1, 2), Wish(CHESTS, 1, 3),
        Wish(SEATS, 0, 1), Wish(FLOOR_THINGS, 0, 3), LAMP)),
    "dining": Theme((3.2, 7.5), (2.4, 3.4), (
        Wish(TABLES, 1, 2, "middle"), Wish(SHELVES, 1, 2), Wish(CHAIRS, 0, 2), Wish(("plant",), 0, 2), LAMP)),
    "office": Theme((3.0, 9.0), (2.5, 3.4), (
        Wish(DESKS, 1, 4), Wish(DESKS, 0, 2, "middle"), Wish(SHELVES, 1, 4), Wish(("whiteBoard",), 0, 1),
        Wish(("dustbin",), 0, 2), Wish(("plant",), 0, 1), Wish(("radiator1",), 0, 1))),
    "kitchen": Theme((2.8, 5.5), (2.4, 3.0), (
        Wish(("largeFridge",), 1, 1), Wish(KITCHEN, 2, 6), Wish(TABLES, 0, 1, "middle"),
        Wish(("dustbin", "box"), 0, 2), LAMP)),
    "bathroom": Theme((2.2, 3.5), (2.2, 2.7), (
        Wish(("toiletsUnit",), 1, 1), Wish(("modernVanity",), 1, 1), Wish(("verticalShelves", "drawersCabinet"), 0, 1),
        Wish(("dustbin",), 0, 1))),
    "store": Theme((2.6, 8.5), (2.3, 3.8), (
        Wish(("crate", "box", "shelves", "verticalShelves"), 3, 8), Wish(("crate", "box", *CHAIRS), 1, 5, "middle"))),
}  # fmt: skip


def furnish(rng: np.random.Generator, plan: FloorPlan, floor: FreeFloor, theme: Theme) -> Iterator[Placed]:
    """Places what the theme wishes, as far as it fits, and takes its ground from `floor`."""
    for wish in theme.wishes:
        for _ in range(rng.integers(wish.low, wish.high + 1)):
            model = models()[str(rng.choice(wish.names))]
            placed = PLACES[wish.where](rng, plan, floor, model)
            if placed is None:
                continue
            yield placed
            if model.label == "table":
                yield from seats(rng, floor, placed)
            if model.label in ("table", "cabinet", "shelf") and flat_topped(model):
                yield from stand_on(rng, placed)


def by_wall(rng: np.random.Generator, plan: FloorPlan, floor: FreeFloor, model: Model) -> Placed | None:
    walls = plan.walls()
    lengths = np.array([wall.length for wall in walls])
    for _ in range(TRIES):
        wall = walls[rng.choice(len(walls), p=lengths / lengths.sum())]
        if wall.length < model.size[0]:
            continue
        along = rng.uniform(model.size[0] / 2, wall.length - model.size[0] / 2)
        spot = wall.point(along, model.size[1] / 2 + BACK + rng.uniform(0, 0.05))
        if placed := put(floor, model, spot, wall.angle):
            return placed
    return None


def in_middle(rng: np.random.Generator, plan: FloorPlan, floor: FreeFloor, model: Model) -> Placed | None:
    for _ in range(TRIES):
        spot = rng.uniform((0, 0), plan.extent).tolist()
        angle = rng.integers(4) * np.pi / 2 + rng.normal(0, 0.2)
        if placed := put(floor, model, spot, float(angle), margin=0.25):
            return placed
    return None


def hung(rng: np.random.Generator, plan: FloorPlan, floor: FreeFloor, model: Model) -> Placed | None:
    """Under the ceiling, over the spot that is farthest from everything else."""
    spot = floor.spot(rng, np.inf)
    return Placed(model, (*spot, plan.height - model.size[2]), float(rng.uniform(0, 2 * np.pi)))


PLACES = {"wall": by_wall, "middle": in_middle, "ceiling": hung}


def put(floor: FreeFloor, model: Model, spot: Sequence[float], angle: float, margin: float = 0.06) -> Placed | None:
    """The model at `spot`, if nothing stands within `margin` metres of it."""
    width, depth, _ = model.size
    if not floor.fits(footprint(spot, (width + 2 * margin, depth + 2 * margin), angle)):
        return None
    floor.take(footprint(spot, (width, depth), angle))
    return Placed(model, (float(spot[0]), float(spot[1]), 0.0), angle)


def seats(rng: np.random.Generator, floor: FreeFloor, table: Placed) -> Iterator[Placed]:
    """Chairs of one kind along the long sides of a table, facing it; some are missing."""
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
            chair = put(floor, model, spot, float(turn + rng.normal(0, 0.15))) if rng.random() < 0.8 else None
            if chair:
                yield chair


def flat_topped(model: Model) -> bool:
    """Whether its highest part is a surface for small things, at a height where people put them."""
    return model.surface is not None and model.surface > model.size[2] - 0.05 and model.surface < 1.3


def stand_on(rng: np.random.Generator, below: Placed) -> Iterator[Placed]:
    """Up to three small things on a table or a chest, side by side."""
    count = int(rng.integers(0, 4))
    width, depth = (0.7 * side if below.model.name in ROUND else side for side in below.model.size[:2])
    assert below.model.surface is not None
    for i in range(count):
        model = models()[str(rng.choice(TOP_THINGS))]
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
