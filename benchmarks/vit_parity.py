"""Our Vision Transformer beside timm's and Hugging Face's: the same random weights, the same numbers?

Builds each model at its published size with random weights (nothing is downloaded), gives ours the same, and compares
tokens, intermediate maps, logits and gradients in fp32. Prints a table of the largest differences, and ends with 1 if
one exceeds the bound. Rows of Hugging Face appear where `transformers` is installed.

    python benchmarks/vit_parity.py [--bound 1e-5] [--report FILE.md]
"""

import argparse
import platform
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from torch import Tensor, nn

from densevit.models.vit.checkpoint_filter import convert, load
from densevit.models.vit.classifier import ViTClassifier
from densevit.models.vit.configs import create_vit
from densevit.utils.atomic_io import write_text
from densevit.weights.readers import read_tensors

NONE: dict[str, Any] = {}


class Case(NamedTuple):
    """A timm model, ours, and what makes the pair interesting."""

    theirs: str
    ours: str
    what: str
    given: dict[str, Any] = NONE
    options: dict[str, Any] = NONE
    size: tuple[int, int] = (224, 224)


REGISTER = {"class_token": False, "no_embed_class": True, "registers": 1}
CASES = (
    Case("vit_tiny_patch16_224", "tiny/16", "plain"),
    Case("vit_small_patch16_224", "small/16", "plain"),
    Case("vit_base_patch16_224", "base/16", "plain"),
    Case("vit_base_patch32_224", "base/32", "patches of 32"),
    Case("vit_small_patch8_224", "small/8", "patches of 8, 785 tokens"),
    Case("vit_tiny_patch16_224", "tiny/16", "dynamic size 160x288", {"dynamic_img_size": True}, {}, (160, 288)),
    Case(
        "vit_tiny_patch16_224",
        "tiny/16",
        "padded 200x250",
        {"dynamic_img_size": True, "dynamic_img_pad": True},
        {"pad": True},
        (200, 250),
    ),
    Case("vit_tiny_patch16_224", "tiny/16", "QK norm, no qkv bias", *[{"qk_norm": True, "qkv_bias": False}] * 2),
    Case("vit_tiny_patch16_224", "tiny/16", "1 channel", {"in_chans": 1}, {"channels": 1}),
    Case(
        "deit3_small_patch16_224",
        "small/16",
        "LayerScale, class without position",
        {},
        {"layer_scale": 1e-6, "no_embed_class": True},
    ),
    Case("vit_small_patch14_dinov2", "dinov2-small/14", "LayerScale", {"img_size": 224}, {"image_size": 224}),
    Case("vit_base_patch14_dinov2", "dinov2-base/14", "LayerScale", {"img_size": 224}, {"image_size": 224}),
    Case("vit_small_patch14_reg4_dinov2", "dinov2_reg-small/14", "4 registers", {"img_size": 224}, {"image_size": 224}),
    Case(
        "vit_giant_patch14_dinov2",
        "dinov2-giant/14",
        "packed SwiGLU, 4 blocks",
        {"img_size": 112, "depth": 4},
        {"image_size": 112, "depth": 4},
        (112, 112),
    ),
    Case("vit_base_patch16_clip_224", "clip-base/16", "norm before, GELU", {}, {"mlp": "gelu", "head_bias": True}),
    Case("vit_base_patch32_clip_quickgelu_224", "clip-base/32", "norm before, quick GELU", {}, {"head_bias": True}),
    Case("vit_base_patch16_siglip_224", "siglip-base/16", "attention pooling", {"act_layer": "gelu_tanh"}),
    Case(
        "vit_base_patch16_siglip_gap_224",
        "base/16",
        "average pooling, no class token",
        {},
        {"class_token": False, "pool": "avg", "fc_norm": False},
    ),
    Case(
        "vit_wee_patch16_reg1_gap_256",
        "tiny/16",
        "1 register, average pooling",
        {"embed_dim": 192, "num_heads": 3, "depth": 12},
        {**REGISTER, "pool": "avg", "mlp_ratio": 5, "layer_scale": 1e-5, "image_size": 256},
        (256, 256),
    ),
)


# A model that differs on purpose, so that the zeros above it mean something.
CONTROL = Case("vit_tiny_patch16_224", "tiny/16", "quick GELU for GELU", {}, {"mlp": "quick_gelu"})


class Row(NamedTuple):
    theirs: str
    what: str
    tokens: float
    maps: float
    logits: float
    gradients: float  # of the parameter that differs most, as a share of its largest


