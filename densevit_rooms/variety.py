"""How much rendered rooms differ from each other: `demo` is the plain set of `make demo`, `wide` a model's to keep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from densevit_rooms import textures
from densevit_rooms.furniture_layout import CHAIRS, DESKS, ROOM_TYPES, SHELVES, TABLES, Items, RoomType
from densevit_rooms.textures import Maker, colour

Range = tuple[float, float]
VarietyName = Literal["demo", "wide"]


@dataclass(frozen=True)
class Sensor:
    """Of each frame's camera; ranges are (low, high)."""

    exposure: float = 0.25  # deviation of its logarithm
    white_balance: float = 0.04  # likewise, of each channel
    noise: Range = (0.002, 0.012)
    blur: Range | None = None  # sigma in pixels; None: 0.55
    shake: float = 0.0  # pixels that an image is smeared over, at most
    curve: Range | None = None  # steepness of the tone curve; None: 1.6


@dataclass(frozen=True)
class Variety:
    """What rooms hold and how they are lit and recorded; counts are (low, high) with `high` excluded."""

    rooms: Mapping[str, RoomType] = field(default_factory=lambda: ROOM_TYPES)
    mount: str = "hand"
    colour: textures.ColourMaker = colour
    walls: Sequence[Maker] = textures.WALLS
    floors: Sequence[Maker] = textures.FLOORS
    ceilings: Sequence[Maker] = textures.CEILINGS
    doors: tuple[int, int] = (1, 3)
    windows: tuple[int, int] = (0, 3)
    pictures: tuple[int, int] = (0, 6)
    passages: int = 0  # open doors and archways with a view of a room behind them, at most
    panels: float = 0.0  # share of the rooms that lit panels in the ceiling light
    clutter: int = 0  # boxes, drums, bottles, balls on the floor, at most
    on_top: int = 0  # on each table or chest, at most
    piles: int = 0  # trays and bins of small things on the floor, at most
    people: int = 0  # figures of a person's size, at most
    crowded: float = 0.0  # share of the rooms that are as full as a kitchen, a workshop or a cellar
    power: Range = (2.0, 6.0)  # of all lamps, for each metre of height
    ambient: Range = (0.8, 0.8)  # ambient light as a share of the mean direct light
    occluded_ambient: Range = (0.45, 0.45)  # share of it that is left in corners and inside things
    gloss: float = 0.0  # share of the rooms whose floor reflects
    aimed: float = 0.0  # share of the frames whose camera looks at a thing, from near or far, high or low
    sensor: Sensor = Sensor()


def any_colour(rng: np.random.Generator, saturation: Range, value: Range) -> list[float]:
    """Return white and greys, as most real walls have, any colour at all, or those of `colour`."""
    kind = rng.random()
    if kind < 0.6:
        return colour(rng, (0.0, 0.12), (0.45, 1.0))
    return colour(rng, (0.0, 0.9), (0.06, 1.0)) if kind < 0.75 else colour(rng, saturation, value)


def even(rng: np.random.Generator, colour: Sequence[float]) -> textures.Image:
    """Return the paint or linoleum: an even colour with hardly any grain."""
    return textures.coloured(colour, 0.01 * textures.noise(rng, 1.6))


def speckled(rng: np.random.Generator, colour: Sequence[float]) -> textures.Image:
    """Return the terrazzo, concrete or marble: noise of one scale or of all."""
    return textures.coloured(colour, rng.uniform(0.05, 0.25) * textures.noise(rng, rng.uniform(0.2, 1.5)))


BARE = {
    "corridor": RoomType((5.0, 11.5), (2.2, 3.2), (
        Items(("radiator1", "whiteBoard", "cupboard", "crate", "plant"), 0, 3),), width=(1.3, 2.8)),
    "hall": RoomType((5.0, 11.0), (2.4, 4.5), (
        Items(("chair", "plasticChair", "table", "stool2"), 0, 5, "middle"), Items(("plant", "box"), 0, 3))),
    "bare": RoomType((2.5, 8.0), (2.2, 3.6), (Items(("box", "crate", "shelves", "desk", "lbDesk"), 0, 3),)),
    "desks": RoomType((2.6, 7.0), (2.3, 3.3), (
        Items((*DESKS, "table", "lowerCabinet", "drawersCabinet"), 2, 6), Items((*DESKS, *TABLES), 0, 3, "middle"),
        Items(CHAIRS, 0, 2), Items(SHELVES, 0, 2))),
}  # fmt: skip

VARIETIES: dict[str, Variety] = {
    "demo": Variety(),
    "wide": Variety(
        rooms={
            **ROOM_TYPES,
            **BARE,
            "corridor 2": BARE["corridor"],
            "desks 2": BARE["desks"],
            "desks 3": BARE["desks"],
            "office 2": ROOM_TYPES["office"],
        },
        mount="any",
        colour=any_colour,
        walls=(*textures.WALLS, even, even, even, even, speckled, textures.plaster),
        floors=(*textures.FLOORS, even, even, speckled, speckled),
        ceilings=(*textures.CEILINGS, even, even),
        doors=(0, 5),
        windows=(0, 4),
        pictures=(0, 9),
        passages=2,
        panels=0.5,
        clutter=7,
        on_top=16,
        piles=3,
        people=2,
        crowded=0.6,
        power=(0.8, 9.0),
        ambient=(0.25, 1.6),
        occluded_ambient=(0.05, 0.6),
        gloss=0.5,
        aimed=0.5,
        sensor=Sensor(
            exposure=0.4, white_balance=0.09, noise=(0.001, 0.04), blur=(0.35, 1.1), shake=5.0, curve=(0.8, 3.0)
        ),
    ),
}
DEMO = VARIETIES["demo"]
