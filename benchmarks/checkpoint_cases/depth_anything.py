"""Depth Anything V1 and V2, relative and metric, beside their repositories."""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import torch
from checkpoint_cases.case import Case, Map, Original, imported, noise, preprocessed, scatter, spread
from torch import nn
from torch.nn import functional as F

SIZES: dict[str, dict[str, Any]] = {
    "vits": {"encoder": "vits", "features": 64, "out_channels": [48, 96, 192, 384]},
    "vitb": {"encoder": "vitb", "features": 128, "out_channels": [96, 192, 384, 768]},
    "vitl": {"encoder": "vitl", "features": 256, "out_channels": [256, 512, 1024, 1024]},
    "vitg": {"encoder": "vitg", "features": 384, "out_channels": [1536, 1536, 1536, 1536]},
}


TINY = "tiny"


def inferred(model: Any, path: Path) -> Map:
    """V2's own way from a picture file to a map."""
    found: Map = model.infer_image(cv2.imread(str(path)))
    return found


def v2(repository: Path, work: Path, size: str, **head: Any) -> Original:
    model = sized(imported(repository, "depth_anything_v2.dpt").DepthAnythingV2, size, **head)
    liven(model, mean=1.0, std=0.5)
    torch.save(model.state_dict(), work / "depth_anything_v2.pth")
    return Original(work / "depth_anything_v2.pth", partial(inferred, model), model=model)


def v2_metric(repository: Path, work: Path, size: str, max_depth: float, wrapped: bool = False) -> Original:
    package = imported(repository / "metric_depth", "depth_anything_v2.dpt")
    model = sized(partial(package.DepthAnythingV2, max_depth=max_depth), size)
    liven(model, mean=-1.0, std=1.0)
    state: dict[str, Any] = model.state_dict()
    if wrapped:  # as its train.py saves them
        state = {"model": {f"module.{name}": tensor for name, tensor in state.items()}, "epoch": 3, "previous_best": {}}
    torch.save(state, work / "latest.pth")
    return Original(work / "latest.pth", partial(inferred, model), {"max_depth": max_depth}, model=model)


def v1(repository: Path, work: Path, size: str) -> Original:
    with contextlib.chdir(repository):  # it loads DINOv2 from a folder below
        kind = imported(repository, "depth_anything.dpt").DepthAnything
        model = sized(lambda **options: kind(options), size, nclass=1)
    liven(model, mean=1.0, std=0.5)
    torch.save(model.state_dict(), work / "depth_anything_v1.pth")
    return Original(work / "depth_anything_v1.pth", partial(run_v1, repository, model), model=model)


def sized(build: Callable[..., Any], size: str, **head: Any) -> Any:
    """One of the published sizes, or a tiny one of their classes, which their factories do not know."""
    model = build(**SIZES["vits" if size == TINY else size]).eval()
    if size == TINY:
        vit, decoder = type(model.pretrained), type(model.depth_head)
        sizes = {"img_size": 518, "patch_size": 14, "embed_dim": 64, "depth": 12, "num_heads": 1}
        model.pretrained = vit(**sizes, init_values=1.0, block_chunks=0)
        model.depth_head = decoder(in_channels=64, features=64, out_channels=[8, 16, 32, 64], **head)
    return model.eval()


def run_v1(repository: Path, model: nn.Module, path: Path) -> Map:
    """What its run.py does up to the colours."""
    transforms = imported(repository, "depth_anything.util.transform")
    image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB) / 255.0
    rule = {"keep_aspect_ratio": True, "ensure_multiple_of": 14, "resize_method": "lower_bound"}
    imagenet = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    sample = preprocessed(transforms, image, *imagenet, width=518, height=518, **rule)
    with torch.no_grad():
        depth = model(sample)
        depth = F.interpolate(depth[None], image.shape[:2], mode="bilinear", align_corners=False)[0, 0]
    return depth.numpy()


def liven(model: Any, mean: float, std: float) -> None:
    scatter(model)
    spread(model.depth_head.scratch.output_conv2[2], lambda: model(noise(518)), mean, std)


def of_v2(name: str, make: Callable[..., Original], family: str = "depth-anything-v2", **more: Any) -> Case:
    return Case(family=family, name=name, make=make, code="Depth-Anything-V2", repository="Depth-Anything-V2", **more)


def of_v1(name: str, size: str, **more: Any) -> Case:
    code = "Depth-Anything"
    return Case(family="depth-anything-v1", name=name, make=partial(v1, size=size), code=code, repository=code, **more)


METRIC = "depth-anything-v2-metric"
CASES = [
    of_v1("tiny", TINY),
    of_v1("ViT-S", "vits"),
    of_v1("ViT-B", "vitb", slow=True),
    of_v1("ViT-L", "vitl", slow=True),
    of_v2("tiny", partial(v2, size=TINY)),
    of_v2("tiny, use_bn", partial(v2, size=TINY, use_bn=True)),
    of_v2("ViT-S", partial(v2, size="vits")),
    of_v2("ViT-B", partial(v2, size="vitb"), slow=True),
    of_v2("ViT-L", partial(v2, size="vitl"), slow=True),
    of_v2("ViT-g, square only", partial(v2, size="vitg"), slow=True, sizes={"square": (540, 540)}),
    of_v2("tiny", partial(v2_metric, size=TINY, max_depth=20.0), METRIC),
    of_v2("ViT-S to 20 m", partial(v2_metric, size="vits", max_depth=20.0), METRIC),
    of_v2("ViT-S to 80 m, a fine-tune", partial(v2_metric, size="vits", max_depth=80.0, wrapped=True), METRIC),
    of_v2("V2 weights read as V1", partial(v2, size="vits"), "depth-anything-v1", differs=True),
]
