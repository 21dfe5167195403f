"""The DPT of segmentation-models-pytorch beside the installed package, with every readout."""

from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from checkpoint_cases.case import Case, Map, Original, noise, scatter, spread
from torch import nn
from torch.nn import functional as F

SMALL = {"decoder_fusion_channels": 32, "decoder_intermediate_channels": (16, 24, 32, 48)}


def make(repository: Path, work: Path, encoder: str, size: int, classes: int, folder: bool, **options: Any) -> Original:
    import segmentation_models_pytorch as smp

    model = smp.DPT(f"tu-{encoder}", encoder_weights=None, classes=classes, **options).eval()
    scatter(model)
    spread(model.segmentation_head.head[4], lambda: model(noise(size)), 0.0, 3.0)
    read = partial(prepare, model.encoder.model.pretrained_cfg, size)
    if folder:
        model.save_pretrained(work / "model")
        rotary = getattr(model.encoder.model, "pos_embed", None) is None and "beit" not in encoder
        return Original(
            work / "model", partial(predict, read, model), {"size": (size, size)} if rotary else {}, model=model
        )
    torch.save(model.state_dict(), work / "model.pth")
    return Original(work / "model.pth", partial(predict, read, model), {"encoder": encoder}, model=model)


def prepare(card: dict[str, Any], size: int, path: Path) -> tuple[torch.Tensor, tuple[int, int]]:
    """The package leaves this to its users: the encoder's own size and normalisation."""
    image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB).astype(np.float32) / 255
    seen = cv2.resize(image, (size, size), interpolation=cv2.INTER_LINEAR)
    seen = (seen - np.float32(card["mean"])) / np.float32(card["std"])
    return torch.from_numpy(seen).permute(2, 0, 1)[None], image.shape[:2]


@torch.no_grad()
def predict(read: partial[Any], model: nn.Module, path: Path) -> Map:
    """Logits; of one class beside a 0 for its absence."""
    sample, size = read(path)
    logits = F.interpolate(model(sample), size, mode="bilinear", align_corners=False)[0].numpy()
    return np.concatenate([np.zeros_like(logits), logits]) if len(logits) == 1 else logits


def case(name: str, encoder: str, *, size: int, classes: int = 5, folder: bool = True, **options: Any) -> Case:
    made = partial(make, encoder=encoder, size=size, classes=classes, folder=folder, **SMALL, **options)
    package = "segmentation_models_pytorch"
    return Case(family="smp-dpt", name=name, make=made, code="segmentation-models-pytorch", package=package)


TINY = {"reg_tokens": 2, "img_size": 192}
CASES = [
    case("cat, file", "test_vit", size=160, folder=False),
    case("cat, one class", "test_vit", size=160, classes=1),
    case("add, registers", "test_vit", size=192, decoder_readout="add", **TINY),
    case("ignore", "test_vit", size=160, decoder_readout="ignore", encoder_output_indices=[1, 2, 4, -1]),
    case("cat, DINOv3", "vit_small_patch16_dinov3", size=256),
    case("cat, BEiT", "beit_base_patch16_224", size=224),
]
