"""What a case of `checkpoint_parity.py` is, and how random weights are made lively enough to compare outputs by."""

import contextlib
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from torch import nn

Map = np.ndarray
SIZES = {"square": (540, 540), "landscape": (530, 700), "portrait": (700, 530), "small": (200, 300)}
"""Heights and widths of the pictures; the last is smaller than any network's size."""


class Original(NamedTuple):
    """An original model with random weights."""

    weights: Path  # the file or folder with its weights, in its own layout
    # a picture's path -> its map at the picture's size, h x w (or k x h x w), by the original's own code
    predict: Callable[[Path], Map]
    options: Mapping[str, Any] = {}  # of our family, for this file
    camera: Mapping[str, Any] = {}  # of our predictor: the focal length, where metres depend on it
    model: Any = None  # where its weights can be exchanged, which `checkpoint_goldens.py` does


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table."""

    family: str  # ours; `name`: the variant
    name: str
    # (folder with the original's code, empty folder for files) -> the original; it seeds itself
    make: Callable[[Path, Path], Original]
    code: str  # which code runs as the original, in a few words for the table
    repository: str = ""  # that folder's name below --repositories; "" where a package holds the code
    needs: tuple[str, ...] = ()  # more folders there
    package: str = ""  # what must be installed
    # of the pictures, where the network cannot take all four
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=lambda: SIZES)
    slow: bool = False  # needs over 4 GB, or minutes; only with --slow
    differs: bool = False  # a control: the two must not agree


def scatter(model: nn.Module, seed: int = 0, amount: float = 0.02) -> None:
    """Moves every parameter off the zeros and ones that would hide mistakes, and BatchNorm's statistics off theirs."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw), alpha=amount)
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
                module.running_mean.add_(torch.randn(module.running_mean.shape, generator=draw), alpha=0.1)
                module.running_var.mul_(torch.rand(module.running_var.shape, generator=draw) + 0.5)


@torch.no_grad()
def spread(last: nn.Conv2d, run: Callable[[], object], mean: float, std: float) -> None:
    """Gives the numbers behind the layer `last` a mean and a deviation, so that outputs have a range. `run`: calls the
    model once on some picture."""
    seen: list[torch.Tensor] = []
    handle = last.register_forward_hook(lambda module, given, answer: seen.append(answer))
    run()
    handle.remove()
    found = torch.cat([answer.flatten() for answer in seen])
    factor = std / found.std().item()
    last.weight.mul_(factor)
    last.bias.mul_(factor).add_(mean - found.mean().item() * factor)


def noise(side: int) -> torch.Tensor:
    return torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(1))


def picture(size: tuple[int, int], seed: int = 0) -> np.ndarray:
    """h x w x 3 in uint8: slopes, a disc, stripes that alias, noise, black and white corners (bicubic overshoots)."""
    h, w = size
    draw = np.random.default_rng(seed)
    y, x = np.mgrid[:h, :w] / np.array([h, w]).reshape(2, 1, 1)
    disc = ((y - 0.6) ** 2 + (x - 0.3) ** 2 < 0.04) * 90.0
    stripes = 60 * np.sign(np.sin(400 * x * (1 + y)))
    image = np.stack([200 * y + disc, 120 + stripes * (x > 0.5), 220 * (1 - x) * y], -1) + draw.normal(0, 12, (h, w, 3))
    image[: h // 8, : w // 8], image[-h // 8 :, -w // 8 :] = 0, 255
    return np.asarray(image.clip(0, 255), dtype=np.uint8)


@contextlib.contextmanager
def code(repository: Path, package: str) -> Iterator[None]:
    """Lets a repository import its own modules, also from within functions, and forgets them afterwards."""
    held = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == package}
    sys.path.insert(0, str(repository))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of xFormers, which is absent
            yield
    finally:
        sys.path.remove(str(repository))
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
        sys.modules.update(held)  # another repository's modules of this name


def preprocessed(
    transforms: Any, image: np.ndarray, mean: list[float], std: list[float], **resize: Any
) -> torch.Tensor:
    """1 3 h w, by the transforms of MiDaS, of which other repositories have copies; `resize`: options of `Resize`."""
    resized = transforms.Resize(resize_target=None, image_interpolation_method=cv2.INTER_CUBIC, **resize)
    sample = transforms.NormalizeImage(mean=mean, std=std)(resized({"image": image}))
    return torch.from_numpy(transforms.PrepareForNet()(sample)["image"])[None]


def imported(folder: Path, name: str) -> Any:
    """A module of a repository, which keeps no name in `sys.modules`: other repositories use the same ones."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        top = name.partition(".")[0]
        for module in set(sys.modules) - before:
            if module.partition(".")[0] == top:
                del sys.modules[module]
