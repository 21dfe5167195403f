"""What training takes before anyone rents a GPU: memory, batch sizes and hours, by calculation.

The model of each config is built on fake tensors (shapes without numbers) and run forward by the very code that trains:
what autograd would keep is counted byte by byte, and what is multiplied, operation by operation. Nothing is measured.

    python benchmarks/scale.py                     # ViT-S to 7B with the DPT decoder
    python benchmarks/scale.py configs/{depth,segmentation}/*_*.yaml    # hours and memory of recipes
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from densevit.builder import plan as planning
from densevit.builder.model import build_model
from densevit.config.schema import Run
from densevit.config.validation import ModelSpec
from densevit.errors import DensevitError
from densevit.models import DenseModel
from densevit.utils.precision import autocast

GB = 2**30
# fp32 weights and gradients, and AdamW's two moments; an average of the weights is four more.
STATE = 16
SPARE = 4 * GB  # CUDA's own, cuDNN's workspace, what the allocator cannot use

PEAK = 989e12  # FLOP/s: H100 and H200, dense bfloat16, as NVIDIA states it
# Share of that peak that training reaches, by channels of the ViT: assumptions, to be replaced by a measurement.
UTILISATION = {0: 0.15, 384: 0.20, 768: 0.30, 1024: 0.40}
LOADING = 0.009 / 16  # seconds a sample, of 16 workers (docs/speed.md)
SIZES: dict[str, dict[str, Any]] = {
    "ViT-S/14": {"size": "small"},
    "ViT-B/14": {"size": "base"},
    "ViT-L/14": {"size": "large"},
    "ViT-g/14 (1.1 B)": {"size": "giant", "mlp": "swiglu_packed", "mlp_ratio": 2 * 2.66667},
    "ViT-7B/16": {"dim": 4096, "depth": 40, "heads": 32, "mlp": "swiglu", "mlp_ratio": 2.0, "patch_size": 16},
}
CHANNELS = {"small": 64, "base": 128, "large": 256, "giant": 384}
# Samples of the published training splits.
LENGTHS = {"nyu": 24231, "kitti": 23158, "ade20k": 20210, "cityscapes": 2975, "voc": 10582}


@dataclass(frozen=True)
class Cost:
    """Of training one model on images of one size.

    Attributes:
        parameters: in all; `trained`: those that learn.
        kept: bytes an image leaves behind for the backward pass; `kept_checkpointed` with gradient checkpointing.
        flops: of an image, forward and backward.
        channels: of the encoder.
    """

    parameters: int
    trained: int
    kept: float
    kept_checkpointed: float
    flops: float
    channels: int

    def state(self, gpus: int = 1) -> float:
        return (4 * (self.parameters - self.trained) + STATE * self.trained) / gpus

    def batch(self, memory: float, gpus: int = 1, *, checkpointed: bool = False) -> int:
        """Images that fit on one card."""
        kept = self.kept_checkpointed if checkpointed else self.kept
        return max(0, int((memory - SPARE - self.state(gpus)) / kept))


@contextmanager
def counting(found: dict[int, int]) -> Iterator[None]:
    """Notes the bytes of every storage that autograd keeps, once."""

    def keep(x: Tensor) -> Tensor:
        if not isinstance(x, nn.Parameter):
            found[x.untyped_storage()._cdata] = x.untyped_storage().nbytes()
            alive.append(x)  # or another tensor would take its place, and its number
        return x

    alive: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        yield


def cost(plan: ModelSpec, size: tuple[int, int], *, freeze: bool = False) -> Cost:
    """Of one image h x w."""
    # The one initialisation that looks at numbers, which such tensors have not.
    with torch.device("meta"), patch("torch.nn.init.trunc_normal_", lambda tensor, *_, **__: tensor):
        model = build_model(without_weights(plan)).train()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cpu")
        if freeze:
            model.encoder.requires_grad_(requires_grad=False)
        parameters = sum(p.numel() for p in model.parameters())
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        image = torch.empty(2, 3, *size)  # of two: batch norm needs as many
        forward, encoder = flops(model, image)
        full = kept(model, image)
        model.encoder.set_grad_checkpointing()
        outside = kept(model, image)
    depth = max(1, len(getattr(model.encoder, "vit", nn.Identity()).blocks))
    channels = model.encoder.features[0].channels
    tokens = (size[0] // model.encoder.patch_size) * (size[1] // model.encoder.patch_size)
    inputs = depth * tokens * channels * 4
    checkpointed = full if freeze else outside + inputs + (full - outside) / depth
    backward = 2 * (forward - encoder if freeze else forward)
    return Cost(parameters, trained, full, checkpointed, forward + backward, channels)


def without_weights(plan: ModelSpec) -> ModelSpec:
    """The same network; of numbers none are needed."""
    options = {name: value for name, value in plan.encoder.options.items() if name not in ("pretrained", "weights")}
    return replace(plan, encoder=replace(plan.encoder, options=options))


def kept(model: DenseModel, image: Tensor) -> float:
    found: dict[int, int] = {}
    with counting(found), autocast("bf16", torch.device("cpu")):
        model(image)
    return sum(found.values()) / len(image)


def flops(model: DenseModel, image: Tensor) -> tuple[float, float]:
    """Of one image forward: the whole model, and its encoder."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(image)
    inside = counter.get_flop_counts().get("DenseModel.encoder", {})
    return counter.get_total_flops() / len(image), sum(inside.values()) / len(image)


