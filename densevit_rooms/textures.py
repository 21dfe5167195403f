"""Textures: procedural ones and the photographs of scikit-image, and sampling of them with mip maps.

All images are uint8 RGB in sRGB; the procedural ones tile without a seam.
"""

import colorsys
from collections.abc import Callable, Sequence
from functools import cache

import cv2
import numpy as np
from jaxtyping import Float32, Int64, UInt8

Image = UInt8[np.ndarray, "_ _ 3"]  # textures differ in size
Maker = Callable[[np.random.Generator, Sequence[float]], Image]
ColourMaker = Callable[[np.random.Generator, tuple[float, float], tuple[float, float]], list[float]]
SIDE = 256
LEVELS = 9

# Photographs in the wheel of scikit-image that suit a picture on a wall.
PICTURES = ("astronaut", "chelsea", "coffee", "rocket", "hubble_deep_field", "retina", "motorcycle_left", "camera")
STONES = ("brick", "gravel", "grass")


class Textures:
    """The textures of one scene with their mip maps, in one array that is indexed by pixel."""

    def __init__(self, images: Sequence[Image]) -> None:
        texels, count = [], 0
        self.sizes, self.starts = np.ones((len(images), LEVELS, 2), int), np.zeros((len(images), LEVELS), int)
        for i, image in enumerate(images):
            for level in range(LEVELS):
                self.sizes[i, level], self.starts[i, level] = image.shape[:2], count
                texels.append(image.reshape(-1, 3))
                count += len(texels[-1])
                h, w = image.shape[:2]
                image = cv2.resize(image, (max(w // 2, 1), max(h // 2, 1)), interpolation=cv2.INTER_AREA)
        self.texels = np.concatenate(texels)
        self.sides = self.sizes[:, 0].max(axis=1).astype(np.float32)

    def sample(
        self, texture: Int64[np.ndarray, " n"], uv: Float32[np.ndarray, "n 2"], footprint: Float32[np.ndarray, " n"]
    ) -> Float32[np.ndarray, "n 3"]:
        """Return the bilinear colours, 0 to 255, from the mip level at which a pixel covers about one texel.
        `footprint`: the side of a pixel in units of uv."""
        side = footprint * self.sides[texture]
        level = np.clip(np.log2(np.maximum(side, 1e-6)) + 0.5, 0, LEVELS - 1).astype(np.int64)
        size, start = self.sizes[texture, level], self.starts[texture, level]
        place = uv[:, ::-1] * size - 0.5  # row, column
        corner = np.floor(place)
        (fy, fx), (y, x) = (place - corner).T.astype(np.float32)[..., None], corner.astype(np.int64).T
        h, w = size.T
        y0, x0, y1, x1 = start + y % h * w, x % w, start + (y + 1) % h * w, (x + 1) % w
        top = self.texels[y0 + x0] * (1 - fx) + self.texels[y0 + x1] * fx
        bottom = self.texels[y1 + x0] * (1 - fx) + self.texels[y1 + x1] * fx
        return np.asarray(top * (1 - fy) + bottom * fy, dtype=np.float32)


@cache
def photograph(name: str) -> Image:
    """Return one of scikit-image's bundled photographs, its long side 256 pixels."""
    from skimage.data import data_dir  # not at the top: `import densevit.data` stays light

    suffix = "jpg" if name in ("hubble_deep_field", "retina", "rocket") else "png"
    image = cv2.imread(f"{data_dir}/{name}.{suffix}", cv2.IMREAD_COLOR_RGB)
    assert image is not None, name
    scale = SIDE / max(image.shape[:2])
    size = (round(image.shape[1] * scale), round(image.shape[0] * scale))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA))


def colour(rng: np.random.Generator, saturation: tuple[float, float], value: tuple[float, float]) -> list[float]:
    """Return an sRGB colour, 0 to 255, of a random hue; warm hues are more frequent."""
    hue = rng.uniform(0.02, 0.17) if rng.random() < 0.6 else rng.random()
    return [255 * x for x in colorsys.hsv_to_rgb(hue, rng.uniform(*saturation), rng.uniform(*value))]


def plain(colour: Sequence[float]) -> Image:
    return np.full((1, 1, 3), colour, dtype=np.float32).clip(0, 255).astype(np.uint8)


def noise(rng: np.random.Generator, roughness: float) -> Float32[np.ndarray, "s s"]:
    """Return the seamless noise of unit variance: a spectrum of 1 / f^roughness."""
    f = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE)[None])
    f[0, 0] = np.inf
    field = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((SIDE, SIDE))) / f**roughness, (SIDE, SIDE))
    return np.asarray(field / field.std(), dtype=np.float32)


