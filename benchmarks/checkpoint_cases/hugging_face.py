"""Folders written by `transformers`, beside its own models and image processors."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkpoint_cases.case import Case, Map, Original, noise, scatter, spread
from PIL import Image
from safetensors.torch import save_file

IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
RESIZED: dict[str, Any] = {
    "size": {"height": 518, "width": 518}, "ensure_multiple_of": 14, "keep_aspect_ratio": True,
}  # fmt: skip
SLIM: dict[str, Any] = {"neck_hidden_sizes": [8, 16, 32, 64], "fusion_hidden_size": 64}
SQUARE = {"square": (540, 540), "landscape": (400, 600), "portrait": (600, 400), "small": (200, 300)}


def dinov2(indices: list[int], **more: Any) -> Any:
    from transformers import Dinov2Config

    sizes: dict[str, Any] = {"hidden_size": 384, "num_attention_heads": 6, "image_size": 518, "patch_size": 14}
    return Dinov2Config(**{**sizes, "out_indices": indices, "reshape_hidden_states": False, **more})


TINY: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 1}


def depth_anything(
    _: Path,
    work: Path,
    indices: list[int],
    new_names: bool = False,
    backbone: dict[str, Any] | None = None,
    images: dict[str, Any] | None = None,
    **config: Any,
) -> Original:
    from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation, DPTImageProcessor

    options = {"backbone_config": dinov2(indices, **(backbone or {})), "fusion_hidden_size": 64, **config}
    model: Any = DepthAnythingForDepthEstimation(DepthAnythingConfig(**options)).eval()
    processor = DPTImageProcessor(**{**RESIZED, **IMAGENET, **(images or {})})
    metric = config.get("depth_estimation_type") == "metric"
    liven(model, model.head.conv3, -1.0 if metric else 1.0, 1.0 if metric else 0.5)
    return saved(model, processor, work, new_names=new_names)


def dpt(_: Path, work: Path, options: dict[str, Any] | None = None, **config: Any) -> Original:
    from transformers import DPTConfig, DPTForDepthEstimation, DPTImageProcessor

    sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, "num_hidden_layers": 12}
    model: Any = DPTForDepthEstimation(DPTConfig(**sizes, **config)).eval()
    liven(model, model.head.head[4], 1.0, 0.5)
    return saved(model, DPTImageProcessor(), work)


def dpt_dinov2(_: Path, work: Path, resize: bool, **more: Any) -> Original:
    """As facebook/dpt-dinov2-*-nyu: bytes as floats, padded to patches, no resizing."""
    from transformers import DPTConfig, DPTForDepthEstimation, DPTImageProcessor

    backbone = dinov2([3, 6, 9, 12], apply_layernorm=False, **more)
    config = DPTConfig(
        backbone_config=backbone,
        add_projection=True,
        use_bias_in_fusion_residual=False,
        neck_hidden_sizes=[48, 96, 192, 384],
    )
    model: Any = DPTForDepthEstimation(config).eval()
    liven(model, model.head.head[4], 3.0, 1.5)
    bytewise = {"image_mean": [123.675, 116.28, 103.53], "image_std": [58.395, 57.12, 57.375], "do_rescale": False}
    images = DPTImageProcessor(do_resize=resize, do_pad=True, size_divisor=14, **bytewise)
    return saved(model, images, work)


def small_dinov2(_: Path, work: Path, **config_options: Any) -> Original:
    """DPT behind pictures resized to whole patches, of which there may be odd numbers."""
    from transformers import DPTConfig, DPTForDepthEstimation, DPTImageProcessor

    config = DPTConfig(backbone_config=dinov2([3, 6, 9, 11], **TINY), **{**SLIM, **config_options})
    model: Any = DPTForDepthEstimation(config).eval()
    liven(model, model.head.head[4], 2.0, 0.5)
    return saved(model, DPTImageProcessor(**RESIZED, **IMAGENET), work)


def classes(_: Path, work: Path) -> Original:
    from transformers import DPTConfig, DPTForSemanticSegmentation, DPTImageProcessor

    names = {"id2label": dict(enumerate(("wall", "floor", "door", "lamp")))}
    vit = {"intermediate_size": 256, "image_size": 96, **TINY}
    config = DPTConfig(use_batch_norm_in_fusion_residual=True, **vit, **SLIM, **names)
    model: Any = DPTForSemanticSegmentation(config).eval()
    liven(model, model.head.head[4], 0.0, 2.0)
    return saved(model, DPTImageProcessor(size={"height": 96, "width": 96}), work)


def liven(model: Any, last: Any, mean: float, std: float) -> None:
    scatter(model)
    side = (model.config.backbone_config or model.config).image_size
    spread(last, lambda: model(noise(side)), mean, std)


def saved(
    model: Any, images: Any, work: Path, options: dict[str, Any] | None = None, new_names: bool = False
) -> Original:
    model.save_pretrained(work)
    images.save_pretrained(work)
    if new_names:  # those that version 5 has in memory
        save_file(
            {name: tensor.contiguous() for name, tensor in model.state_dict().items()}, work / "model.safetensors"
        )
    return Original(work, partial(predict, model, images), options or {}, model=model)


@torch.no_grad()
def predict(model: Any, images: Any, path: Path) -> Map:
    picture = Image.open(path)
    given = images(images=picture, return_tensors="pt")
    answer = model(**given)
    if "logits" in answer:
        size = (picture.height, picture.width)  # as its processor does, which then takes the best
        return np.asarray(torch.nn.functional.interpolate(answer.logits, size=size, mode="bilinear")[0])
    found = images.post_process_depth_estimation(answer, target_sizes=[(picture.height, picture.width)])
    return np.asarray(found[0]["predicted_depth"])


def case(family: str, name: str, make: Callable[..., Original], **more: Any) -> Case:
    return Case(family=family, name=name, make=make, code="transformers", package="transformers", **more)


V1, V2 = [9, 10, 11, 12], [3, 6, 9, 12]
METRIC = {"depth_estimation_type": "metric", "max_depth": 20}
SMALL = {"backbone": TINY, "reassemble_hidden_size": 64, "neck_hidden_sizes": [8, 16, 32, 64]}
CASES = [
    case("huggingface", "tiny to 20 m", partial(depth_anything, indices=V2, **SMALL, **METRIC)),
    case("huggingface-dpt-metric", "tiny DINOv2, padded", partial(dpt_dinov2, resize=False, **TINY), sizes=SQUARE),
    case(
        "huggingface",
        "tiny, padded, to a block before the last",
        partial(
            depth_anything,
            indices=[3, 6, 9, 11],
            **{**SMALL, "backbone": {**TINY, "apply_layernorm": False}},
            images={"do_resize": False, "do_pad": True, "size_divisor": 14},
        ),
    ),
    case("huggingface-dpt", "tiny DINOv2, resized", small_dinov2),
    case("huggingface-dpt-metric", "tiny DINOv2, resized", small_dinov2),
    case("huggingface-dpt", "tiny DINOv2, fusion width 48", partial(small_dinov2, fusion_hidden_size=48)),
    case("huggingface-dpt-segmentation", "tiny ViT, 4 classes", classes),
    case("huggingface", "Depth Anything V1, ViT-S", partial(depth_anything, indices=V1)),
    case("huggingface", "Depth Anything V2, ViT-S, newer names", partial(depth_anything, indices=V2, new_names=True)),
    case("huggingface", "Depth Anything V2, ViT-S to 20 m", partial(depth_anything, indices=V2, **METRIC)),
    case(
        "huggingface",
        "Depth Anything V2, ViT-S with gates",
        partial(depth_anything, indices=V2, backbone={"use_swiglu_ffn": True}),
    ),
    *(
        case("huggingface-dpt", f"ViT-S/16, readout {readout}", partial(dpt, readout_type=readout), sizes=SQUARE)
        for readout in ("project", "add", "ignore")
    ),
    case(
        "huggingface-dpt",
        "ViT-S/16, BatchNorm in fusions",
        partial(dpt, use_batch_norm_in_fusion_residual=True),
        sizes=SQUARE,
    ),
    case("huggingface-dpt-metric", "DINOv2 ViT-S, padded", partial(dpt_dinov2, resize=False), sizes=SQUARE),
    case("huggingface-dpt-metric", "DINOv2 ViT-S, resized and padded", partial(dpt_dinov2, resize=True), sizes=SQUARE),
]
