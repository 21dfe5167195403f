"""Attention maps of one image, as PNG files and on an HTML page: one query's row of the softmax, and attention rollout.

l layers, gh x gw patches of the padded input, h x w pixels of the network's input before padding.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor, nn

from densevit.data.io.readers import ImageLike, as_rgb
from densevit.data.io.writers import encode
from densevit.errors import ConfigError, DataError
from densevit.inference.forward import preprocess
from densevit.inference.predictor import Predictor
from densevit.models.encoders.timm_vit import TimmEncoder
from densevit.models.encoders.vit import ViTEncoder
from densevit.ops.colors import colorize
from densevit.ops.resize import crop_below, pad_to_multiple, unpadded_size
from densevit.preprocess_config import PreprocessConfig
from densevit.reporting.figures import jpeg
from densevit.reporting.html_page import write_page
from densevit.structures import Size
from densevit.utils.atomic_io import make_folder, write_bytes


@dataclass(frozen=True, kw_only=True)
class AttentionMaps:
    """Attention of one query to the patches; what class and register tokens receive is missing from their sums."""

    image: UInt8[np.ndarray, "h w 3"]
    query: str  # whose attention it is, in words: the class token, without one the mean of all patches, or one patch
    weights: Float32[np.ndarray, "l heads gh gw"]  # the attention of each head of each layer to each patch
    # the contribution of each patch to the query after each layer (Abnar & Zuidema 2020)
    rollout: Float32[np.ndarray, "l gh gw"]
    patch_size: int
    window: tuple[int, int, int, int]  # where the image lies in the padded one: top, left, h, w

    def mean(self) -> Float32[np.ndarray, "l gh gw"]:
        """Return the mean over the heads of each layer."""
        return np.asarray(self.weights.mean(1))


class RolloutAccumulator:
    """Receives the attention weights of one layer after another and keeps the query's rows.

    Rollout is the product of (A + I) / 2 over the layers, of which A is the mean of the heads (Abnar & Zuidema 2020).
    """

    def __init__(self, prefix_tokens: int, rows: slice, grid: tuple[int, int]) -> None:
        """
        Args:
            rows: the tokens whose attention is averaged.
        """
        self.prefix, self.rows, self.grid = prefix_tokens, rows, grid
        self.weights: list[Tensor] = []
        self.rollout: list[Tensor] = []
        self.flow: Tensor | None = None

    def add(self, weights: Float[Tensor, "1 heads n n"]) -> None:
        weights = weights.float()
        mixed = (weights.mean(1) + torch.eye(weights.shape[-1], device=weights.device)) / 2  # rows sum to one
        self.flow = mixed if self.flow is None else mixed @ self.flow
        self.weights.append(self.query_row(weights))
        self.rollout.append(self.query_row(self.flow[:, None])[0])

    def query_row(self, weights: Float[Tensor, "1 heads n n"]) -> Float[Tensor, "heads gh gw"]:
        """Return the attention of the query to the patches."""
        return weights[0, :, self.rows].mean(1)[:, self.prefix :].reshape(-1, *self.grid)


@torch.inference_mode()
def compute_attention(predictor: Predictor, image: ImageLike, at: tuple[float, float] | None = None) -> AttentionMaps:
    """Run one image through the encoder, in fp32, preprocessed as its card says.

    Layers after the last of the encoder's `out_indices` do not exist in a model and so are not shown. Raises
    ConfigError: an encoder of another family than `vit` and `timm`. Raises DataError: no such image, or `at` lies
    outside it. `at`: x, y in pixels of the image: the query is the patch that this pixel lies in, not the class token.
    """
    require_attention(predictor)
    encoder: Any = predictor.model.encoder
    card, whole = predictor.card, predictor.to_tensor(as_rgb(image)[None])
    seen = preprocess(whole, card.resize, card.multiple).to(predictor.device)
    x, offset = pad_to_multiple((seen - encoder.mean) / encoder.std, encoder.patch_size)
    grid = (x.shape[-2] // encoder.patch_size, x.shape[-1] // encoder.patch_size)
    if at is not None:
        content = unpadded_size(size_of(whole), card.resize) or size_of(seen)
        row, column = patch_at(at, size_of(whole), content, offset, encoder.patch_size)
        index = encoder.prefix_tokens + row * grid[1] + column
        query, rows = f"patch in row {row}, column {column}", slice(index, index + 1)
    elif getattr(encoder.vit, "cls_token", None) is not None:
        query, rows = "class token", slice(1)
    else:
        query, rows = "mean patch", slice(encoder.prefix_tokens, None)
    accumulator = RolloutAccumulator(encoder.prefix_tokens, rows, grid)
    if isinstance(encoder, ViTEncoder):
        for weights in encoder.vit.attention(x.mean(1, keepdim=True) if encoder.grey else x):
            accumulator.add(weights)
    else:
        visit_attention_weights(encoder.vit, x, accumulator.add)
    return AttentionMaps(
        image=as_bytes(seen),
        query=query,
        weights=torch.stack(accumulator.weights).cpu().numpy(),
        rollout=torch.stack(accumulator.rollout).cpu().numpy(),
        patch_size=encoder.patch_size,
        window=(*offset, *size_of(seen)),
    )


def require_attention(predictor: Predictor) -> None:
    """Raise ConfigError: an encoder of another family than `vit` and `timm`."""
    encoder = getattr(predictor.model, "encoder", predictor.model)  # an ONNX file has none
    if not isinstance(encoder, ViTEncoder | TimmEncoder):
        raise ConfigError(f"attention: shown for encoders `vit` and `timm`, not for a {type(encoder).__name__}.")


def patch_at(
    at: tuple[float, float], size: Size, input_size: Size, offset: tuple[int, int], patch_size: int
) -> tuple[int, int]:
    """Return the row and column of the patch that a pixel lies in. Raises DataError: a pixel outside the image.

    Args:
        at: x, y in pixels of the image.
        size, input_size: h, w of the image and of what it is resized to.
        offset: top and left padding.
    """
    (x, y), (h, w) = at, size
    if not (0 <= x < w and 0 <= y < h):
        raise DataError(f"attention: pixel {x:g}, {y:g} lies outside this image of {h}x{w}.")
    position = (y / h * input_size[0] + offset[0], x / w * input_size[1] + offset[1])
    return int(position[0] // patch_size), int(position[1] // patch_size)


def size_of(x: Float[Tensor, "b c h w"]) -> tuple[int, int]:
    return x.shape[-2], x.shape[-1]


def as_bytes(image: Float[Tensor, "1 3 h w"]) -> UInt8[np.ndarray, "h w 3"]:
    pixels = (image[0].permute(1, 2, 0).clamp(0, 1) * 255).round()
    return pixels.to(torch.uint8).cpu().numpy()


PAGE = "attention.html"
LARGE, SMALL = 512, 176  # longer side in pixels of a PNG, and of an image in the page
CMAP = "inferno"


class NamedMap(NamedTuple):
    name: str  # of its file
    caption: str
    map: Float32[np.ndarray, "gh gw"]


def write_attention_page(folder: Path, attention: AttentionMaps, *, title: str) -> list[Path]:
    """Write the page, the network's input image, and a PNG of every map, making the folder. Raises StorageError if the
    folder cannot be made or written to. Returns their paths, the page first."""
    make_folder(folder)
    layers = range(len(attention.weights))
    images = {"image": scale_to(attention.image, LARGE)}
    images |= {m.name: overlay(attention, m.map, LARGE) for layer in layers for m in named_maps(attention, layer)}
    for name, pixels in images.items():
        write_bytes(folder / f"{name}.png", encode(".png", pixels))
    page = write_page(
        folder / PAGE,
        "attention.html",
        title=title,
        subtitle=description(attention),
        image=jpeg(scale_to(attention.image, SMALL)),
        layers=[(heading(attention, layer), figures(attention, layer)) for layer in layers],
    )
    return [page, *(folder / f"{name}.png" for name in images)]


def named_maps(attention: AttentionMaps, layer: int) -> Iterator[NamedMap]:
    """Yield the mean of a layer's heads, its rollout, then each head."""
    stem = f"layer{layer:02d}"
    yield NamedMap(f"{stem}_mean", "mean of heads", attention.mean()[layer])
    yield NamedMap(f"{stem}_rollout", "rollout", attention.rollout[layer])
    for head, weights in enumerate(attention.weights[layer]):
        yield NamedMap(f"{stem}_head{head:02d}", f"head {head}", weights)


