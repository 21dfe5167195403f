"""What of densevit becomes an ONNX file, and how far it then is from torch.

Every decoder, kind of encoder and head, and published families, small and with random weights (`tests/weights/golden`).

    python benchmarks/onnx_parity.py [--only WORD] [--batch-size N] [--any-size]

Prints a table: the largest difference of any head from torch, as a share of its largest value. Any number of images
at once unless --batch-size names one; with a sliding window it is one. With --any-size one file takes eight sizes, one
image at once, and networks that see 518 pixels see 112 or 128, for time.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "weights"))
import seeded
import test_depth_anything_family as da
import test_dinov2_family as dinov2
import test_dinov3_family as dinov3
import test_dpt_family as dpt
import test_hugging_face_family as hf

from densevit.builder.checkpoint import parse_model, restore
from densevit.builder.model import build_card, build_model
from densevit.errors import DensevitError
from densevit.inference.onnx import export
from densevit.inference.onnx.metadata import OnnxExportOptions

VIT = {"type": "vit", "dim": 24, "depth": 3, "heads": 2, "patch_size": 14, "image_size": 56, "out_indices": 2}
HEADS = ("metric", "disparity", "affine", "bins", "inverse_depth", "identity_depth")
DEPTH = {"depth": {"type": "metric"}}
MASKS = {"labels": {"type": "mask_logits", "classes": 5}}
OURS: dict[str, tuple[Any, Any, Any]] = {
    "`vit` + `dpt`, eight heads": (
        VIT,
        {"type": "dpt", "channels": 16},
        {name: {"type": name} for name in HEADS}
        | {"labels": {"type": "segmentation", "classes": 5}, "class": {"type": "classifier", "classes": 4}},
    ),
    "`vit` + `linear`": (VIT, {"type": "linear"}, DEPTH),
    "`vit` + `conv_transpose`": (VIT, {"type": "conv_transpose"}, DEPTH),
    "`vit` + `pool`": (VIT, {"type": "pool"}, {"class": {"type": "classifier", "classes": 4}}),
    "`vit` + `mask_transformer`": (VIT, {"type": "mask_transformer", "classes": 5}, MASKS),
    "`vit` + `eomt`": ({**VIT, "out_indices": (2,)}, {"type": "eomt", "classes": 5, "blocks": 1, "queries": 6}, MASKS),
    "`timm` ViT + `dpt`": ({"type": "timm", "name": "test_vit"}, {"type": "dpt", "channels": 16}, DEPTH),
    "`timm` BEiT + `dpt`": ({"type": "timm", "name": "beit_base_patch16_224"}, {"type": "dpt", "channels": 16}, DEPTH),
    "`swin` + `dpt`": (
        {"type": "swin", "name": "swin_tiny_patch4_window7_224"},
        {"type": "dpt", "channels": 16},
        DEPTH,
    ),
    "`hybrid` + `dpt`": ({"type": "hybrid", "dim": 24, "depth": 2, "heads": 2}, {"type": "dpt", "channels": 16}, DEPTH),
}

SIZES = [(120, 160), (160, 120), (96, 128), (140, 140), (61, 77), (181, 257), (200, 90), (240, 320)]
"""The first two have as many patches; the smallest is smaller than the grid that some models are made for."""

Put = Callable[[Path], Path]
PLAIN = {"margin": False, "flip": False}
PUBLISHED: dict[str, tuple[Put, str | None, dict[str, Any]]] = {
    **{name: (lambda folder, n=name: da.saved(n, folder), *case) for name, case in da.CASES.items()},
    "depth_anything_3": (da.put, da.METRIC, {}),
    **{
        name: (lambda folder, n=name: dinov2.put(seeded.read(n), folder), family, {})
        for name, family in dinov2.GOLDENS.items()
    },
    **{
        name: (lambda folder, n=name: dinov3.put(seeded.read(n), folder), *case)
        for name, case in dinov3.GOLDENS.items()
    },
    **{
        name: (lambda folder, n=name: dpt.saved(n, folder), family, options)
        for name, family, options in (
            ("dpt_vit", None, {}),
            ("dpt_hybrid_nyu", "dpt-nyu", {}),
            ("dpt_hybrid_ade20k", None, {}),
            ("midas_beit", None, {}),
            ("midas_swin2", None, {}),
            ("zoedepth_n", None, {}),
            ("zoedepth_k", "zoedepth-k", PLAIN),
            ("zoedepth_nk", "zoedepth-nk", PLAIN),
            ("smp_cat", None, {"encoder": "test_vit"}),
        )
    },
    "hugging_face": (lambda folder: hf.folder("hugging_face", folder, hf.DEPTH_ANYTHING, hf.RESIZED), None, {}),
    "hugging_face_dpt": (
        lambda folder: hf.folder("hugging_face_dpt", folder, hf.DPT, hf.PADDED),
        "huggingface-dpt-metric",
        {"max_depth": 1000},
    ),
}


def models(only: str) -> Iterator[tuple[str, Any, Any]]:
    for name, (encoder, decoder, heads) in OURS.items():
        if only in name:
            torch.manual_seed(0)
            plan = parse_model({"encoder": encoder, "decoder": decoder, "heads": heads}, name)
            model = build_model(plan)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(torch.randn_like(parameter), alpha=0.05)
            yield name, model, build_card(model, plan)
    for name, (put, family, options) in PUBLISHED.items():
        if only in name:
            with tempfile.TemporaryDirectory() as folder:
                extra = {"backbone": Path(folder) / "backbone.pth"} if name.startswith("dinov3") else {}
                yield name, *restore(put(Path(folder)), family, **options, **extra)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--batch-size", type=int, metavar="N")
    parser.add_argument("--any-size", action="store_true")
    args = parser.parse_args()
    export.sizes_to_try = lambda card: SIZES  # more than export itself tries
    print("| model | images at once | off torch by | seconds |\n|---|---|---|---|")
    for name, model, card in models(args.only):
        wanted = OnnxExportOptions(size=(120, 160), batch=1 if card.resize.window else args.batch_size)
        if args.any_size:
            wanted = replace(wanted, size=None, any_size=True, batch=1)
            if card.resize.size is not None:
                card = replace(card, resize=replace(card.resize, size=(8 * card.multiple,) * 2))
        elif name == "depth_anything_3":
            wanted = replace(wanted, camera=600.0)
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = f"{max(export.export_onnx(model, card, Path(folder) / 'a.onnx', wanted).errors.values()):.1e}"
            except DensevitError as error:
                result = str(error).splitlines()[0]
        print(f"| {name} | {wanted.batch or 'any'} | {result} | {time.perf_counter() - began:.0f} |", flush=True)


if __name__ == "__main__":
    main()