def scatter(model: nn.Module) -> None:
    """Moves every parameter off the zeros and ones that would hide mistakes."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.02)


def gap(ours: Tensor, theirs: Tensor) -> float:
    return (ours - theirs).abs().max().item()


def compare(case: Case) -> Row:
    theirs: Any = timm.create_model(case.theirs, **case.given).eval()
    ours = create_vit(case.ours, **{"num_classes": theirs.num_classes, **case.options}).eval()
    scatter(theirs)
    load(ours, theirs.state_dict(), case.theirs)
    image = torch.randn(2, case.given.get("in_chans", 3), *case.size, generator=torch.Generator().manual_seed(1))
    taken = {"indices": 4, "norm": True, "return_prefix_tokens": True}
    with torch.no_grad():
        tokens = gap(ours.forward_features(image), theirs.forward_features(image))
        (_, maps), (_, others) = (
            ours.forward_intermediates(image, **taken),
            theirs.forward_intermediates(image, **taken),
        )
    pairs = zip(flat(maps), flat(others), strict=True)
    mine, other = backward(ours, image), backward(theirs, image)
    shares = (share(grad(p), grad(theirs.get_parameter(name))) for name, p in ours.named_parameters())
    return Row(case.theirs, case.what, tokens, max(gap(a, b) for a, b in pairs), gap(mine, other), max(shares))


def flat(maps: Any) -> list[Tensor]:
    return [tensor for item in maps for tensor in (item if isinstance(item, tuple) else (item,))]


def backward(model: nn.Module, image: Tensor) -> Tensor:
    logits: Tensor = model(image)
    logits.square().mean().backward()
    return logits.detach()


def share(ours: Tensor, theirs: Tensor) -> float:
    return gap(ours, theirs) / max(theirs.abs().max().item(), 1e-30)


def hugging_face() -> Iterator[Row]:
    """Their models write a file, as published ones are; ours reads it."""
    from transformers import (
        CLIPVisionConfig,
        CLIPVisionModelWithProjection,
        Dinov2Config,
        Dinov2Model,
        Dinov2WithRegistersConfig,
        Dinov2WithRegistersModel,
        ViTConfig,
        ViTForImageClassification,
    )

    sizes = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "image_size": 224, "patch_size": 14}
    plain: dict[str, Any] = {"image_size": 224, "pos_embed_interpolation": "bicubic"}
    gates: dict[str, Any] = {"mlp": "swiglu_packed", "mlp_ratio": 2 * 2.66667}
    clip = CLIPVisionModelWithProjection
    pairs: list[tuple[str, str, Any, ViTClassifier, tuple[int, int]]] = [
        ("CLIP B/32", "projection", clip(CLIPVisionConfig()), create_vit("clip-base/32", num_classes=512), (224, 224)),
        (
            "CLIP B/16",
            "",
            clip(CLIPVisionConfig(patch_size=16)),
            create_vit("clip-base/16", num_classes=512),
            (224, 224),
        ),
        (
            "DINOv2 S/14",
            "196x308",
            Dinov2Model(Dinov2Config(**sizes)),
            create_vit("dinov2-small/14", **plain),
            (196, 308),
        ),
        (
            "DINOv2 B/14",
            "",
            Dinov2Model(Dinov2Config(image_size=224, patch_size=14)),
            create_vit("dinov2-base/14", **plain),
            (224, 224),
        ),
        (
            "DINOv2 S/14",
            "SwiGLU",
            Dinov2Model(Dinov2Config(**sizes, use_swiglu_ffn=True)),
            create_vit("dinov2-small/14", **plain, **gates),
            (224, 224),
        ),
        (
            "DINOv2 S/14",
            "4 registers, 196x308",
            Dinov2WithRegistersModel(Dinov2WithRegistersConfig(**sizes)),
            create_vit("dinov2_reg-small/14", image_size=224, pos_embed_interpolation="antialias"),
            (196, 308),
        ),
        (
            "ViT B/16",
            "",
            ViTForImageClassification(ViTConfig(num_labels=1000)),
            create_vit("base/16", eps=1e-12),
            (224, 224),
        ),
    ]
    for name, what, theirs, ours, size in pairs:
        yield beside(f"Hugging Face {name}", what, theirs.eval(), ours.eval(), size)


def beside(name: str, what: str, theirs: Any, ours: ViTClassifier, size: tuple[int, int]) -> Row:
    scatter(theirs)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        load(ours, read_tensors(Path(folder) / "model.safetensors"), name)
    image = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    found = theirs(image, output_hidden_states=True)
    tokens, maps = ours.forward_blocks(image, None, norm=False, stop_early=True)
    others = found.hidden_states[1:]
    answer = getattr(found, "image_embeds", getattr(found, "logits", getattr(found, "pooler_output", None)))
    logits = ours(image)
    for output in (logits, answer):
        output.square().mean().backward()
    # Gradients are renamed and joined as weights are. Not with registers: there two parameters have become one sum.
    grads = convert({name: grad(parameter) for name, parameter in theirs.named_parameters()}, ours)
    once = [name for name, _ in ours.named_parameters() if not (name == "cls_token" and ours.reg_token is not None)]
    return Row(
        name,
        what,
        gap(tokens, others[-1]),
        max(gap(a, b) for a, b in zip(maps, others, strict=True)),
        gap(logits, answer),
        max(share(grad(ours.get_parameter(name)), grads[name]) for name in once),
    )


def grad(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def table(rows: list[Row]) -> str:
    lines = [
        "| reference | | tokens | maps | logits | gradients |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row.theirs} | {row.what} | {row.tokens:.1e} | {row.maps:.1e} "
            f"| {row.logits:.1e} | {row.gradients:.1e} |"
            for row in rows
        ),
    ]
    return "\n".join(lines)


def verdict(worst: float, bound: float, control: Row) -> str:
    return (
        f"Largest of all: {worst:.1e}, bound {bound:.0e}. Zeros are exact: the same kernels in the same order. "
        f"Control, which must differ ({control.what}): tokens {control.tokens:.1e}, gradients "
        f"{control.gradients:.1e}.\n\n"
        "Tokens, maps and logits: largest absolute difference. Gradients: of the parameter that differs most, as a "
        "share of its largest.\n\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bound", type=float, default=1e-5)
    parser.add_argument("--report", type=Path, help="write the table here, too")
    args = parser.parse_args()
    rows = [compare(case) for case in CASES]
    if find_spec("transformers"):
        rows += hugging_face()
    worst = max(max(row[2:]) for row in rows)  # type: ignore[type-var]
    versions = f"torch {torch.__version__}, timm {timm.__version__}, {platform.machine()}, fp32, random weights"
    text = f"{table(rows)}\n\n{verdict(worst, args.bound, compare(CONTROL))}{versions}.\n"
    print(text)
    if args.report:
        write_text(args.report, f"# Our ViT and the references: largest differences\n\n{text}")
    return int(worst > args.bound)


if __name__ == "__main__":
    sys.exit(main())
