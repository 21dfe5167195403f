"""How fast our Vision Transformer is beside timm's, and what attention maps cost in memory.

Both models hold the same weights and take turns on the same batch, each first in every other pair, so that a machine
that slows down slows both. What is reported is the median over pairs of ours / theirs. Memory is the growth of the
peak of a fresh process (Linux). Random weights; no download.

    python benchmarks/vit_speed.py [--pairs 15] [--device cpu] [--report FILE.md]
"""

import argparse
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Literal, NamedTuple

import timm
import torch
from torch import Tensor, nn

from densevit.models.vit.attention_rollout import class_attention, class_rollout
from densevit.models.vit.checkpoint_filter import load
from densevit.models.vit.classifier import ViTClassifier
from densevit.models.vit.configs import create_vit
from densevit.utils.atomic_io import write_text


class Case(NamedTuple):
    theirs: str
    ours: str
    given: dict[str, Any]
    options: dict[str, Any]
    batch: int
    side: int


DYNAMIC = {"img_size": 224, "dynamic_img_size": True, "num_classes": 1000}
CASES = (
    Case("vit_tiny_patch16_224", "tiny/16", {}, {}, 8, 224),
    Case("vit_small_patch16_224", "small/16", {"drop_path_rate": 0.1}, {"drop_path": 0.1}, 2, 224),
    Case("vit_small_patch14_dinov2", "dinov2-small/14", DYNAMIC, {"image_size": 224, "num_classes": 1000}, 1, 308),
)


def train(model: nn.Module, image: Tensor) -> None:
    model.zero_grad()
    model(image).square().mean().backward()


@torch.inference_mode()
def infer(model: nn.Module, image: Tensor) -> None:
    model(image)


class Turns(NamedTuple):
    ours: float  # median seconds
    theirs: float
    ratios: list[float]  # ours / theirs, per pair


def take_turns(step: Callable[[nn.Module, Tensor], None], case: Case, pairs: int, device: str) -> Turns:
    theirs = timm.create_model(case.theirs, **case.given).to(device)
    ours = create_vit(case.ours, **case.options).to(device)
    load(ours, {name: tensor.cpu() for name, tensor in theirs.state_dict().items()}, case.theirs)
    image = torch.randn(case.batch, 3, case.side, case.side, device=device)
    models = [ours, theirs]
    for model in models * 2:  # the first runs choose kernels and fill caches
        step(model, image)
    seconds: dict[nn.Module, list[float]] = {model: [] for model in models}
    for turn in range(pairs):
        for model in models if turn % 2 else models[::-1]:
            seconds[model].append(clock(step, model, image))
    ratios = [a / b for a, b in zip(seconds[ours], seconds[theirs], strict=True)]
    return Turns(median(seconds[ours]), median(seconds[theirs]), ratios)


def clock(step: Callable[[nn.Module, Tensor], None], model: nn.Module, image: Tensor) -> float:
    wait(image)
    start = time.perf_counter()
    step(model, image)
    wait(image)
    return time.perf_counter() - start


def wait(image: Tensor) -> None:
    if image.is_cuda:
        torch.cuda.synchronize()


# One image of 640 pixels under base/16: 1601 tokens, 12 heads, so that the map of one layer takes 123 MB.
REQUESTS: dict[str, Callable[[ViTClassifier, Tensor], object]] = {
    "tokens alone": lambda vit, image: vit(image),
    "class to patches, 12 layers": class_attention,
    "full map, 1 layer": lambda vit, image: list(vit.attention(image, [5])),
    "full maps, 12 layers": lambda vit, image: list(vit.attention(image)),
    "full maps, 12 layers, one at a time": lambda vit, image: [weights.mean() for weights in vit.attention(image)],
    "rollout over 12 layers": class_rollout,
}


def grow(request: str) -> None:
    """Prints by how many MB the peak of this process grows; runs as a child of its own."""
    vit, image = create_vit("base/16", image_size=640).eval(), torch.randn(1, 3, 640, 640)
    with torch.inference_mode():
        vit(image[..., :64, :64])
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak of building the model
        before = memory("VmRSS")
        kept = REQUESTS[request](vit, image)
    print(memory("VmHWM") - before)
    del kept


def memory(what: Literal["VmRSS", "VmHWM"]) -> float:
    """MB that this process holds, or held at its peak; Linux alone tells."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def ask_children() -> Iterator[str]:
    for request in REQUESTS:
        child = subprocess.run(
            [sys.executable, __file__, "--grow", request], check=True, capture_output=True, text=True
        )
        yield f"| {request} | {float(child.stdout):.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--report", type=Path, help="write the tables here, too")
    parser.add_argument("--grow", choices=REQUESTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.grow:
        grow(args.grow)
        return
    lines = ["| model | batch | | ours s | timm s | ratio | quartiles |", "|---|---|---|---|---|---|---|"]
    for case in CASES:
        for name, step in (("forward + backward", train), ("forward", infer)):
            turns = take_turns(step, case, args.pairs, args.device)
            low, _, high = quantiles(turns.ratios, n=4)
            lines.append(
                f"| {case.ours} | {case.batch} x {case.side} | {name} | {turns.ours:.3f} | {turns.theirs:.3f} "
                f"| {median(turns.ratios):.3f} | {low:.3f} to {high:.3f} |"
            )
            print(lines[-1], flush=True)
    lines += ["", "One image of 640 pixels, base/16, 1601 tokens; the map of one layer takes 123 MB.", ""]
    lines += ["| asked for | peak grows by, MB |", "|---|---|", *ask_children()]
    versions = f"torch {torch.__version__}, timm {timm.__version__}, {platform.machine()}, {args.device}"
    text = "\n".join([*lines, "", f"{versions}, {torch.get_num_threads()} threads, fp32, {args.pairs} pairs.", ""])
    print(text)
    if args.report:
        write_text(args.report, f"# Our ViT beside timm's: time and memory\n\n{text}")


if __name__ == "__main__":
    main()
