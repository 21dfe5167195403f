"""LoRA and DoRA beside Hugging Face's peft on the same weights: outputs, gradients, merging, parameters, file sizes.

    benchmarks/lora.py [--report FILE]

Needs peft (pip install peft). Weights are random: the numbers are of exactness and size. Layer scales are set to 1,
since 1e-5 would hide every difference.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import peft
import safetensors.torch
import timm
import torch
from machine import made_on
from torch import Tensor, nn

from densevit.models.lora import LAYERS, Lora, LoraLinear, add_lora
from densevit.utils.atomic_io import write_text
from densevit.weights.lora import is_update, merge

MODELS = {"vit_small_patch14_dinov2": 98, "vit_small_patch16_dinov3": 96}
TARGETS = ".*(" + "|".join(pattern.removeprefix(r"(?:^|\.)") for pattern in LAYERS.values()) + ")"


def build(name: str, size: int) -> Any:
    torch.manual_seed(0)
    vit = timm.create_model(name, num_classes=0, dynamic_img_size=True, img_size=size).eval()
    for key, parameter in vit.named_parameters():
        if "gamma" in key:
            nn.init.ones_(parameter)
    return vit


def compare(name: str, size: int, dora: bool) -> dict[str, Any]:
    """Our updates with peft's values; differences are the largest over all outputs and gradients."""
    ours, theirs = build(name, size), build(name, size)
    options = Lora(rank=8, alpha=16, dora=dora)
    add_lora(ours, options)
    config = peft.LoraConfig(r=8, lora_alpha=16, use_dora=dora, target_modules=TARGETS)
    wrapped = peft.get_peft_model(theirs, config).eval()
    pairs: list[tuple[Tensor, Tensor]] = []
    for key, layer in ours.named_modules():
        if isinstance(layer, LoraLinear):
            other = wrapped.base_model.model.get_submodule(key)
            nn.init.normal_(layer.lora_b, std=0.02)
            other.lora_A["default"].weight.data.copy_(layer.lora_a)
            other.lora_B["default"].weight.data.copy_(layer.lora_b)
            pairs += [(layer.lora_a, other.lora_A["default"].weight), (layer.lora_b, other.lora_B["default"].weight)]
            if layer.lora_magnitude is not None:
                pairs.append((layer.lora_magnitude, other.lora_magnitude_vector["default"].weight))
    image = torch.rand(2, 3, size, size)
    mine, other = ours.forward_features(image), wrapped.base_model.model.forward_features(image)
    mine.square().mean().backward()
    other.square().mean().backward()
    plain = build(name, size)
    plain.load_state_dict(merge(ours.state_dict(), vars(options)))
    trained = sum(p.numel() for p in ours.parameters() if p.requires_grad)
    total = sum(p.numel() for p in plain.parameters())
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        updates = {key: value.detach() for key, value in ours.state_dict().items() if is_update(key)}
        safetensors.torch.save_file(updates, Path(folder) / "updates.safetensors")
        safetensors.torch.save_file(plain.state_dict(), Path(folder) / "model.safetensors")
        sizes = [(Path(folder) / f"{what}.safetensors").stat().st_size for what in ("updates", "model")]
        return {
            "output": float((mine - other).abs().max()),
            "gradient": max(float((a.grad - b.grad).abs().max() / b.grad.abs().max()) for a, b in pairs),  # type: ignore[union-attr]
            "merged": float((plain.forward_features(image) - mine).abs().max()),
            "trained": trained,
            "share": trained / total,
            "peft": sum(p.numel() for p in wrapped.parameters() if p.requires_grad),
            "file": sizes[0],
            "file share": sizes[0] / sizes[1],
        }


def report() -> str:
    lines = [
        "# LoRA and DoRA beside peft",
        "",
        f"{made_on()}, fp32, timm {timm.__version__}, peft {peft.__version__}.",
        "Made by `benchmarks/lora.py --report benchmarks/2026-11-22-lora.md`. Rank 8 on qkv, proj, fc1 and fc2 of all",
        "blocks, the same random weights and updates in both; differences are the largest over all outputs, and of",
        "gradients relative to the largest. Goals: merged equals unmerged within 1e-5, as peft, at most 3% of the",
        "parameters and of the file.",
        "",
        "| encoder | | output - peft's | gradients - peft's | merged - unmerged "
        "| trained | share | peft trains | file | of the model's |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, size in MODELS.items():
        for dora in (False, True):
            row = compare(name, size, dora)
            differences = " | ".join(f"{row[key]:.1e}" for key in ("output", "gradient", "merged"))
            sizes = f"{row['trained']:,} | {row['share']:.2%} | {row['peft']:,} | {row['file'] / 1e6:.2f} MB"
            kind = "DoRA" if dora else "LoRA"
            lines.append(f"| {name} | {kind} | {differences} | {sizes} | {row['file share']:.2%} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    assert re.fullmatch(TARGETS, "blocks.0.attn.qkv")
    text = report()
    sys.stdout.write(text)
    if args.report:
        write_text(args.report, text)


if __name__ == "__main__":
    main()
