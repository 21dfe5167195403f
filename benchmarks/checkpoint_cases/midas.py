"""MiDaS 3.1 beside isl-org/MiDaS, on the timm of its time: nothing of either is changed.

Besides the clone, --repositories needs that timm, which today's cannot stand in for (MiDaS patches its insides):

    pip install --no-deps --target DIR/timm-0.6.13 timm==0.6.13

(MiDaS asks for 0.6.12, which does not import on Python 3.11; 0.6.13 repairs that.) Quick cases replace the function
that makes the encoder by one that calls the same functions with small numbers.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import torch
from checkpoint_cases.case import Case, Original, imported, scatter, spread
from checkpoint_cases.dpt import predict_depth, saved
from torch import nn

TIMM = "timm-0.6.13"
# The first four as timm's `beit_base_patch16_384` has them.
SMALL_BEIT = {
    "img_size": 384,
    "use_abs_pos_emb": False,
    "use_rel_pos_bias": True,
    "init_values": 0.1,
    "embed_dim": 128,
    "depth": 4,
    "num_heads": 2,
}


@contextmanager
def timm_of_its_time(repositories: Path) -> Iterator[None]:
    """`import timm` gives the old one; today's is back afterwards."""
    todays = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "timm"}
    for name in todays:
        del sys.modules[name]
    sys.path.insert(0, str(repositories / TIMM))
    try:
        yield
    finally:
        sys.path.remove(str(repositories / TIMM))
        for name in [name for name in sys.modules if name.partition(".")[0] == "timm"]:
            del sys.modules[name]
        sys.modules.update(todays)


def make(repository: Path, work: Path, backbone: str, small: bool = False) -> Original:
    model = lively(repository, backbone, small)
    size = 512 if "512" in backbone else 256 if "256" in backbone else 384
    predict = partial(predict_depth, prepare(repository, size, "swin" in backbone), model)
    return Original(saved(model, work), predict, model=model)


def lively(repository: Path, backbone: str, small: bool) -> nn.Module:
    with timm_of_its_time(repository.parent):
        midas = imported(repository, "midas.dpt_depth")
        if small:
            midas._make_encoder = partial(small_beit, midas._make_encoder.__globals__, midas.forward_beit.__globals__)
        model = midas.DPTDepthModel(backbone=backbone, **({"features": 64} if small else {})).eval()
    scatter(model)
    spread(model.scratch.output_conv[4], partial(warm, model, 256 if "256" in backbone else 384), 1.0, 0.5)
    return model


def small_beit(
    blocks: Mapping[str, Any], beit: Mapping[str, Any], backbone: str, features: int, *args: Any, **given: Any
) -> tuple[nn.Module, nn.Module]:
    """What `_make_encoder` does, with the functions of `blocks.py` and `beit.py`, around a small model of timm."""
    model = beit["timm"].models.beit.Beit(**SMALL_BEIT)
    widths, readout = [16, 24, 32, 48], given["use_readout"]
    pretrained = beit["_make_beit_backbone"](
        model, widths, hooks=[0, 1, 2, 3], vit_features=SMALL_BEIT["embed_dim"], use_readout=readout
    )
    return pretrained, blocks["_make_scratch"](widths, features)


def warm(model: nn.Module, size: int) -> None:
    with torch.no_grad():
        model(torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(1)))


def prepare(repository: Path, size: int, square: bool) -> Callable[[Path], tuple[torch.Tensor, tuple[int, int]]]:
    """The transforms of its `load_model`, and the reading of its `utils.py`."""
    transforms: ModuleType = imported(repository, "midas.transforms")
    read_image = imported(repository, "utils").read_image
    resize = transforms.Resize(
        size,
        size,
        resize_target=None,
        keep_aspect_ratio=not square,
        ensure_multiple_of=32,
        resize_method="minimal",
        image_interpolation_method=cv2.INTER_CUBIC,
    )
    normalise = transforms.NormalizeImage(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])

    def read(path: Path) -> tuple[torch.Tensor, tuple[int, int]]:
        image = read_image(str(path))
        sample = transforms.PrepareForNet()(normalise(resize({"image": image})))["image"]
        return torch.from_numpy(sample)[None], image.shape[:2]

    return read


def case(name: str, backbone: str, *, small: bool = False, slow: bool = False) -> Case:
    return Case(
        family="midas",
        name=name,
        make=partial(make, backbone=backbone, small=small),
        code="MiDaS, timm 0.6.13",
        repository="MiDaS",
        needs=(TIMM,),
        slow=slow,
    )


CASES = [
    case("small BEiT", "beitb16_384", small=True),
    case("Swin2-T, 256", "swin2t16_256"),
    case("BEiT-B, 384", "beitb16_384", slow=True),
    case("BEiT-L, 384", "beitl16_384", slow=True),
    case("BEiT-L, 512", "beitl16_512", slow=True),
    case("Swin2-B, 384", "swin2b24_384", slow=True),
    case("Swin2-L, 384", "swin2l24_384", slow=True),
    case("Swin-L, 384", "swinl12_384", slow=True),
]
