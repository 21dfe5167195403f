"""DINOv2's heads beside its own code, backbone and head in two files as published.

Depth: `dinov2/hub/depthers.py`. Segmentation: its `BNHead` needs an mmsegmentation that no longer installs; that class
runs here on a stand-in for its base, and what mmsegmentation does around it (resize, slide, resize back) is ours.
"""

import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import cv2
import numpy as np
import torch
from checkpoint_cases.case import Case, Map, Original, code, picture, scatter, spread
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

TINY = {
    "img_size": 56,
    "patch_size": 14,
    "embed_dim": 64,
    "depth": 12,
    "num_heads": 1,
    "init_values": 1.0,
    "block_chunks": 0,
}
RANGES = {"NYU": 10.0, "KITTI": 80.0}
ARCHITECTURES = {
    "tiny": "vit_small",
    "vits": "vit_small",
    "vitb": "vit_base",
    "vitl": "vit_large",
    "vitg": "vit_giant2",
}
REGISTERS = {"num_register_tokens": 4, "interpolate_antialias": True, "interpolate_offset": 0.0}
MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


class Halves:
    """Models whose tensors are one file's, each behind a prefix."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        self.parts = parts

    def state_dict(self) -> dict[str, Tensor]:
        return {f"{prefix}{k}": t for prefix, part in self.parts.items() for k, t in part.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for prefix, part in self.parts.items():
            part.load_state_dict({name: state[f"{prefix}{name}"] for name in part.state_dict()})


def backbone_of(size: str) -> Any:
    """Its own maker of backbones, which knows the released sizes alone, or one of a size for tests."""
    from dinov2.hub.backbones import _make_dinov2_model
    from dinov2.models.vision_transformer import DinoVisionTransformer

    def tiny(arch_name: str, pretrained: bool, **given: Any) -> nn.Module:
        return DinoVisionTransformer(**TINY, **{name: given[name] for name in REGISTERS if name in given})

    return tiny if size == "tiny" else _make_dinov2_model


def depther(
    repository: Path, work: Path, size: str, head: str, data: str, registers: bool = False, apart: bool = False
) -> Original:
    """`head`: linear, linear4 or dpt; `apart`: the backbone lies elsewhere under a name of the user's."""
    given: dict[str, Any] = {"arch_name": ARCHITECTURES[size], "pretrained": False, "weights": data}
    given |= REGISTERS if registers else {}
    given |= {"ffn_layer": "swiglufused"} if size == "vitg" else {}
    given |= {"depth_range": (0.001, RANGES[data])}
    with code(repository, "dinov2"):
        from dinov2.hub import depthers

        depthers._make_dinov2_model = backbone_of(size)
        if head == "dpt":
            model = depthers._make_dinov2_dpt_depther(**given)
        else:
            model = depthers._make_dinov2_linear_depther(layers=4 if head == "linear4" else 1, **given)
            model.decode_head.max_depth = RANGES[data]  # which the hub's code takes for 80 always
    liven(model.eval())
    backbone = work / ("mine.pth" if apart else f"dinov2_{size}14_pretrain.pth")
    torch.save(model.backbone.state_dict(), backbone)
    state = {name: t for name, t in model.state_dict().items() if name.startswith("decode_head.")}
    weights = work / f"dinov2_{size}14_{data.lower()}_{head}_head.pth"
    torch.save({"state_dict": state, "meta": {"epoch": 1}}, weights)
    return Original(weights, partial(whole_inference, model), {"backbone": backbone} if apart else {}, model=model)


def liven(model: nn.Module) -> None:
    scatter(model)
    last = [layer for layer in model.decode_head.conv_depth.modules() if isinstance(layer, nn.Conv2d)][-1]
    view = normalised(picture((270, 270)))
    bins = last.out_channels > 1
    with torch.inference_mode(), torch.no_grad():
        spread(last, lambda: model.whole_inference(view, None, True), 0.0 if bins else 4.0, 3.0 if bins else 1.5)


def normalised(image: np.ndarray) -> Tensor:
    pixels = torch.from_numpy(image.astype(np.float32))
    return ((pixels - torch.tensor(MEAN)) / torch.tensor(STD)).permute(2, 0, 1)[None]


def whole_inference(model: nn.Module, path: Path) -> Map:
    """What its depth notebook does up to the colours."""
    with torch.inference_mode():
        return model.whole_inference(
            normalised(np.asarray(Image.open(path).convert("RGB"))), img_meta=None, rescale=True
        )[0, 0].numpy()


class BaseDecodeHead(nn.Module):
    """What `BNHead` asks of mmsegmentation's class."""

    def __init__(self, in_channels: list[int], channels: int, num_classes: int, in_index: list[int]) -> None:
        super().__init__()
        self.in_channels, self.channels, self.in_index = sum(in_channels), channels, in_index
        self.input_transform, self.align_corners = "resize_concat", False
        self.conv_seg = nn.Conv2d(channels, num_classes, 1)

    def cls_seg(self, x: Tensor) -> Tensor:
        return self.conv_seg(x)


def stand_ins() -> dict[str, Any]:
    """Modules under mmsegmentation's names."""
    registry = SimpleNamespace(register_module=lambda: lambda part: part)
    found = {name: ModuleType(name) for name in ("mmseg", "mmseg.models", "mmseg.models.builder", "mmseg.ops")}
    found["mmseg.models.decode_heads"] = ModuleType("mmseg.models.decode_heads")
    base = found["mmseg.models.decode_heads.decode_head"] = ModuleType("mmseg.models.decode_heads.decode_head")
    base.BaseDecodeHead = BaseDecodeHead  # type: ignore[attr-defined]
    found["mmseg.models.builder"].HEADS = registry  # type: ignore[attr-defined]
    found["mmseg.ops"].resize = F.interpolate  # type: ignore[attr-defined]
    return found


