"""Training with cached features beside the same training without: seconds an epoch, and the weights at the end.

    benchmarks/feature_cache.py --rooms DIR [--images 64] [--epochs 4] [--report FILE]

DIR is what `make demo` leaves in demo/rooms. The model is that of the recipe nyu_dinov2_vits_linear4, a frozen ViT-S/14
with four maps and a linear head, its encoder with random weights, on images of 224x308. The training without cache sees
the same views, and its features are rounded to fp16, so that both compute the same.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor

from densevit.api import training as api
from densevit.builder import training
from densevit.builder.plan import load_plan
from densevit.engine.distributed import DistributedContext
from densevit.engine.logger import read_csv
from densevit.utils.atomic_io import write_text

BATCH = 8
CPU = DistributedContext(torch.device("cpu"))


def config(rooms: Path, work: Path, name: str, steps: int) -> list[str]:
    return [
        f"data.train={{type: rooms, root: {rooms}, split: train}}",
        "data.val=null",
        "data.transforms=[{type: resize, size: [224, 308]}, {type: hflip}, {type: color, p: 0.5}]",
        f"data.cache_features.folder={work / 'features'}",
        "tasks.depth.protocol=plain",
        "model.encoder.pretrained=false",
        "data.workers=0",
        f"steps={steps}",
        f"save_every={steps}",
        "schedule.warmup=0",
        f"batch_size={BATCH}",
        "precision=fp32",
        "device=cpu",
        "log_every=1",
        f"output={work / name}",
    ]


def run(words: Sequence[str], images: int, cached: bool) -> tuple[list[float], dict[str, Tensor]]:
    """Seconds of each epoch, and the weights at the end."""
    plan = load_plan("depth/nyu_dinov2_vits_linear4", words).open()
    plan.train.samples = plan.train.samples[:images]  # type: ignore[attr-defined]
    plan.train.names = plan.train.names[:images]
    trainer = api.build_trainer(plan, CPU)
    features = training.cached_features(plan, trainer, CPU) if cached else None
    if not cached:
        encoder = trainer.model.get_submodule("encoder")
        encoder.register_forward_hook(lambda module, given, output: output.map(lambda x: x.half().float()))
    trainer.fit(training.train_batches(plan, CPU, features), None)
    seconds = [row["seconds"] for row in read_csv(plan.run.output / "train.csv")]
    ends = [0.0, *seconds[images // BATCH - 1 :: images // BATCH]]
    return [b - a for a, b in pairwise(ends)], trainer.model.state_dict()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", type=Path, required=True)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    steps = args.images // BATCH * args.epochs
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        without, plain = run(config(args.rooms, work, "without", steps), args.images, cached=False)
        with_cache, cached = run(config(args.rooms, work, "with", steps), args.images, cached=True)
        size = sum(file.stat().st_size for file in work.glob("features/*/*.bin"))
    ratio = mean(without[1:]) / mean(with_cache[1:])
    learned = [name for name in plain if not name.startswith("encoder.")]
    largest = max(float((plain[name] - cached[name]).abs().max()) for name in learned)
    moved = max(float(plain[name].abs().max()) for name in learned)
    command = f"benchmarks/feature_cache.py --rooms demo/rooms --images {args.images} --epochs {args.epochs}"
    text = f"""# Cached features of a frozen encoder

2026-11-22, 2 CPU cores (AVX512-BF16), fp32, torch {torch.__version__}, {torch.get_num_threads()} threads. Made by
`{command} --report FILE`.
Frozen ViT-S/14 (random weights, four maps), linear head with 256 bins, images of 224x308 in batches of {BATCH}, no
loader processes; `data.cache_features` with one view an image in fp16. The other training sees the same views through
the encoder in every step, its features rounded to fp16. Goals: from the second epoch at least 8 times faster, the same
weights.

| | seconds of each epoch |
|---|---|
| through the encoder | {", ".join(f"{x:.2f}" for x in without)} |
| cached, after the features were made | {", ".join(f"{x:.2f}" for x in with_cache)} |

From the second epoch on cached training is **{ratio:.1f} times** faster. Its {len(learned)} learned tensors differ by
at most {largest:.1e} after {steps} steps (largest value {moved:.2g}). The features take {size / 1e6:.0f} MB,
{size / args.images / 1e6:.2f} MB an image.
"""
    sys.stdout.write(text)
    if args.report:
        write_text(args.report, text)


if __name__ == "__main__":
    main()
