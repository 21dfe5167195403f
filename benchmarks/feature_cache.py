"""Training with cached features beside the same training without: CPU seconds an epoch, and the weights at the end.

    benchmarks/feature_cache.py --rooms DIR [--images 24] [--epochs 3] [--report FILE]

DIR is what `make demo` leaves in demo/rooms. The model is that of the recipe nyu_dinov2_vits_linear4, a frozen ViT-S/14
of four maps and a linear decoder, its encoder with random weights, on images of 224x308; once with a linear head of
one number a pixel, once with the recipe's of 256 bins. The training without cache sees the same views, its features
rounded to fp16, so that both compute the same. One thread; CPU seconds depend little on what else the machine does.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from machine import made_on
from torch import Tensor

from densevit.api import training as api
from densevit.builder import training
from densevit.builder.features import feature_cache
from densevit.builder.plan import load_plan
from densevit.engine.distributed import DistributedContext
from densevit.utils.atomic_io import write_text

BATCH = 8
CPU = DistributedContext(torch.device("cpu"))

HEADS = {"metric, linear": "{type: metric, max_depth: 13, hidden: 0}", "bins, linear, 256 of them (the recipe's)": None}


def config(rooms: Path, work: Path, name: str, steps: int, head: str | None) -> list[str]:
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
        f"output={work / name}",
        *([f"model.heads.depth={head}"] if head else []),
    ]


def run(words: Sequence[str], images: int, cached: bool) -> tuple[list[float], dict[str, Tensor]]:
    """CPU seconds of each epoch, and the weights at the end."""
    plan = load_plan("depth/nyu_dinov2_vits_linear4", words).open()
    plan.train.samples = plan.train.samples[:images]  # type: ignore[attr-defined]
    plan.train.names = plan.train.names[:images]
    trainer = api.build_trainer(plan, CPU)
    features = feature_cache(plan, trainer.model, CPU, training.workers(plan.run, CPU)) if cached else None
    if not cached:
        encoder = trainer.model.get_submodule("encoder")
        encoder.register_forward_hook(lambda module, given, output: output.map(lambda x: x.half().float()))
    ends = [time.process_time()]
    step = trainer.train_step

    def timed(*given: Any, **options: Any) -> Any:
        found = step(*given, **options)
        if trainer.state.step % (images // BATCH) == 0:
            ends.append(time.process_time())
        return found

    trainer.train_step = timed  # type: ignore[method-assign]
    trainer.fit(training.train_batches(plan, CPU, features), None)
    return [after - before for before, after in pairwise(ends)], trainer.model.state_dict()


def compare(name: str, head: str | None, rooms: Path, images: int, epochs: int) -> str:
    """A row of the report."""
    steps = images // BATCH * epochs
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        without, plain = run(config(rooms, work, "without", steps, head), images, cached=False)
        with_cache, cached = run(config(rooms, work, "with", steps, head), images, cached=True)
        size = sum(file.stat().st_size for file in work.glob("features/*/*.bin"))
    ratio = mean(without[1:]) / mean(with_cache[1:])
    learned = [key for key in plain if not key.startswith("encoder.")]
    largest = max(float((plain[key] - cached[key]).abs().max()) for key in learned)
    seconds = " | ".join(", ".join(f"{x:.2f}" for x in given) for given in (without, with_cache))
    return f"| {name} | {seconds} | **{ratio:.1f}** | {largest:.1e} | {size / images / 1e6:.2f} MB |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", type=Path, required=True)
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [compare(name, head, args.rooms, args.images, args.epochs) for name, head in HEADS.items()]
    command = f"benchmarks/feature_cache.py --rooms demo/rooms --images {args.images} --epochs {args.epochs}"
    text = f"""# Cached features of a frozen encoder

{made_on()}, one thread, fp32. Made by
`{command} --report FILE`.
Frozen ViT-S/14 (random weights, four maps), decoder `linear`, images of 224x308 in batches of {BATCH}, no loader
processes; `data.cache_features` with one view an image in fp16. The other training sees the same views through the
encoder in every step, its features rounded to fp16. Goals: from the second epoch at least 8 times faster, the same
weights. CPU seconds of each epoch, reading and augmentation included; the epochs with cache begin when it is filled.

| head | through the encoder | cached | faster from the second epoch | weights differ by | cache an image |
|---|---|---|---|---|---|
{chr(10).join(rows)}

Reading, augmentation, the decoder and the losses are in both rows. What the second takes longer is its head: 256 logits
at each of 64x88 places, forward and backward. A cache saves the encoder only, so the heavier decoder and head are, the
less it gains.
"""
    sys.stdout.write(text)
    if args.report:
        write_text(args.report, text)


if __name__ == "__main__":
    main()
