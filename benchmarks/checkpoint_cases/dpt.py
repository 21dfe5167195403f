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
from checkpoint_cases.case import Case, Map, Original, imported, scatter, spread
from timm.models.resnetv2 import ResNetV2
from timm.models.vision_transformer_hybrid import StdConv2dSame
from torch import nn
from torch.nn import functional as F

SMALL = {"embed_dim": 128, "depth": 4, "num_heads": 2}
WIDTHS = [16, 24, 32, 48]


def depth(repository: Path, work: Path, backbone: str, size: tuple[int, int], small: bool, **options: Any) -> Original:
    dpt = imported(repository, "dpt.models")
    model = dpt.DPTDepthModel(**build(dpt, small), backbone=backbone, **options).eval()
    scatter(model)
    spread(model.scratch.output_conv[4], partial(warm, model), *lively(options))
    return Original(
        saved(model, work), partial(predict_depth, prepare(repository, size), model), {}
    )


def labels(repository: Path, work: Path, backbone: str, small: bool) -> Original:
    dpt = imported(repository, "dpt.models")
    model = dpt.DPTSegmentationModel(150, **build(dpt, small), backbone=backbone).eval()
    scatter(model)
    spread(model.scratch.output_conv[4], partial(warm, model), 0.0, 3.0)
    return Original(saved(model, work), partial(predict_labels, prepare(repository, (480, 480)), model))


def lively(options: Mapping[str, Any]) -> tuple[float, float]:
    """Mean and deviation of the disparity: around 5 m where it becomes metres."""
    if not options:
        return 1.0, 0.5
    middle = (0.2 - options["shift"]) / options["scale"]
    return middle, middle / 3


def build(dpt: ModuleType, small: bool) -> dict[str, Any]:
    """Options of the model; for small ones its encoder is replaced, by way of its own functions."""
    if small:
        dpt._make_encoder = partial(small_encoder, dpt)
        return {"features": 32}
    return {}


def small_encoder(dpt: ModuleType, backbone: str, features: int, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """What `_make_encoder` does, with its own functions, around a small model of timm."""
    blocks, vit = dpt.forward_vit.__globals__, {}
    if backbone == "vitb_rn50_384":
        convolutions = partial(StdConv2dSame, eps=1e-8)
        resnet = ResNetV2(
            layers=(1, 2, 1),
            channels=(128, 128, 256),
            num_classes=0,
            global_pool="",
            preact=False,
            stem_type="same",
            conv_layer=convolutions,
        )
        embed = partial(timm.layers.HybridEmbed, backbone=resnet)
        model = timm.create_model("vit_base_r50_s16_384", **SMALL, embed_layer=embed)
        made = blocks["_make_vit_b_rn50_backbone"]
        widths, vit = [128, 128, 32, 48], {"hooks": [0, 1, 2, 3]}
    else:
        model = timm.create_model("vit_base_patch16_384", **SMALL)
        made, widths, vit = blocks["_make_vit_b16_backbone"], WIDTHS, {"hooks": [0, 1, 2, 3]}
    pretrained = made(
        model, features=widths, vit_features=SMALL["embed_dim"], use_readout=kwargs["use_readout"], **vit
    )
    return pretrained, dpt._make_encoder_scratch(widths, features)


def warm(model: nn.Module) -> None:
    with torch.no_grad():
        model(torch.randn(1, 3, 384, 384, generator=torch.Generator().manual_seed(1)))


def saved(model: nn.Module, work: Path) -> Path:
    torch.save(model.state_dict(), work / "model.pt")
    return work / "model.pt"


def prepare(repository: Path, size: tuple[int, int]) -> Callable[[Path], tuple[torch.Tensor, tuple[int, int]]]:
    """The transforms of its run scripts."""
    transforms = imported(repository, "dpt.transforms")
    resize = transforms.Resize(
        size[1],
        size[0],
        resize_target=None,
        keep_aspect_ratio=True,
        ensure_multiple_of=32,
        resize_method="minimal",
        image_interpolation_method=cv2.INTER_CUBIC,
    )
    normalise = transforms.NormalizeImage(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])

    def read(path: Path) -> tuple[torch.Tensor, tuple[int, int]]:
        image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB) / 255.0
        sample = transforms.PrepareForNet()(normalise(resize({"image": image})))["image"]
        return torch.from_numpy(sample)[None], image.shape[:2]

    return read


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
