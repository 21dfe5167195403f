"""Our mask decoders beside their authors' code: the same random weights, the same numbers?

Give the folders where you have cloned github.com/tue-mps/eomt and github.com/rstrudel/segmenter; nothing is downloaded.
Compares EoMT on DINOv2 and DINOv3 towers, in evaluation, and in training with every query masked and with none, and
Segmenter's mask transformer; then whole models, saved as their authors save them and loaded by `assembly.restore`.
Prints a table of the largest differences in fp32, ends with 1 if one exceeds the bound.

    python benchmarks/mask_parity.py --eomt FOLDER --segmenter FOLDER [--bound 1e-5] [--report FILE.md]

Needs transformers, which EoMT imports, and einops, which Segmenter does.
"""

import argparse
import importlib
import platform
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from densevit.builder.checkpoint import restore
from densevit.models.decoders.eomt import EoMT
from densevit.models.decoders.mask_transformer import MaskTransformer
from densevit.models.dense import DenseModel
from densevit.models.encoders.timm_vit import TimmEncoder
from densevit.models.heads.segmentation import MasksHead
from densevit.structures import EncoderOutput, FeatureSpec
from densevit.utils.atomic_io import write_text

SIDE, CLASSES, QUERIES, BLOCKS = 96, 7, 9, 3
IMAGENET = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
DINOV2 = "vit_small_patch14_reg4_dinov2"


class Row(NamedTuple):
    what: str
    gap: float  # largest difference, as a share of the largest value


def gap(ours: Tensor, theirs: Tensor) -> float:
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def scatter(model: nn.Module) -> None:
    """Moves every weight: gains of 1 and biases of 0 would hide a swap."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)


def borrow(folder: Path, *modules: str) -> list[Any]:
    """Modules of a repository that is no package."""
    sys.path.insert(0, str(folder))
    return [importlib.import_module(module) for module in modules]


def dinov2(vit: Any) -> tuple[nn.Module, TimmEncoder]:
    theirs = vit.ViT((SIDE, SIDE), 16, DINOV2, ckpt_path="none")
    scatter(theirs)
    ours = TimmEncoder(name=DINOV2, arguments={"img_size": SIDE, "patch_size": 16})
    ours.vit.load_state_dict(theirs.backbone.state_dict())
    return theirs, ours


def dinov3(vit: Any) -> tuple[nn.Module, TimmEncoder]:
    """Their tower is Hugging Face's, ours timm's, with one matrix for query, key and value."""
    from transformers import DINOv3ViTConfig, DINOv3ViTModel

    class Tower(vit.ViT):  # type: ignore[misc,name-defined]
        def __init__(self, backbone: Any) -> None:
            nn.Module.__init__(self)
            backbone.layer = backbone.model.layer  # where it stood when EoMT was written
            self.backbone = self.transformers_to_timm(backbone, (SIDE, SIDE))
            self.register_buffer("pixel_mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
            self.register_buffer("pixel_std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))

    sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, "num_register_tokens": 4}
    config = DINOv3ViTConfig(**sizes, query_bias=False, value_bias=False, image_size=SIDE)
    source = DINOv3ViTModel(config)
    scatter(source)
    ours = TimmEncoder(name="vit_small_patch16_dinov3")
    ours.vit.load_state_dict(as_timm(source.state_dict()))
    return Tower(source), ours


def as_timm(state: dict[str, Tensor]) -> dict[str, Tensor]:
    renamed = {
        "cls_token": state["embeddings.cls_token"],
        "reg_token": state["embeddings.register_tokens"],
        **{f"patch_embed.proj.{x}": state[f"embeddings.patch_embeddings.{x}"] for x in ("weight", "bias")},
        **{f"norm.{x}": state[f"norm.{x}"] for x in ("weight", "bias")},
    }
    parts = {"attention.o_proj": "attn.proj", "mlp.up_proj": "mlp.fc1", "mlp.down_proj": "mlp.fc2"}
    parts |= {"norm1": "norm1", "norm2": "norm2"}
    for i in range(12):
        theirs, ours = f"model.layer.{i}.", f"blocks.{i}."
        qkv = [state[f"{theirs}attention.{x}_proj.weight"] for x in "qkv"]
        renamed[ours + "attn.qkv.weight"] = torch.cat(qkv)
        renamed |= {f"{ours}gamma_{n}": state[f"{theirs}layer_scale{n}.lambda1"] for n in (1, 2)}
        renamed |= {f"{ours}{b}.{x}": state[f"{theirs}{a}.{x}"] for a, b in parts.items() for x in ("weight", "bias")}
    return renamed


def eomt(folder: Path) -> Iterator[Row]:
    vit, network = borrow(folder, "models.vit", "models.eomt")
    image = torch.rand(2, 3, SIDE, SIDE)
    for name, tower in (("DINOv2", dinov2), ("DINOv3", dinov3)):
        encoder, ours = tower(vit)
        theirs = network.EoMT(encoder, CLASSES, QUERIES, num_blocks=BLOCKS).eval()
        decoder = EoMT(ours.features, ours.prefix_tokens, classes=CLASSES, queries=QUERIES, blocks=BLOCKS)
        state = theirs.state_dict()
        scattered = {key: x + 0.05 * torch.randn_like(x) for key, x in state.items() if key in decoder.state_dict()}
        theirs.load_state_dict(scattered, strict=False)
        decoder.load_state_dict(scattered)
        model = DenseModel(ours, decoder, {"seg": MasksHead(CLASSES, classes=CLASSES)})
        yield Row(f"EoMT, {name}: scores", gap(model.eval()(image)["seg"].exp(), semantic(theirs, image)))
        for progress, what in ((0.0, "masked"), (1.0, "annealed")):
            theirs.masked_attn_enabled, theirs.attn_mask_probs[:] = True, 1 - progress
            decoder.annealing.on_train_step(progress)
            masks, classes = (torch.stack(layers, 1) for layers in theirs(image))
            found = model.train()(image)
            yield Row(f"EoMT, {name}: masks of {BLOCKS + 1} layers, {what}", gap(found["seg/masks"], masks))
            yield Row(f"EoMT, {name}: classes of {BLOCKS + 1} layers, {what}", gap(found["seg/classes"], classes))
        if name == "DINOv2":
            state = {f"network.{key}": value for key, value in theirs.state_dict().items()}
            yield Row("EoMT, DINOv2: scores, from its file", gap(loaded(state, image).exp(), semantic(theirs, image)))


def semantic(theirs: Any, image: Tensor) -> Tensor:
    """As EoMT evaluates."""
    theirs.masked_attn_enabled = False
    masks, classes = (layers[-1] for layers in theirs(image))
    masks = F.interpolate(masks, image.shape[-2:], mode="bilinear").sigmoid()
    return torch.einsum("bqhw,bqc->bchw", masks, classes.softmax(-1)[..., :-1])


def loaded(state: dict[str, Any], image: Tensor) -> Tensor:
    """What a model says that was saved by its authors' code."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pth"
        torch.save(state, path)
        model, _ = restore(path)
    return model.eval()(image)["labels"]