def overlay(
    attention: AttentionMaps, map_: Float32[np.ndarray, "gh gw"], side: int
) -> UInt8[np.ndarray, "height width 3"]:
    """Return the image in grey under the map's colours, each square one patch; the map's largest value is the
    brightest."""
    return blend(scale_to(attention.image, side), scale_to(patch_shares(attention, map_), side))


def overlay_on(
    image: UInt8[np.ndarray, "height width 3"],
    attention: AttentionMaps,
    map_: Float32[np.ndarray, "gh gw"],
    side: int,
    config: PreprocessConfig,
) -> UInt8[np.ndarray, "_ _ 3"]:
    """Return `overlay` in the shape of the image that `config` made the network's input from."""
    shares = torch.from_numpy(patch_shares(attention, map_))[None, None]
    shown, (h, w) = scale_to(image, side), image.shape[:2]
    of_image = crop_below(shares, (h, w), config)[0, 0].numpy()
    return blend(shown, cv2.resize(of_image, shown.shape[1::-1], interpolation=cv2.INTER_NEAREST))


def patch_shares(attention: AttentionMaps, map_: Float32[np.ndarray, "gh gw"]) -> Float32[np.ndarray, "h w"]:
    """Return the map as a share of its largest value, by pixel of the network's input."""
    top, left, h, w = attention.window
    patches = map_.repeat(attention.patch_size, 0).repeat(attention.patch_size, 1)[top : top + h, left : left + w]
    return np.asarray(patches / max(float(map_.max()), 1e-12))


