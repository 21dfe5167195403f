"""How fast training samples are made on one core: decode, augment, collate.

Makes its own 640x480 JPEG and 16-bit PNG pairs in a temporary folder and prints a table; no GPU, no download.

    python benchmarks/loader.py [--pairs 24] [--samples 400] [--workers 0 1 2]
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
import torch

from densevit.data.collate import collate
from densevit.data.dataset import Dataset
from densevit.data.io import read_depth, read_image
from densevit.data.loader import train_loader
from densevit.data.transform import TRANSFORMS
from densevit.data.transforms import Pipeline, compose
from densevit.registry import Part
from densevit.structures import Sample

BATCH = 8
CHAINS: dict[str, list[Part]] = {
    "crop, flip": [{"type": "random_crop", "size": (416, 544)}, {"type": "hflip"}],
    "BTS on NYU": [
        {"type": "nyu_crop"},
        {"type": "rotate", "degrees": 2.5},
        {"type": "random_crop", "size": (416, 544)},
        {"type": "hflip"},
        {"type": "color", "p": 1.0},
    ],
    "+ scale, saturation, hue": [
        {"type": "nyu_crop"},
        {"type": "random_scale", "range": (1.0, 1.5)},
        {"type": "rotate", "degrees": 2.5},
        {"type": "random_crop", "size": (416, 544)},
        {"type": "hflip"},
        {"type": "color", "p": 1.0, "saturation": (0.8, 1.2), "hue": (-0.05, 0.05)},
    ],
}


class Pairs(Dataset):
    """JPEG pictures and 16-bit PNG depth in millimetres."""

    def __init__(self, root: Path, count: int) -> None:
        self.root = root
        self.names = [f"{i:04d}" for i in range(count)]

    def read(self, index: int) -> Sample:
        stem = self.root / self.names[index]
        depth = read_depth(stem.with_suffix(".png"), 1000.0)
        return Sample(name=self.names[index], image=read_image(stem.with_suffix(".jpg")), depth=depth, valid=depth > 0)


def make_pairs(root: Path, count: int) -> Pairs:
    """Smooth random surfaces with grain, so that files are about as large as those of photographs."""
    rng = np.random.default_rng(0)
    pairs = Pairs(root, count)
    for name in pairs.names:
        coarse = cv2.resize(
            rng.uniform(0, 1, (12, 16, 4)).astype(np.float32), (640, 480), interpolation=cv2.INTER_CUBIC
        )
        image = np.clip(coarse[..., :3] * 255 + rng.normal(0, 6, (480, 640, 3)), 0, 255).astype(np.uint8)
        depth = np.clip(coarse[..., 3] * 9000 + 800 + rng.normal(0, 8, (480, 640)), 0, 65535).astype(np.uint16)
        cv2.imwrite(str(root / f"{name}.jpg"), image, [cv2.IMWRITE_JPEG_QUALITY, 90])
        cv2.imwrite(str(root / f"{name}.png"), depth)
    return pairs


def chain(name: str) -> Pipeline:
    return compose([TRANSFORMS.check(spec, name).build() for spec in CHAINS[name]])


def milliseconds(work: Callable[[int], object], repeats: int) -> float:
    """Processor time, so that a busy machine counts little: the median over repeats, after a few to warm up."""
    times = []
    for i in range(repeats + 3):
        began = time.process_time()
        work(i)
        times.append(time.process_time() - began)
    return float(np.median(times[3:])) * 1e3


def stages(pairs: Pairs) -> Iterator[tuple[str, float]]:
    count = len(pairs)
    samples = [pairs.read(i) for i in range(min(count, 16))]
    yield "decode JPEG + PNG16", milliseconds(lambda i: pairs.read(i % count), 60)
    for name in CHAINS:
        transform, rng = chain(name), np.random.default_rng(0)
        yield f"augment: {name}", milliseconds(lambda i, t=transform, r=rng: t(samples[i % len(samples)], r), 60)  # type: ignore[misc]
    transform, rng = chain("BTS on NYU"), np.random.default_rng(0)
    ready = [transform(sample, rng) for sample in samples[:BATCH]]
    yield f"collate (of a batch of {BATCH})", milliseconds(lambda _: collate(ready, range(len(ready))), 30) / len(ready)


def throughput(pairs: Pairs, workers: int, samples: int) -> float:
    """Samples a second through the whole loader, start of the workers not counted."""
    loader = train_loader(pairs, chain("BTS on NYU"), seed=0, batch_size=BATCH, workers=workers)
    with closing(loader):
        for _ in islice(loader, 2 * max(workers, 1)):
            pass
        began = time.perf_counter()
        batches = samples // BATCH
        for _ in islice(loader, batches):
            pass
        return batches * BATCH / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=24, help="files to make (default: 24)")
    parser.add_argument(
        "--samples", type=int, default=400, help="samples timed for each row of the loader (default: 400)"
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2], help="worker counts (default: 0 1 2)")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        pairs = make_pairs(Path(folder), arguments.pairs)
        print(f"{'one core, 640x480 -> 416x544':38} {'ms a sample':>12} {'samples/s':>12}")
        for name, cost in stages(pairs):
            print(f"{name:38} {cost:12.2f} {1000 / cost:12.0f}")
        for workers in arguments.workers:
            rate = throughput(pairs, workers, arguments.samples)
            print(f"{f'train_loader, {workers} workers (BTS on NYU)':38} {1000 / rate:12.2f} {rate:12.0f}")


if __name__ == "__main__":
    main()