def sizes(side: int) -> Iterator[str]:
    yield f"Images of {side} x {side}, bfloat16, AdamW in fp32."
    yield ""
    heads = ("encoder + DPT", "parameters", "weights, gradients, AdamW", "kept an image", "checkpointed")
    yield "| " + " | ".join([*heads, "batch, 80 GB", "checkpointed", "8 x 80 GB, FSDP, each", "checkpointed"]) + " |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, options in SIZES.items():
        cells = options.get("patch_size", 14)
        fitting = side // cells * cells
        encoder = {"type": "vit", "patch_size": cells, "image_size": fitting, "layer_scale": 1e-5, **options}
        channels = CHANNELS.get(options.get("size", "giant"), 384)
        decoder = {"type": "dpt", "channels": channels}
        spec = {"encoder": encoder, "decoder": decoder, "heads": {"depth": {"type": "metric"}}}
        found = cost(planned(spec), (fitting, fitting))
        batches = [found.batch(80 * GB, gpus, checkpointed=c) for gpus in (1, 8) for c in (False, True)]
        yield (
            f"| {name} | {found.parameters / 1e6:,.0f} M | {found.state() / GB:.1f} GB | {found.kept / GB:.2f} GB "
            f"| {found.kept_checkpointed / GB:.2f} GB | "
            + " | ".join(str(n) if n else "does not fit" for n in batches)
            + " |"
        )


def planned(spec: dict[str, Any]) -> ModelSpec:
    from densevit.models import DECODERS, ENCODERS, HEADS

    heads = {name: HEADS.check(head, "head") for name, head in spec["heads"].items()}
    return ModelSpec(ENCODERS.check(spec["encoder"], "encoder"), DECODERS.check(spec["decoder"], "decoder"), heads)


def recipes(paths: list[Path]) -> Iterator[str]:
    shares = ", ".join(f"{share:.0%} from {dim} channels" for dim, share in UTILISATION.items())
    yield f"On one H200 at a share of its {PEAK / 1e12:.0f} TFLOP/s ({shares}); memory with the whole batch on it."
    yield ""
    heads = ("recipe", "parameters", "image", "batch", "steps", "TFLOP a step")
    yield "| " + " | ".join([*heads, "hours of computing", "of loading", "memory", "checkpointed"]) + " |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for path in paths:
        try:
            yield recipe(path)
        except DensevitError as error:  # of a folder of one's own, the classes are not known yet
            print(f"left out: {path}: {error}", file=sys.stderr)


def recipe(path: Path) -> str:
    found = planning.load_plan(path)
    run = found.run
    size = image_size(run)
    spent = cost(found.model, size, freeze=run.model.freeze_encoder)
    length = LENGTHS.get(str(run.data.train.get("type")), 0)
    steps = run.steps or round((run.epochs or 0) * length / run.batch_size)
    share = max(share for dim, share in UTILISATION.items() if dim <= spent.channels)
    computing = steps * spent.flops * run.batch_size / (PEAK * share) / 3600
    loading = steps * run.batch_size * LOADING / 3600
    images = run.batch_size / run.grad_accum_steps
    memory = [spent.state() + SPARE + images * kept for kept in (spent.kept, spent.kept_checkpointed)]
    hours = [f"{h:.1f}" if steps else "" for h in (computing, loading)]
    cells = [
        path.stem, f"{spent.parameters / 1e6:.0f} M", f"{size[0]} x {size[1]}", run.batch_size, steps or "by its data",
        f"{spent.flops * run.batch_size / 1e12:.1f}", *hours, *(f"{m / GB:.0f} GB" for m in memory),
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def image_size(run: Run) -> tuple[int, int]:
    """What the last transform with a size leaves of an image; 480 x 640 where none says."""
    given = [spec["size"] for spec in run.data.transforms if isinstance(spec.get("size"), list | tuple)]
    h, w = given[-1] if given else (480, 640)
    return h, w


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", type=Path)
    parser.add_argument("--side", type=int, default=518, help="of the images, without configs (518)")
    args = parser.parse_args()
    for line in recipes(args.configs) if args.configs else sizes(args.side):
        print(line, flush=True)


if __name__ == "__main__":
    main()
