"""Weights and pictures that anybody can make again from names and sizes, and files of what originals made of them."""

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import densevit

GOLDEN = Path(__file__).parent / "golden"
BUFFERS = (
    "relative_position_index",
    "relative_coords_table",
    "attn_mask",
    "k_idx",
    "K_minus_1",
    "num_batches_tracked",
    "bias_mask",
    "periods",
)


class Golden(NamedTuple):
    """What an original says.

    Attributes:
        shapes: of its tensors; last: the layer whose numbers are the output; gain, offset: what makes these lively.
        maps: (h, w) of a picture -> its map, every so many pixels (and classes).
    """

    shapes: Mapping[str, tuple[int, ...]]
    last: str
    gain: float
    offset: float
    maps: Mapping[tuple[int, int], np.ndarray]

    def state(self) -> dict[str, Tensor]:
        return seeded(self.shapes, self.last, self.gain, self.offset)


def seeded(shapes: Mapping[str, tuple[int, ...]], last: str, gain: float, offset: float) -> dict[str, Tensor]:
    state = {name: draw(name, shape) for name, shape in shapes.items()}
    state[f"{last}.weight"] *= gain
    state[f"{last}.bias"] = state[f"{last}.bias"] * gain + offset
    return state


def draw(name: str, shape: tuple[int, ...]) -> Tensor:
    """Numbers of a size that signals survive; buffers, which nobody may read, are zeros."""
    rng, leaf = np.random.default_rng(zlib.crc32(name.encode())), name.rpartition(".")[2]
    noise = rng.standard_normal(shape, dtype=np.float32)
    if leaf in BUFFERS:
        return torch.zeros(shape)
    if leaf == "running_var":
        return torch.from_numpy(0.5 + np.abs(noise))
    if leaf in ("pos_embed", "position_embeddings", "cls_token", "reg_token"):
        return torch.from_numpy(noise * np.float32(0.5))
    if shape == (4,) and "log_binomial" in name:  # ZoeDepth's two numbers of a chance and two of a temperature: cool
        return torch.tensor([0.0, 0.0, -3.0, 3.0])
    if len(shape) > 1:
        return torch.from_numpy(noise * np.float32(np.prod(shape[1:]) ** -0.5))
    return torch.from_numpy(noise * np.float32(0.1) + np.float32(leaf in ("weight", "gamma_1", "gamma_2")))


def picture(size: tuple[int, int]) -> np.ndarray:
    """Waves, slopes and a black square: h w 3 in uint8."""
    rows, columns = np.mgrid[: size[0], : size[1]].astype(np.float64)
    red, green = 128 + 100 * np.sin(rows / 7 + columns / 11), 255 * rows / size[0]
    image = np.stack([red, green, 200 * columns / size[1] + 40 * np.cos(columns / 5)], -1)
    image[: size[0] // 4, : size[1] // 4] = 0
    return image.clip(0, 255).astype(np.uint8)


def thinned(map_: np.ndarray) -> np.ndarray:
    """Every 37th class and some hundred pixels: h w or k h w."""
    step = max(map_.shape[-1] // 12, 1)
    return (map_ if map_.ndim == 2 else map_[::37])[..., step // 2 :: step, step // 2 :: step]


def read(name: str) -> Golden:
    with np.load(GOLDEN / f"{name}.npz", allow_pickle=False) as file:
        shapes = {
            str(name): tuple(int(n) for n in shape if n >= 0)
            for name, shape in zip(file["names"], file["shapes"], strict=True)
        }
        maps = {tuple(int(n) for n in key.split("x")): file[key] for key in file.files if key[0].isdigit()}
        return Golden(shapes, str(file["last"]), float(file["gain"]), float(file["offset"]), maps)  # type: ignore[arg-type]


def write(name: str, golden: Golden) -> None:
    width = max(len(shape) for shape in golden.shapes.values())
    shapes = np.array([[*shape, *[-1] * (width - len(shape))] for shape in golden.shapes.values()], dtype=np.int32)
    maps = {"x".join(map(str, size)): map_.astype(np.float32) for size, map_ in golden.maps.items()}
    GOLDEN.mkdir(exist_ok=True)
    names = np.array(list(golden.shapes))
    about = {"last": np.array(golden.last), "gain": golden.gain, "offset": golden.offset}
    np.savez_compressed(GOLDEN / f"{name}.npz", names=names, shapes=shapes, **about, **maps)  # type: ignore[arg-type]


def saved(name: str, folder: Path, **changes: Tensor | None) -> Path:
    """The golden's weights as a file; a change of None leaves a tensor out."""
    state = {**read(name).state(), **changes}
    torch.save({"model": {key: value for key, value in state.items() if value is not None}}, folder / "model.pt")
    return folder / "model.pt"


def load(path: Path, family: str | None = None, **options: object) -> densevit.Predictor:
    return densevit.load(path, family, device="cpu", precision="fp32", family_options=options)


def gap(name: str, predictor: densevit.Predictor) -> float:
    """Largest difference from the original, as a share of its range."""
    pairs = [(thinned(predictor(picture(size))), theirs) for size, theirs in read(name).maps.items()]
    assert all(ours.shape == theirs.shape for ours, theirs in pairs)
    return max(float(np.abs(ours - theirs).max() / np.ptp(theirs)) for ours, theirs in pairs)


def check(name: str, family: str | None, folder: Path, **options: object) -> densevit.Predictor:
    """The maps of our loader are the original's."""
    predictor = load(saved(name, folder), family, **options)
    assert gap(name, predictor) <= 1e-4
    return predictor
