"""What training takes before anyone rents a GPU: memory, batch sizes and hours, by calculation.

A model is built on a stand-in of a GPU, without numbers, and run forward, with its losses, by the very code that
trains. What autograd would keep is counted byte by byte for 2 and for 6 images: the difference grows with the images,
the rest does not. What is multiplied is counted operation by operation. Nothing is measured.

    python benchmarks/scale.py                     # ViT-S to 7B with the DPT decoder
    python benchmarks/scale.py configs/{depth,segmentation,panoptic,mixture}/*.yaml    # hours and memory of recipes

The bytes of recipes are those of tests/cuda/budgets.json (benchmarks/cuda_dry_run.py).
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from densevit.builder import plan as planning
from densevit.builder.model import build_model
from densevit.builder.plan import Plan
from densevit.config.schema import TrainConfig
from densevit.config.validation import ModelSpec
from densevit.errors import DensevitError
from densevit.models.dense import DenseModel

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/cuda"))
import dry_run
from dry_run import IMAGES

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
LENGTHS = {"nyu": 24231, "kitti": 23158, "ade20k": 20210, "cityscapes": 2975, "voc": 10582, "coco": 118287}


@dataclass(frozen=True)
class Cost:
    """Of training one model on images of one size, model and losses."""

    parameters: int  # in all; `trained`: those that learn
    trained: int
    # bytes that grow with each image, for the backward pass; `kept_checkpointed` with gradient checkpointing
    kept: float
    kept_checkpointed: float
    constant: float  # bytes that do not: weights in bf16, which autocast makes once a step

    def state(self, gpus: int = 1) -> float:
        return (4 * (self.parameters - self.trained) + STATE * self.trained) / gpus

    def batch(self, memory: float, gpus: int = 1, *, checkpointed: bool = False) -> int:
        """Images that fit on one card."""
        kept = self.kept_checkpointed if checkpointed else self.kept
        constant = self.constant if gpus == 1 else 0  # FSDP gathers in bf16, block by block
        return max(0, int((memory - SPARE - constant - self.state(gpus)) / kept))


def cost(plan: Plan, size: tuple[int, int]) -> Cost:
    """On the stand-in of a GPU (tests/cuda/fake_gpu.py), whose tensors have shapes and no numbers."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        trainer = dry_run.shapes_only_trainer(replace(plan, run=replace(plan.run, output=Path(folder))), stack)
        parameters = sum(p.numel() for p in trainer.model.parameters())
        trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
        few, many = (dry_run.batch_of(plan, n, size) for n in IMAGES)
        less, more = (dry_run.bytes_kept(trainer, batch) for batch in (few, many))
        trainer.model.encoder.set_grad_checkpointing()
        outside_less, outside_more = (dry_run.bytes_kept(trainer, batch) for batch in (few, many))
    step = IMAGES[1] - IMAGES[0]
    kept, outside = (more - less) / step, (outside_more - outside_less) / step
    vit = getattr(trainer.model.encoder, "vit", None)
    depth = max(1, len(getattr(vit, "blocks", ())))
    # What checkpointing leaves of the encoder: the input of each block, and one block that is computed again.
    tokens = math.prod(side // trainer.model.encoder.patch_size for side in size)
    inputs = depth * tokens * trainer.model.encoder.features[0].channels * 4
    checkpointed = outside + inputs + (kept - outside) / depth
    return Cost(parameters, trained, kept, checkpointed, max(0.0, less - IMAGES[0] * kept))


def without_weights(plan: ModelSpec) -> ModelSpec:
    """The same network; of numbers none are needed."""
    options = {name: value for name, value in plan.encoder.options.items() if name not in ("pretrained", "weights")}
    return replace(plan, encoder=replace(plan.encoder, options=options))


def flops(model: DenseModel, image: Tensor) -> tuple[float, float]:
    """Of one image forward: the whole model, and its encoder."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(image)
    inside = counter.get_flop_counts().get("DenseModel.encoder", {})
    return counter.get_total_flops() / len(image), sum(inside.values()) / len(image)


def sizes(side: int) -> Iterator[str]:
    yield f"Images of {side} x {side}, bfloat16, AdamW in fp32, the loss included."
    yield ""
    heads = ("encoder + DPT", "parameters", "weights, gradients, AdamW", "constant", "kept an image", "checkpointed")
    yield "| " + " | ".join([*heads, "batch, 80 GB", "checkpointed", "8 x 80 GB, FSDP, each", "checkpointed"]) + " |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, options in SIZES.items():
        cells = options.get("patch_size", 14)
        fitting = side // cells * cells
        encoder = {"type": "vit", "patch_size": cells, "image_size": fitting, "layer_scale": 1e-5, **options}
        text = ", ".join(f"{key}: {value}" for key, value in encoder.items())
        channels = CHANNELS.get(options.get("size", "giant"), 384)
        words = [
            f"model.encoder={{{text}}}", f"model.decoder={{type: dpt, channels: {channels}}}", "device=cuda",
            "model.heads.depth={type: metric}", "model.resize=null", "precision=bf16",
        ]  # fmt: skip
        found = cost(dry_run.plan_of("depth/rooms", *words), (fitting, fitting))
        batches = [found.batch(80 * GB, gpus, checkpointed=c) for gpus in (1, 8) for c in (False, True)]
        yield (
            f"| {name} | {found.parameters / 1e6:,.0f} M | {found.state() / GB:.1f} GB | {found.constant / GB:.2f} GB "
            f"| {found.kept / GB:.2f} GB | {found.kept_checkpointed / GB:.2f} GB | "
            + " | ".join(str(n) if n else "does not fit" for n in batches)
            + " |"
        )


def recipes(paths: list[Path]) -> Iterator[str]:
    shares = ", ".join(f"{share:.0%} from {dim} channels" for dim, share in UTILISATION.items())
    yield f"On one H200 at a share of its {PEAK / 1e12:.0f} TFLOP/s ({shares}); memory with the whole batch on it."
    yield ""
    heads = ("recipe", "parameters", "image", "batch", "steps", "TFLOP a step")
    yield "| " + " | ".join([*heads, "hours of computing", "of loading", "memory"]) + " |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for path in paths:
        try:
            yield recipe(path)
        except DensevitError as error:  # of a folder of one's own, the classes are not known yet
            print(f"left out: {path}: {error}", file=sys.stderr)


def recipe(path: Path) -> str:
    found = planning.load_plan(path)
    run, kind = found.run, found.run.data.train["type"]
    size, spec = image_size(run), found.model
    if kind in LENGTHS and not any(head.options.get("classes") for head in spec.heads.values()):
        spec = spec.for_classes([str(i) for i in range(dry_run.CLASSES.get(kind, 0))])
    model, forward, encoder = network(spec, size)
    parameters = sum(p.numel() for p in model.parameters())
    trained = parameters - run.model.freeze_encoder * sum(p.numel() for p in model.encoder.parameters())
    flops = forward + 2 * (forward - encoder if run.model.freeze_encoder else forward)
    length = sum(LENGTHS.get(word, 0) for word in path.stem.split("_"))  # of a mixture's name all sources
    steps = run.steps or round((run.epochs or 0) * length / run.batch_size)
    share = max(share for dim, share in UTILISATION.items() if dim <= model.encoder.features[0].channels)
    computing = steps * flops * run.batch_size / (PEAK * share) / 3600
    loading = steps * run.batch_size * LOADING / 3600
    kept = json.loads(dry_run.BUDGETS.read_text()).get(str(path.resolve().relative_to(dry_run.CONFIGS).with_suffix("")))
    images = run.batch_size / run.grad_accum_steps
    state = 4 * (parameters - trained) + STATE * trained
    memory = state + SPARE + 2**20 * (kept["constant_mb"] + images * kept["kept_mb"]) if kept else 0
    hours = [f"{h:.1f}" if steps else "" for h in (computing, loading)]
    cells = [
        path.stem, f"{parameters / 1e6:.0f} M", f"{size[0]} x {size[1]}", run.batch_size, steps or "by its data",
        f"{flops * run.batch_size / 1e12:.1f}", *hours, f"{memory / GB:.0f} GB" if memory else "",
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def network(spec: ModelSpec, size: tuple[int, int]) -> tuple[DenseModel, float, float]:
    """A model without numbers, and the FLOP of one image forward: of the whole, and of its encoder."""
    # The one initialisation that looks at numbers, which such tensors have not.
    with torch.device("meta"), patch("torch.nn.init.trunc_normal_", lambda tensor, *_, **__: tensor):
        model = build_model(without_weights(spec)).train()
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cpu")
        return model, *flops(model, torch.empty(2, 3, *size))  # of two: batch norm needs as many


def image_size(run: TrainConfig) -> tuple[int, int]:
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