def blend(image: UInt8[np.ndarray, "_ _ 3"], shares: np.ndarray) -> UInt8[np.ndarray, "_ _ 3"]:
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None]
    return np.rint(0.45 * grey + 0.55 * colorize(shares, 0.0, 1.0, CMAP)).astype(np.uint8)


def scale_to(pixels: np.ndarray, side: int) -> np.ndarray:
    """Return its longer side near `side`: small images are enlarged by whole factors, so that pixels stay squares."""
    h, w = pixels.shape[:2]
    if max(h, w) <= side:
        factor = side // max(h, w)
        return pixels.repeat(factor, 0).repeat(factor, 1)
    size = (max(1, round(w * side / max(h, w))), max(1, round(h * side / max(h, w))))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA))


def description(attention: AttentionMaps) -> str:
    layers, heads, gh, gw = attention.weights.shape
    h, w = attention.image.shape[:2]
    return (
        f"Attention of the {attention.query} to each patch: {layers} layers of {heads} heads, {gh} x {gw} patches of "
        f"{attention.patch_size} x {attention.patch_size} pixels over the network's input of {h} x {w} pixels. "
        "Colours run from 0 to the largest value of each map, which its caption gives; uniform attention is "
        f"{1 / (gh * gw):.4f}. Rollout is the product of the layers so far, with half the weight on skip connections."
    )


def heading(attention: AttentionMaps, layer: int) -> str:
    return f"layer {layer}, {float(attention.mean()[layer].sum()):.0%} of its attention on patches"


def figures(attention: AttentionMaps, layer: int) -> list[tuple[str, str]]:
    """Return the caption and image address of each map of a layer."""
    return [
        (f"{m.caption}, to {m.map.max():.4f}", jpeg(overlay(attention, m.map, SMALL)))
        for m in named_maps(attention, layer)
    ]


Visitor = Callable[[Float[Tensor, "b heads n n"]], object]


def visit_attention_weights(vit: nn.Module, image: Float[Tensor, "b c h w"], visit: Visitor) -> None:
    """Run `vit` once and call `visit` with each layer's weights, from the first on.

    For every class of timm whose attention applies `attn_drop` to its weights and has a switch for the fused kernel:
    VisionTransformer (AugReg, DeiT, DINOv2, CLIP, SigLIP, MAE), Eva (EVA, EVA-02, DINOv3) and Beit. Raises ConfigError:
    another kind of attention.
    """
    blocks: Any = vit.blocks
    with ExitStack() as stack, torch.inference_mode():
        for block in blocks:
            stack.enter_context(without_fused_attention(block.attn))
            stack.enter_context(dropout_hook(block.attn.attn_drop, visit))
        vit.forward_features(image)  # type: ignore[operator]


@contextmanager
def without_fused_attention(attention: Any) -> Iterator[None]:
    """Switch off the fused kernel, which does not compute the weights explicitly."""
    if not hasattr(attention, "fused_attn") or not hasattr(attention, "attn_drop"):
        raise ConfigError(f"the attention of this encoder, a {type(attention).__name__}, does not show its weights.")
    fused = attention.fused_attn
    attention.fused_attn = False
    try:
        yield
    finally:
        attention.fused_attn = fused


@contextmanager
def dropout_hook(dropout: nn.Module, visit: Visitor) -> Iterator[None]:
    """Hook the dropout of the weights, which is the identity in evaluation."""
    handle = dropout.register_forward_pre_hook(lambda _, args: (visit(args[0]), None)[1])
    try:
        yield
    finally:
        handle.remove()
