"""Things of simple shapes and any material: boxes, drums, bottles, balls, heaps of them, compartments that hold some,
and people-sized figures."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from densevit_rooms import textures
from densevit_rooms.floorplan import FreeFloor, footprint
from densevit_rooms.furniture_layout import Placed, has_flat_top
from densevit_rooms.mesh import Mesh, Vector, box, cylinder, join, quad, revolved
from densevit_rooms.scene_builder import Builder
from densevit_rooms.variety import Variety, even

MATERIALS = (even, even, textures.plaster, textures.stripes, textures.wallpaper, textures.planks, textures.carpet)
KINDS = ("box", "open", "compartment", "board", "sheet", "drum", "bottle", "ball")
SHARES = (0.27, 0.08, 0.16, 0.1, 0.07, 0.12, 0.12, 0.08)
POOL = 6  # materials that the clutter of a room shares


@dataclass(frozen=True)
class Thing:
    mesh: Mesh  # stands on z = 0, its middle at x = y = 0
    size: tuple[float, float, float]  # metres
    flat: bool  # whether others can stand on it


def add_clutter(
    rng: np.random.Generator, build: Builder, floor: FreeFloor, pieces: Sequence[Placed], variety: Variety
) -> None:
    """Add what `variety` allows, on free floor and on furniture."""
    pool = [material(rng, build, variety) for _ in range(POOL)]
    head = build.texture(textures.plain((255, 255, 255)))
    for _ in range(rng.integers(variety.people + 1)):
        put(rng, build, floor, Thing(person(rng, pool, head), (0.6, 0.4, 1.9), flat=False))
    for _ in range(rng.integers(variety.clutter + 1)):
        below = draw_thing(rng, pool, (0.12, 1.0))
        spot = put(rng, build, floor, below)
        if spot and below.flat and below.size[2] < 1.2 and rng.random() < 0.5:
            above = draw_thing(rng, pool, (0.05, min(below.size[:2])))
            build.add("object", [above.mesh.transformed(float(rng.uniform(0, 6.3)), (*spot, below.size[2]))])
    for _ in range(rng.integers(variety.piles + 1)):
        add_pile(rng, build, floor, pool)
    for piece in pieces:
        if has_flat_top(piece.model) and piece.model.label in ("table", "cabinet", "shelf"):
            if variety.on_top and rng.random() < 0.5:
                opened = draw_thing(rng, pool, (0.2, 0.6), kind="compartment")
                put_on(rng, build, piece, opened, turn=float(rng.normal(np.pi, 0.4)))
            for _ in range(rng.integers(variety.on_top + 1)):
                put_on(rng, build, piece, draw_thing(rng, pool, (0.03, 0.5)))


def add_pile(rng: np.random.Generator, build: Builder, floor: FreeFloor, pool: Sequence[int]) -> None:
    """Add a tray or bin on free floor, with small things on and in each other."""
    w, d = rng.uniform(0.3, 1.0, 2).tolist()
    h = float(np.exp(rng.uniform(np.log(0.02), np.log(0.5))))
    tray = Thing(open_box(w, d, h, int(rng.choice(pool)), (1.0, 1.0, 1.0)), (w, d, h), flat=False)
    spot = put(rng, build, floor, tray)
    for _ in range(rng.integers(3, 13) if spot else 0):
        thing = draw_thing(rng, pool, (0.03, 0.3))
        x, y = (np.array(spot) + rng.uniform(-0.35, 0.35, 2) * min(w, d)).tolist()
        place = (x, y, float(rng.uniform(0, 0.15)))
        build.add("object", [thing.mesh.transformed(float(rng.uniform(0, 6.3)), place)])


def put(rng: np.random.Generator, build: Builder, floor: FreeFloor, thing: Thing) -> tuple[float, float] | None:
    """Add a thing at a random free place and return that, or None where none is free."""
    spot, angle = floor.spot(rng, max(thing.size[:2]) / 2), float(rng.uniform(0, 2 * np.pi))
    corners = footprint(spot, thing.size[:2], angle)
    if not floor.fits(corners):
        return None
    floor.take(corners)
    build.add("object", [thing.mesh.transformed(angle, (*spot, 0.0))])
    return spot


def put_on(rng: np.random.Generator, build: Builder, piece: Placed, thing: Thing, turn: float | None = None) -> None:
    """Add a small thing anywhere on a flat top; it may touch others. `turn`: radians, from the axes of the furniture;
    None is any."""
    room = np.array(piece.model.size[:2]) * 0.9 - min(thing.size[:2])
    if (room > 0).all():
        turn = float(rng.uniform(0, 6.3)) if turn is None else turn
        turned = thing.mesh.transformed(turn, (*(rng.uniform(-0.5, 0.5, 2) * room), 0.0))
        assert piece.model.surface is not None
        build.add("object", [turned.transformed(piece.angle, (*piece.centre[:2], piece.model.surface))])


def material(rng: np.random.Generator, build: Builder, variety: Variety) -> int:
    if rng.random() < 0.25:
        return build.texture(textures.photograph(str(rng.choice(textures.PICTURES))))
    maker = MATERIALS[int(rng.integers(len(MATERIALS)))]
    return build.texture(maker(rng, variety.colour(rng, (0.0, 0.8), (0.1, 1.0))))


def draw_thing(
    rng: np.random.Generator, pool: Sequence[int], scale: tuple[float, float], kind: str | None = None
) -> Thing:
    """Return a box, an open box, a compartment with things in it, a board, a sheet, a drum, a bottle or a ball; its
    sides within `scale` metres, boards and sheets are thinner. `kind`: one of KINDS; None is any."""
    texture = int(rng.choice(pool))
    red, green, blue = rng.uniform(0.25, 1.0, 3).tolist()
    tint = (red, green, blue)
    w, d, h = np.exp(rng.uniform(np.log(scale[0]), np.log(scale[1]), 3)).tolist()
    kind = kind or str(rng.choice(KINDS, p=SHARES))
    if kind == "open":
        return Thing(open_box(w, d, h, texture, tint), (w, d, h), flat=False)
    if kind == "compartment":
        return Thing(compartment(rng, pool, (w, d, h), texture, tint), (w, d, h), flat=True)
    if kind in ("box", "board", "sheet"):
        d = min(d, 0.03) if kind == "board" else d
        h = min(h, 0.03) if kind == "sheet" else h
        mesh = box((-w / 2, -d / 2, 0), (w / 2, d / 2, h), texture, tint, tile=float(rng.choice([0.5, h])))
        return Thing(mesh, (w, d, h), flat=kind != "board")
    if kind == "drum":
        return Thing(cylinder(w / 2, h, texture, tint), (w, w, h), flat=True)
    if kind == "ball":
        turn = np.linspace(0, np.pi, 9)
        profile = np.stack([np.sin(turn), 1 - np.cos(turn)], axis=1) * w / 2
        return Thing(revolved(profile.tolist(), texture, tint), (w, w, w), flat=False)
    w, neck = min(w, h), rng.uniform(0.2, 0.8) * min(w, h)
    profile = [(0, 0), (w / 2, 0), (w / 2, h * rng.uniform(0.4, 0.8)), (neck / 2, h * 0.85), (neck / 2, h), (0, h)]
    return Thing(revolved(profile, texture, tint), (w, w, h), flat=False)


def open_box(w: float, d: float, h: float, texture: int, tint: Vector) -> Mesh:
    """Return a box without its top."""
    sides = [
        ((-w / 2, -d / 2, 0), (w, 0, 0), (0, 0, h)),
        ((-w / 2, d / 2, 0), (w, 0, 0), (0, 0, h)),
        ((-w / 2, -d / 2, 0), (0, d, 0), (0, 0, h)),
        ((w / 2, -d / 2, 0), (0, d, 0), (0, 0, h)),
        ((-w / 2, -d / 2, 0.002), (w, 0, 0), (0, d, 0)),
    ]
    return join([quad(*side, texture, tint, tile=None) for side in sides])


def compartment(
    rng: np.random.Generator, pool: Sequence[int], size: tuple[float, float, float], texture: int, tint: Vector
) -> Mesh:
    """Return a box that is open to one side (-y), with smaller things on its bottom. Half of them are dark inside, and
    half have a low board along the bottom of the opening."""
    w, d, h = size
    gap = 0.01 * min(size)  # between the box and its lining
    shells = [open_box(w, h, d, texture, tint).tipped().transformed(0.0, (0.0, d / 2, h / 2))]
    if rng.random() < 0.5:
        red, green, blue = (np.array(tint) * rng.uniform(0.02, 0.4)).tolist()
        lining = open_box(w - gap, h - gap, d - gap, texture, (red, green, blue)).tipped()
        shells.append(lining.transformed(0.0, (0.0, (d - gap) / 2, h / 2)))
    if rng.random() < 0.5:
        low = h * float(rng.uniform(0.05, 0.35))
        shells.append(quad((-w / 2, -d / 2, 0), (w, 0, 0), (0, 0, low), int(rng.choice(pool)), tint, tile=None))
    low, high = 0.03, 0.6 * min(size)
    things = [draw_thing(rng, pool, (low, high)) for _ in range(rng.integers(1, 6) if high > low else 0)]
    spots = rng.uniform(-0.35, 0.35, (len(things), 2)) * (w, d)
    inside = [
        thing.mesh.transformed(float(rng.uniform(0, 6.3)), (*spot, 0.004 + gap))
        for thing, spot in zip(things, spots.tolist(), strict=True)
    ]
    return join([*shells, *inside])


def person(rng: np.random.Generator, pool: Sequence[int], plain: int) -> Mesh:
    """Return a standing figure: legs, trunk, arms and a plain head as bodies of revolution, 1.1 to 1.9 metres tall."""
    tall = float(rng.uniform(1.1, 1.9))
    legs, trunk = (int(rng.choice(pool)) for _ in range(2))
    cloth, shirt = rng.uniform(0.05, 0.9, (2, 3)).tolist()
    skin = (np.array([0.75, 0.5, 0.38]) * rng.uniform(0.25, 1.0)).tolist()
    stride = rng.uniform(-0.12, 0.12)
    parts = [_limb(side * 0.1, side * stride, 0.0, 0.5, 0.075, legs, cloth) for side in (1, -1)]
    parts += [_limb(side * 0.23, -side * stride / 2, 0.45, 0.82, 0.045, trunk, shirt) for side in (1, -1)]
    body = [(0, 0.47), (0.15, 0.48), (0.14, 0.6), (0.19, 0.78), (0.12, 0.83), (0.05, 0.85), (0.05, 0.88), (0, 0.88)]
    skull = [(0.09 * np.sin(t), 0.935 - 0.065 * np.cos(t)) for t in np.linspace(0, np.pi, 8)]
    parts += [revolved(body, trunk, shirt, flat=0.65), revolved(skull, plain, skin)]
    return join([part.scaled(1.0, 1.0, tall) for part in parts])


def _limb(x: float, y: float, low: float, high: float, radius: float, texture: int, tint: Sequence[float]) -> Mesh:
    profile = [(0, low), (radius * 0.7, low), (radius, (low + high) / 2), (radius, high), (0, high)]
    return revolved(profile, texture, tint).transformed(0.0, (x, y, 0.0))
