"""Vision Transformers by name: optional family, size and patch size.

create_vit("small/14"); create_vit("dinov2_reg-base/14"); create_vit("mini/4", image_size=28, channels=1)
"""

from typing import Any, NamedTuple

from densevit.errors import ConfigError
from densevit.models.vit.classifier import ViTClassifier
from densevit.registry import did_you_mean


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

# Options for published weights, by family.
DINOV2 = {"image_size": 518, "layer_scale": 1e-5, "pos_embed_interpolation": "offset", "num_classes": 0}
FAMILIES: dict[str, dict[str, Any]] = {
    "plain": {},  # Google, AugReg, DeiT, MAE
    "dinov2": DINOV2,
    "dinov2_reg": {**DINOV2, "registers": 4, "no_embed_class": True},
    "clip": {"norm_pre": True, "mlp": "quick_gelu", "eps": 1e-5, "head_bias": False},  # num_classes: its projection
    "siglip": {"class_token": False, "pool": "map", "mlp": "gelu_tanh", "num_classes": 0},
}
# DINOv2's giant has SwiGLU: two halves of 4096 for 1536 channels.
GATED = {"mlp": "swiglu_packed", "mlp_ratio": 2 * 2.66667}


def create_vit(name: str, **options: Any) -> ViTClassifier:
    """A ViT by name, such as 'small/14' or 'clip-base/16'. Raises ConfigError: no such family or size. `options`: for
    `ViTClassifier`, over the family's own; `image_size`, a side or (h, w), for its `grid`."""
    kind, _, patch = name.rpartition("/")
    family, _, size = kind.rpartition("-")
    family = family or "plain"
    for given, known, what in ((family, FAMILIES, "family"), (size, SIZES, "size")):
        if given not in known or not patch.isdecimal() or int(patch) == 0:
            fit = f"a name is [family-]size/patch, as in 'small/16' or 'clip-base/32'.{did_you_mean(given, known)}"
            raise ConfigError(f"ViT '{name}': no such {what}; {fit}")
    gated = GATED if size == "giant" and family.startswith("dinov2") else {}
    chosen = {**SIZES[size]._asdict(), **FAMILIES[family], **gated, **options}
    chosen.setdefault("grid", choose_grid(chosen.pop("image_size", 224), int(patch)))
    return ViTClassifier(patch_size=int(patch), **chosen)


def choose_grid(image_size: int | tuple[int, int], patch_size: int) -> tuple[int, int]:
    """Cells (h, w) that cover an image. Raises ConfigError if the image is smaller than a patch."""
    h, w = (image_size, image_size) if isinstance(image_size, int) else image_size
    if min(h, w) < patch_size:
        raise ConfigError(f"encoder.image_size: {h}x{w} holds no patch of {patch_size}x{patch_size}.")
    return -(-h // patch_size), -(-w // patch_size)
