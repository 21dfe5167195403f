"""Depth Anything 3's monocular models beside its `DepthAnything3Net` and `InputProcessor`.

Released are ViT-L; the small variants are the same classes with ViT-S. What its `api.py` adds is bfloat16, which is
left out. Its output has the network's size; here it is resized to the picture's bilinearly.
"""

from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from checkpoint_cases.case import Case, Map, Original, code, picture, scatter, spread
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"dim_in": 64, "features": 64, "out_channels": [8, 16, 32, 32]},
    "vits": {"dim_in": 384, "features": 64, "out_channels": [48, 96, 192, 384]},
    "vitl": {"dim_in": 1024, "features": 256, "out_channels": [256, 512, 1024, 1024]},
}
TINY = {"img_size": 56, "patch_size": 14, "embed_dim": 64, "depth": 12, "num_heads": 1, "cat_token": False}
OUT_LAYERS = {"tiny": [2, 5, 8, 11], "vits": [2, 5, 8, 11], "vitl": [4, 11, 17, 23]}
FOCAL = (610.0, 590.0)


def made(repository: Path, work: Path, size: str, metric: bool) -> Original:
    with code(repository / "src", "depth_anything_3"):
        from depth_anything_3.model import da3
        from depth_anything_3.model.dinov2.dinov2 import DinoV2
        from depth_anything_3.model.dinov2.vision_transformer import DinoVisionTransformer
        from depth_anything_3.model.dpt import DPT
        from depth_anything_3.utils.io.input_processor import InputProcessor

        net = DinoV2("vits" if size == "tiny" else size, OUT_LAYERS[size], cat_token=False)
        if size == "tiny":
            net.pretrained = DinoVisionTransformer(**TINY)
        model = da3.DepthAnything3Net(net, DPT(output_dim=1, **SIZES[size])).eval()
    see = InputProcessor()
    liven(model)
    save_file({f"model.{name}": tensor for name, tensor in model.state_dict().items()}, work / "model.safetensors")
    camera = {"focal": FOCAL} if metric else {}
    return Original(work / "model.safetensors", partial(predict, model, see, metric), camera=camera, model=model)


@torch.no_grad()
def liven(model: Any) -> None:
    scatter(model)
    model.backbone.pretrained.pos_embed.add_(0.5 * torch.randn(model.backbone.pretrained.pos_embed.shape))
    view = torch.from_numpy(picture((280, 280))).permute(2, 0, 1)[None, None].float() / 128 - 1
    spread(model.head.scratch.output_conv2[-1], partial(model, view), 1.0, 0.5)
    # A little sky: the threshold is a cliff, and pixels whose last bit decides would each be a full difference.
    spread(model.head.scratch.sky_output_conv2[-1], partial(model, view), -1.2, 0.5)


@torch.inference_mode()
def predict(model: Any, see: Any, metric: bool, path: Path) -> Map:
    focal = np.array([[FOCAL[0], 0, 0], [0, FOCAL[1], 0], [0, 0, 1]])
    image, _, cameras = see([str(path)], None, focal[None], num_workers=1)
    # The farthest ground is a quantile of 100 000 drawn pixels; here of all.
    with patch("torch.randint", lambda low, high, size, device: torch.arange(high)):
        depth: Tensor = model(image[None])["depth"][0]
    if metric:  # its README
        depth = depth * (cameras[0, 0, 0] + cameras[0, 1, 1]) / 2 / 300
    w, h = Image.open(path).size
    return F.interpolate(depth[None], (h, w), mode="bilinear", align_corners=False)[0, 0].numpy()


def case(family: str, name: str, size: str, *, slow: bool = False, **more: Any) -> Case:
    make = partial(made, size=size, metric=family.endswith("metric"))
    package = "addict"  # with omegaconf, einops and imageio, which the repository asks for
    return Case(
        family=family, name=name, make=make, code="Depth-Anything-3", repository="Depth-Anything-3", package=package,
        slow=slow, **more,
    )  # fmt: skip


METRIC, MONO = "depth-anything-3-metric", "depth-anything-3-mono"
CASES = [
    case(METRIC, "tiny", "tiny"),
    case(METRIC, "ViT-S", "vits"),
    case(MONO, "ViT-S", "vits"),
    case(METRIC, "ViT-L", "vitl", slow=True),
]