def segmenter(folder: Path) -> Iterator[Row]:
    import timm.layers

    moved = types.ModuleType("timm.models.layers")  # its name when Segmenter was written
    moved.trunc_normal_, moved.DropPath = timm.layers.trunc_normal_, timm.layers.DropPath  # type: ignore[attr-defined]
    sys.modules["timm.models.layers"] = moved
    module, vit, whole = borrow(folder, "segm.model.decoder", "segm.model.vit", "segm.model.segmenter")
    theirs = module.MaskTransformer(150, 16, 384, 2, 6, 384, 1536, 0.0, 0.1).eval()
    scatter(theirs)
    ours = MaskTransformer([FeatureSpec(384, 16)], 1, classes=150).eval()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 384, 8, 11)
    maps = theirs(x.flatten(2).transpose(1, 2), (128, 176))
    yield Row("Segmenter: 150 maps", gap(ours(EncoderOutput((x,), (x.new_zeros(2, 1, 384),), (128, 176))), maps))
    for distilled, mean, std in ((False, 0.5, 0.5), (True, *IMAGENET)):
        encoder = vit.VisionTransformer((SIDE, SIDE), 16, 12, 384, 1536, 6, 1000, distilled=distilled)
        scatter(encoder)
        model = whole.Segmenter(encoder, theirs, 150).eval()
        for size in ((SIDE, SIDE), (SIDE, 2 * SIDE)):
            image = torch.rand(1, 3, *size)
            answer = loaded({"model": model.state_dict()}, image)
            what = f"{'DeiT' if distilled else 'ViT'}, {size[0]} x {size[1]}"
            yield Row(f"Segmenter, {what}: logits, from its file", gap(answer, model((image - mean) / std)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--eomt", type=Path)
    parser.add_argument("--segmenter", type=Path)
    parser.add_argument("--bound", type=float, default=1e-5)
    parser.add_argument("--report", type=Path, help="write the table here, too")
    args = parser.parse_args()
    torch.manual_seed(0)
    with torch.no_grad():
        rows = [*(eomt(args.eomt) if args.eomt else ()), *(segmenter(args.segmenter) if args.segmenter else ())]
    lines = ["| | largest difference / largest value |", "|---|---|", *(f"| {what} | {x:.1e} |" for what, x in rows)]
    versions = f"torch {torch.__version__}, timm {timm.__version__}, {platform.machine()}, fp32, random weights"
    text = "\n".join(lines) + f"\n\n{versions}.\n"
    print(text)
    if args.report:
        write_text(args.report, f"# Our mask decoders and their authors' code: largest differences\n\n{text}")
    return int(max((row.gap for row in rows), default=0.0) > args.bound)


if __name__ == "__main__":
    sys.exit(main())
