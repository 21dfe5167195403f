"""Segmenter's mask transformer on a ViT and on DeiT, beside its authors' code, which needs einops.

Pictures have the window's size along one side, as mmsegmentation's resizing, which the authors use, leaves them.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import timm.layers
import torch
import torch.nn.functional as F
from checkpoint_cases.case import Case, Map, Original, code, scatter
from PIL import Image
from torch import Tensor, nn

SIDE, CLASSES = 96, 150
SIZES = {"square": (SIDE, SIDE), "landscape": (SIDE, 2 * SIDE), "portrait": (2 * SIDE, SIDE)}
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def make(repository: Path, work: Path, distilled: bool) -> Original:
    former = {"timm.models.layers": timm.layers}  # its name when Segmenter was written
    with code(repository, "segm"), patch.dict(sys.modules, former):
        from segm.model import decoder, segmenter, utils, vit

        encoder = vit.VisionTransformer((SIDE, SIDE), 16, 12, 384, 1536, 6, 1000, distilled=distilled)
        masks = decoder.MaskTransformer(CLASSES, 16, 384, 2, 6, 384, 1536, 0.0, 0.1)
        model = segmenter.Segmenter(encoder, masks, CLASSES).eval()
    scatter(model, amount=0.05)
    torch.save({"model": model.state_dict()}, work / "checkpoint.pth")
    mean, std = (torch.tensor(numbers).view(3, 1, 1) for numbers in (IMAGENET if distilled else HALF))
    return Original(work / "checkpoint.pth", partial(predict, model, utils, mean, std))


@torch.no_grad()
def predict(model: nn.Module, utils: Any, mean: Tensor, std: Tensor, path: Path) -> Map:
    """`segm.model.utils.inference` up to the logits."""
    image = torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1)[None] / 255
    windows = utils.sliding_window((image - mean) / std, False, SIDE, SIDE)
    windows["seg_maps"] = model(torch.cat(windows.pop("crop")))
    with patch.object(F, "softmax", lambda logits, dim: logits):
        return utils.merge_windows(windows, SIDE, image.shape[2:]).numpy()


CASES = [
    Case(family="segmenter", name=name, make=partial(make, distilled=distilled), code="segmenter",
         repository="segmenter", package="einops", sizes=SIZES)
    for name, distilled in (("ViT-S", False), ("DeiT-S", True))
]  # fmt: skip
