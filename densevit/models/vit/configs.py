"""Named sizes of Vision Transformers, and the grid of an image."""

from typing import NamedTuple

from densevit.errors import ConfigError


class Size(NamedTuple):
    dim: int
    depth: int
    heads: int


SIZES = {
    "nano": Size(32, 2, 2),  # for tests and images of 8 pixels
    "mini": Size(64, 4, 4),  # for digits of 28 pixels, with patches of 4
    "tiny": Size(192, 12, 3),
    "small": Size(384, 12, 6),
    "base": Size(768, 12, 12),
    "large": Size(1024, 24, 16),
    "huge": Size(1280, 32, 16),
    "giant": Size(1536, 40, 24),
}


def choose_grid(image_size: int | tuple[int, int], patch_size: int) -> tuple[int, int]:
    """Cells (h, w) that cover an image. Raises ConfigError if the image is smaller than a patch."""
    h, w = (image_size, image_size) if isinstance(image_size, int) else image_size
    if min(h, w) < patch_size:
        raise ConfigError(f"encoder.image_size: {h}x{w} holds no patch of {patch_size}x{patch_size}.")
    return -(-h // patch_size), -(-w // patch_size)
