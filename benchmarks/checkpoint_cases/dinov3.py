"""DINOv3's depth heads beside its `make_depther_from_config`, on backbones of a few small blocks.

Its hub builds ViT-7B and ViT-L; the classes are the same. Heads and options are those of `dinov3/hub/depthers.py`.
"""

import contextlib
import importlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkpoint_cases.case import Case, Map, Original, code, picture, scatter, spread
from checkpoint_cases.dinov2 import SIZES, Halves
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CHMV2 = ((0.420, 0.411, 0.296), (0.213, 0.156, 0.143))  # of its notebook
# Of `dinov3/hub/backbones.py`; the 7B has gates and no biases in its queries.
VIT: dict[str, Any] = {
    "pos_embed_rope_rescale_coords": 2, "pos_embed_rope_dtype": "fp32", "layerscale_init": 1e-5, "n_storage_tokens": 4,
    "norm_layer": "layernormbf16", "mask_k_bias": True,
}  # fmt: skip
PLAIN = {**VIT, "embed_dim": 128, "depth": 4, "num_heads": 2}
GATED = {
    **VIT, "embed_dim": 128, "depth": 4, "num_heads": 1, "ffn_ratio": 3, "qkv_bias": False, "ffn_layer": "swiglu64",
    "untie_global_and_local_cls_norm": True,
}  # fmt: skip
SYNTHMIX = {
    "max_depth": 100, "use_batchnorm": True, "type": "dpt", "n_output_channels": 64,
    "head_kwargs": {"channels": 64, "post_process_channels": [32] * 4},
}  # fmt: skip
CANOPY = {
    "max_depth": 96.0, "use_cls_token": True, "type": "dpt", "bins_strategy": "chmv2_mixlog",
    "norm_strategy": "chmv2_mixlog", "backbone_out_layers": [0, 1, 2, 3],
    "head_kwargs": {
        "channels": 64, "post_process_channels": [16, 32, 64, 128], "n_hidden_channels": 32, "use_bias": True,
        "projection_after_fusion": False,
    },
}  # fmt: skip
NYU = {"max_depth": 10.0, "use_batchnorm": True, "type": "linear"}


def depther(
    repository: Path,
    work: Path,
    vit: Mapping[str, Any],
    head: Mapping[str, Any],
    layers: str,
    see: Callable[..., Tensor],
) -> Original:
    with code(repository, "dinov3"):
        build = importlib.import_module("dinov3.eval.depth.models")
        backbone = importlib.import_module("dinov3.models.vision_transformer").DinoVisionTransformer(**vit)
        chosen = {"backbone_out_layers": getattr(build.BackboneLayersSet, layers)} if layers else {}
        backbone.init_weights()
        model = build.make_depther_from_config(backbone, build.DecoderConfig(**head, **chosen))
    model.autocast_ctx = contextlib.nullcontext  # which is bfloat16 on a CPU
    liven(model, see)
    torch.save(backbone.state_dict(), work / "backbone.pth")
    torch.save(model.decoder.state_dict(), work / "head.pth")
    options = {"backbone": work / "backbone.pth"} | ({"max_depth": 10.0} if head["type"] == "linear" else {})
    halves = Halves({"": backbone, **{f"{name}.": part for name, part in model.decoder.named_children()}})
    return Original(work / "head.pth", partial(predict, model, see), options, model=halves)


@torch.no_grad()
def liven(model: nn.Module, see: Callable[..., Tensor]) -> None:
    scatter(model)
    for block in model.encoder.backbone.blocks:
        for scale in (block.ls1, block.ls2):
            scale.gamma.add_(0.5)
        if block.attn.qkv.bias is not None:  # which hides the keys' third
            block.attn.qkv.bias_mask.fill_(1).view(3, -1)[1] = 0
    last = [layer for layer in model.decoder.conv_depth.modules() if isinstance(layer, nn.Conv2d)][-1]
    spread(last, lambda: model(see(picture((270, 270)))), 0.0, 3.0)


@torch.inference_mode()
def predict(model: nn.Module, see: Callable[..., Tensor], path: Path) -> Map:
    image = np.asarray(Image.open(path).convert("RGB"))
    depth = model(see(image))  # at the head's own size; its evaluation and notebook resize it so:
    return F.interpolate(depth, image.shape[:2], mode="bilinear", align_corners=False)[0, 0].numpy()


def see_native(image: np.ndarray, normalisation: Any) -> Tensor:
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in normalisation)
    return ((torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 255 - mean) / std)[None]


def see_768(image: np.ndarray, normalisation: Any) -> Tensor:
    """`make_depth_eval_transforms(img_size=768)`."""
    from torchvision.transforms import Resize

    seen = Resize(768)(torch.from_numpy(image.copy()).permute(2, 0, 1).float().div(255)[None])
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in normalisation)
    return (seen - mean) / std


NATIVE = partial(see_native, normalisation=IMAGENET)


def case(family: str, name: str, sizes: Mapping[str, tuple[int, int]], **made: Any) -> Case:
    make = partial(depther, **{"layers": "FOUR_EVEN_INTERVALS", **made})
    return Case(family=family, name=name, make=make, code="dinov3", repository="dinov3", sizes=sizes)


CASES = [
    case(
        "dinov3-depth-synthmix", "DPT, small blocks as ViT-7B's", {**SIZES, "landscape": (265, 470)},
        vit=GATED, head=SYNTHMIX, see=partial(see_768, normalisation=IMAGENET),
    ),
    case(
        "dinov3-chmv2", "small blocks as ViT-L's", SIZES, vit=PLAIN, head=CANOPY, layers="",
        see=partial(see_native, normalisation=CHMV2),
    ),
    case("dinov3-depth-linear", "last block", SIZES, vit=PLAIN, head=NYU, layers="LAST", see=NATIVE),
    case(
        "dinov3-depth-linear", "four blocks with class tokens", SIZES, vit=GATED, see=NATIVE,
        head={**NYU, "use_cls_token": True, "use_batchnorm": False},
    ),
]  # fmt: skip