def segmenter(repository: Path, work: Path, size: str, layers: int, classes: int) -> Original:
    with code(repository, "dinov2"), patch.dict(sys.modules, stand_ins()):
        path = repository / "dinov2/eval/segmentation/models/decode_heads/linear_head.py"
        spec = importlib.util.spec_from_file_location("linear_head", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        from dinov2.hub.utils import CenterPadding

        backbone = backbone_of(size)(arch_name=ARCHITECTURES[size], pretrained=False).eval()
    width = backbone.embed_dim
    head = module.BNHead(
        in_channels=[width] * layers, channels=width * layers, num_classes=classes, in_index=list(range(layers))
    ).eval()
    scatter(backbone)
    scatter(head, seed=1)
    torch.save(backbone.state_dict(), work / f"dinov2_{size}14_pretrain.pth")
    kind = "linear" if layers == 1 else "ms"
    weights = work / f"dinov2_{size}14_ade20k_{kind}_head.pth"
    torch.save(
        {"meta": {"CLASSES": ("wall",)}, "state_dict": {f"decode_head.{k}": t for k, t in head.state_dict().items()}},
        weights,
    )

    def encode_decode(view: Tensor) -> Tensor:
        maps = backbone.get_intermediate_layers(CenterPadding(14)(view), n=layers, reshape=True)
        return F.interpolate(head(maps), view.shape[2:], mode="bilinear", align_corners=False)

    side, stride = (512, 341) if layers == 1 else (640, 320)
    halves = Halves({"": backbone, "decode_head.": head})
    return Original(weights, partial(slide_inference, encode_decode, side, stride), model=halves)


@torch.inference_mode()
def slide_inference(encode_decode: Callable[[Tensor], Tensor], side: int, stride: int, path: Path) -> Map:
    """mmsegmentation's test pipeline on one image, to the logits."""
    image = np.asarray(Image.open(path).convert("RGB"))
    h, w = image.shape[:2]
    scale = side / min(h, w)
    seen = normalised(cv2.resize(image, (int(w * scale + 0.5), int(h * scale + 0.5)), interpolation=cv2.INTER_LINEAR))
    height, width = seen.shape[2:]
    sums, counts = torch.zeros(1), torch.zeros(1, 1, height, width)
    for row in range(max(height - side + stride - 1, 0) // stride + 1):
        for column in range(max(width - side + stride - 1, 0) // stride + 1):
            y, x = min(row * stride, height - side), min(column * stride, width - side)
            logits = encode_decode(seen[:, :, y : y + side, x : x + side])
            around = (x, width - x - side, y, height - y - side)
            sums = sums + F.pad(logits, around)
            counts = counts + F.pad(torch.ones(1, 1, side, side), around)
    return F.interpolate(sums / counts, (h, w), mode="bilinear", align_corners=False)[0].numpy()


def case(name: str, data: str, **more: Any) -> Case:
    slow = {"sizes": SIZES} | {key: more.pop(key) for key in ("slow", "sizes", "differs") if key in more}
    family = more.pop("family", f"dinov2-depth-{data.lower()}")
    made = partial(depther, data=data, **more)
    return Case(family=family, name=name, make=made, code="dinov2", repository="dinov2", **slow)


# Its network sees an image at its own size, so that small ones say as much.
SIZES = {"square": (270, 270), "landscape": (265, 350), "portrait": (350, 265), "small": (100, 150)}
SEGMENTED = {"family": "dinov2-segmentation", "code": "dinov2, stand-in for mmseg", "repository": "dinov2"}
ONLY_SQUARE = {"square": (270, 270)}
CASES = [
    case("tiny linear", "NYU", size="tiny", head="linear"),
    case("tiny linear4", "KITTI", size="tiny", head="linear4"),
    case("tiny DPT with registers", "NYU", size="tiny", head="dpt", registers=True),
    Case(
        name="tiny linear, 150 classes", make=partial(segmenter, size="tiny", layers=1, classes=150), sizes=SIZES,
        **SEGMENTED,
    ),
    case("ViT-S linear", "NYU", size="vits", head="linear"),
    case("ViT-S linear4", "KITTI", size="vits", head="linear4"),
    case("ViT-S DPT", "NYU", size="vits", head="dpt"),
    case("ViT-B DPT, backbone elsewhere", "KITTI", size="vitb", head="dpt", apart=True),
    case("ViT-S with registers, DPT", "KITTI", size="vits", head="dpt", registers=True),
    case("ViT-L linear4", "NYU", size="vitl", head="linear4", slow=True),
    case("ViT-g linear4, square only", "NYU", size="vitg", head="linear4", slow=True, sizes=ONLY_SQUARE),
    Case(
        name="ViT-S linear, 150 classes", make=partial(segmenter, size="vits", layers=1, classes=150), sizes=SIZES,
        **SEGMENTED,
    ),
    Case(
        name="ViT-S multi-scale, 21 classes, one scale", make=partial(segmenter, size="vits", layers=4, classes=21),
        sizes=SIZES, **SEGMENTED,
    ),
    case("NYU's read as KITTI's", "NYU", family="dinov2-depth-kitti", size="vits", head="linear", differs=True),
]  # fmt: skip
