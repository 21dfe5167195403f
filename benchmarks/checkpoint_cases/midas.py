"""MiDaS 3.1 beside isl-org/MiDaS, on the timm of its time: nothing of either is changed.

Besides the clone, --repositories needs that timm, which today's cannot stand in for (MiDaS patches its insides):

    pip install --no-deps --target DIR/timm-0.6.13 timm==0.6.13

(MiDaS asks for 0.6.12, which does not import on Python 3.11; 0.6.13 repairs that.) Quick cases replace the function
that makes the encoder by one that calls the same functions with small numbers.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from checkpoint_cases.case import Case, Original, code, imported, noise, scatter, spread
from checkpoint_cases.dpt import predict_depth, resized, saved
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


def make(repository: Path, work: Path, backbone: str, small: bool = False) -> Original:
    model = lively(repository, backbone, small)
    size = 512 if "512" in backbone else 256 if "256" in backbone else 384
    predict = partial(predict_depth, prepare(repository, size, "swin" in backbone), model)
    return Original(saved(model, work), predict, model=model)


def lively(repository: Path, backbone: str, small: bool) -> nn.Module:
    with code(repository.parent / TIMM, "timm"):  # today's is back afterwards
        midas = imported(repository, "midas.dpt_depth")
        if small:
            midas._make_encoder = partial(small_beit, midas._make_encoder.__globals__, midas.forward_beit.__globals__)
        model = midas.DPTDepthModel(backbone=backbone, **({"features": 64} if small else {})).eval()
    scatter(model)
    spread(model.scratch.output_conv[4], lambda: model(noise(256 if "256" in backbone else 384)), 1.0, 0.5)
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


def prepare(repository: Path, size: int, square: bool) -> Callable[[Path], tuple[torch.Tensor, tuple[int, int]]]:
    """The transforms of its `load_model`, and the reading of its `utils.py`."""
    transforms: ModuleType = imported(repository, "midas.transforms")
    read_image = imported(repository, "utils").read_image

    def read(path: Path) -> tuple[torch.Tensor, tuple[int, int]]:
        image = read_image(str(path))
        return resized(transforms, image, (size, size), keep=not square), image.shape[:2]

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
