"""DPT large and hybrid beside isl-org/DPT: its own models, transforms and post-processing, on today's timm.

Its encoder is timm's; `timm.create_model` gives it the small ones of the quick cases, and nothing else is changed.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import timm
import torch
from checkpoint_cases.case import Case, Map, Original, imported, noise, preprocessed, scatter, spread
from timm.models.resnetv2 import ResNetV2
from timm.models.vision_transformer_hybrid import StdConv2dSame
from torch import nn
from torch.nn import functional as F

SMALL = {"embed_dim": 128, "depth": 4, "num_heads": 2}


def depth(repository: Path, work: Path, backbone: str, size: tuple[int, int], small: bool, **options: Any) -> Original:
    dpt = imported(repository, "dpt.models")
    model = dpt.DPTDepthModel(**build(dpt, small), backbone=backbone, **options).eval()
    scatter(model)
    spread(model.scratch.output_conv[4], lambda: model(noise(384)), *lively(options))
    return Original(saved(model, work), partial(predict_depth, prepare(repository, size), model), model=model)


def labels(repository: Path, work: Path, backbone: str, small: bool) -> Original:
    dpt = imported(repository, "dpt.models")
    model = dpt.DPTSegmentationModel(150, **build(dpt, small), backbone=backbone).eval()
    scatter(model)
    spread(model.scratch.output_conv[4], lambda: model(noise(384)), 0.0, 3.0)
    return Original(saved(model, work), partial(predict_labels, prepare(repository, (480, 480)), model), model=model)


def lively(options: Mapping[str, Any]) -> tuple[float, float]:
    """Mean and deviation of the disparity: around 5 m where it becomes metres.

    Few pixels come near the far end, where 1 / x would magnify the last digits of both.
    """
    if not options:
        return 1.0, 0.5
    middle = (0.2 - options["shift"]) / options["scale"]
    return middle, middle / 10


def build(dpt: ModuleType, small: bool) -> dict[str, Any]:
    """Options of the model; for a small one, the function that makes its encoder is replaced."""
    if small:
        dpt._make_encoder = partial(small_encoder, dpt._make_encoder.__globals__, dpt.forward_vit.__globals__)
        return {"features": 64}
    return {}


def small_encoder(
    blocks: Mapping[str, Any], vit: Mapping[str, Any], backbone: str, features: int, *args: Any, **given: Any
) -> tuple[nn.Module, nn.Module]:
    """What `_make_encoder` does, with the functions of `blocks.py` and `vit.py`, around a small model of timm."""
    if backbone == "vitb_rn50_384":
        model = timm.create_model("vit_base_r50_s16_384", **SMALL, embed_layer=small_resnet())
        make, widths = vit["_make_vit_b_rn50_backbone"], [128, 128, 32, 48]
    else:
        model = timm.create_model("vit_base_patch16_384", **SMALL)
        make, widths = vit["_make_vit_b16_backbone"], [16, 24, 32, 48]
    readout = given["use_readout"]
    pretrained = make(model, widths, hooks=[0, 1, 2, 3], vit_features=SMALL["embed_dim"], use_readout=readout)
    return pretrained, blocks["_make_scratch"](widths, features)


def small_resnet() -> Any:
    resnet = ResNetV2(
        layers=(1, 2, 1),
        channels=(128, 128, 256),
        num_classes=0,
        global_pool="",
        preact=False,
        stem_type="same",
        conv_layer=partial(StdConv2dSame, eps=1e-8),
    )
    return partial(timm.layers.HybridEmbed, backbone=resnet)


def saved(model: nn.Module, work: Path) -> Path:
    torch.save(model.state_dict(), work / "model.pt")
    return work / "model.pt"


def prepare(repository: Path, size: tuple[int, int]) -> Callable[[Path], tuple[torch.Tensor, tuple[int, int]]]:
    """The transforms of its run scripts."""
    transforms = imported(repository, "dpt.transforms")

    def read(path: Path) -> tuple[torch.Tensor, tuple[int, int]]:
        image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB) / 255.0
        return resized(transforms, image, size), image.shape[:2]

    return read


def resized(transforms: ModuleType, image: np.ndarray, size: tuple[int, int], *, keep: bool = True) -> torch.Tensor:
    rule = {"keep_aspect_ratio": keep, "ensure_multiple_of": 32, "resize_method": "minimal"}
    return preprocessed(transforms, image, [0.5] * 3, [0.5] * 3, width=size[1], height=size[0], **rule)


@torch.no_grad()
def predict_depth(read: Callable[[Path], Any], model: nn.Module, path: Path) -> Map:
    sample, size = read(path)
    return F.interpolate(model(sample)[:, None], size, mode="bicubic", align_corners=False)[0, 0].numpy()


@torch.no_grad()
def predict_labels(read: Callable[[Path], Any], model: nn.Module, path: Path) -> Map:
    """Logits; its script goes on to their argmax."""
    sample, size = read(path)
    logits: np.ndarray = F.interpolate(model(sample), size, mode="bicubic", align_corners=False)[0].numpy()
    return logits


def case(family: str, name: str, make: Callable[..., Original], **more: Any) -> Case:
    return Case(family=family, name=name, make=make, code="DPT", repository="DPT", **more)


LARGE, HYBRID = "vitl16_384", "vitb_rn50_384"
SQUARE, WINDOW, ROOM = (384, 384), (352, 1216), (480, 640)
METRES_KITTI = {"scale": 0.00006016, "shift": 0.00579, "invert": True}
METRES_NYU = {"scale": 0.000305, "shift": 0.1378, "invert": True}
CASES = [
    case("dpt", "small ViT", partial(depth, backbone=LARGE, size=SQUARE, small=True)),
    case("dpt", "small hybrid", partial(depth, backbone=HYBRID, size=SQUARE, small=True)),
    case("dpt-kitti", "small hybrid", partial(depth, backbone=HYBRID, size=WINDOW, small=True, **METRES_KITTI)),
    case("dpt-nyu", "small hybrid", partial(depth, backbone=HYBRID, size=ROOM, small=True, **METRES_NYU)),
    case("dpt-ade20k", "small ViT", partial(labels, backbone=LARGE, small=True)),
    case("dpt-ade20k", "small hybrid", partial(labels, backbone=HYBRID, small=True)),
    case("dpt", "large", partial(depth, backbone=LARGE, size=SQUARE, small=False), slow=True),
    case("dpt", "hybrid", partial(depth, backbone=HYBRID, size=SQUARE, small=False), slow=True),
    case("dpt-kitti", "hybrid", partial(depth, backbone=HYBRID, size=WINDOW, small=False, **METRES_KITTI), slow=True),
    case("dpt-nyu", "hybrid", partial(depth, backbone=HYBRID, size=ROOM, small=False, **METRES_NYU), slow=True),
    case("dpt-ade20k", "large", partial(labels, backbone=LARGE, small=False), slow=True),
    case("dpt-ade20k", "hybrid", partial(labels, backbone=HYBRID, small=False), slow=True),
    case(
        "dpt-nyu",
        "KITTI's weights read as NYU's",
        partial(depth, backbone=HYBRID, size=WINDOW, small=True, **METRES_KITTI),
        differs=True,
    ),
]