def coloured(colour: Sequence[float], brightness: Float32[np.ndarray, "s s"]) -> Image:
    """Return one colour, times 1 + brightness."""
    shades = np.asarray(colour, np.float32) * (1 + brightness[..., None])
    return np.asarray(shades.clip(0, 255), dtype=np.uint8)


def plaster(rng: np.random.Generator, colour: Sequence[float]) -> Image:
    return coloured(colour, 0.025 * noise(rng, 1.2) + 0.015 * noise(rng, 0.2))


def carpet(rng: np.random.Generator, colour: Sequence[float]) -> Image:
    return coloured(colour, 0.06 * noise(rng, 0.0) + 0.08 * noise(rng, 1.0))


def stripes(rng: np.random.Generator, colour: Sequence[float]) -> Image:
    wave = np.sin(2 * np.pi * rng.integers(3, 9) * np.arange(SIDE) / SIDE + rng.uniform(0, 6))
    band = np.tanh(4 * wave)[None].repeat(SIDE, 0)
    return coloured(colour, (rng.uniform(0.06, 0.2) * band + 0.02 * noise(rng, 0.8)).astype(np.float32))


def wallpaper(rng: np.random.Generator, colour: Sequence[float]) -> Image:
    """Return a symmetric pattern: the sum of three products of cosines."""
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE * 2 * np.pi
    waves = sum(np.cos(rng.integers(0, 7) * x) * np.cos(rng.integers(0, 7) * y) for _ in range(3))
    return coloured(colour, (rng.uniform(0.06, 0.16) * np.tanh(3 * waves) + 0.02 * noise(rng, 0.8)).astype(np.float32))


def tiles(rng: np.random.Generator, colour: Sequence[float]) -> Image:
    count = int(rng.choice([2, 4, 8]))
    tone = np.kron(rng.normal(0, 0.04, (count, count)), np.ones((SIDE // count, SIDE // count)))
    chequer = np.kron(np.indices((count, count)).sum(0) % 2, np.ones((SIDE // count, SIDE // count)))
    cell = np.arange(SIDE) % (SIDE // count)
    joint = (cell < 2)[:, None] | (cell < 2)[None]
    shade = tone + rng.choice([0.0, 0.0, -0.5]) * chequer + 0.03 * noise(rng, 1.0)
    return coloured(colour, np.where(joint, -0.35, shade).astype(np.float32))


def planks(rng: np.random.Generator, colour: Sequence[float]) -> Image:
    """Return the boards along the columns, with grain; tone and ends of each are random."""
    count = int(rng.choice([4, 8]))
    width = SIDE // count
    grain = cv2.resize(noise(rng, 0.9)[:: SIDE // 16], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    board = np.arange(SIDE) // width
    ends = rng.integers(0, SIDE, count)[board]
    rows = (np.arange(SIDE)[:, None] - ends[None]) % SIDE
    tone = rng.normal(0, 0.09, (count, 2))[board[None].repeat(SIDE, 0), (rows > SIDE // 2).astype(int)]
    joint = (np.arange(SIDE) % width < 1)[None] | (rows % (SIDE // 2) < 1)
    return coloured(colour, np.where(joint, -0.45, tone + 0.07 * grain).astype(np.float32))


def sky(rng: np.random.Generator, colour: Sequence[float]) -> Image:
    """Return the view from a window: a bright sky with clouds above darker land."""
    row = np.linspace(0, 1, SIDE)[:, None]
    cloud = 0.5 + 0.5 * np.tanh(noise(rng, 1.6))[..., None]
    above = np.array([150, 185, 235]) * (1 - cloud) + 245 * cloud
    land = np.asarray(colour) * (0.75 + 0.1 * noise(rng, 1.2)[..., None])
    horizon = rng.uniform(0.55, 0.85) + 0.03 * noise(rng, 1.5)
    return np.where((row > horizon)[..., None], land, above).clip(0, 255).astype(np.uint8)


def stone(rng: np.random.Generator, colour: Sequence[float]) -> Image:
    """Return a photograph of brick, gravel or grass, tinted with `colour`; these tile with a visible seam."""
    grey = photograph(str(rng.choice(STONES))).mean(axis=2, dtype=np.float32)
    return coloured(colour, 0.8 * (grey / grey.mean() - 1))


WALLS = (plaster, plaster, plaster, stripes, wallpaper, stone, tiles, planks)
FLOORS = (planks, planks, planks, tiles, tiles, carpet, carpet, stone)
CEILINGS = (plaster, plaster, plaster, tiles, planks)
RUGS = (carpet, stripes, wallpaper, tiles)
