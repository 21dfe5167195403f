"""Speed of loading training samples: decode, augment and collate on one core, and the whole loader.

Samples are 640x480 JPEGs and 16-bit PNGs of smooth surfaces with grain, so that files are about as large as those of
photographs. Stages are timed in processor time, on which a busy machine has little influence.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np

from densevit.data.datasets.base import FileDataset
from densevit.data.index.paths import SampleFiles
from densevit.data.io.readers import read_depth, read_image
from densevit.data.loading.collate import collate
from densevit.data.loading.dataloader import TrainLoader
from densevit.data.loading.prefetch import ordered_parallel_map
from densevit.data.transforms.affine import TRANSFORMS
from densevit.data.transforms.geometric import Compose, compose
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.evaluation.depth.scores import evaluate_indexed
from densevit.registry import ComponentConfig
from densevit.speed.report import Row
from densevit.speed.settings import Settings
from densevit.speed.timing import Spread, Work, time_interleaved

BATCH, FILES, REPEATS = 8, 24, 60
PIPELINES: dict[str, list[ComponentConfig]] = {
    "crop, flip": [{"type": "random_crop", "size": (416, 544)}, {"type": "hflip"}],
    "rotate, crop, flip, colour (BTS on NYU)": [
        {"type": "nyu_crop"},
        {"type": "rotate", "degrees": 2.5},
        {"type": "random_crop", "size": (416, 544)},
        {"type": "hflip"},
        {"type": "color", "p": 1.0},
    ],
    "the same with scale, saturation, hue": [
        {"type": "nyu_crop"},
        {"type": "random_scale", "range": (1.0, 1.5)},
        {"type": "rotate", "degrees": 2.5},
        {"type": "random_crop", "size": (416, 544)},
        {"type": "hflip"},
        {"type": "color", "p": 1.0, "saturation": (0.8, 1.2), "hue": (-0.05, 0.05)},
    ],
}
STANDARD = "rotate, crop, flip, colour (BTS on NYU)"
# Recipe -> TFLOP of training on an image, and the share of an H200's 989 TFLOP/s (bf16) that is assumed: docs/scale.md.
GPU_STEPS = {
    "nyu_dinov2_vits_dpt": (11.0 / 32, 0.2),
    "nyu_dinov2_vitb_dpt": (36.3 / 32, 0.3),
    "nyu_dinov2_vitl_dpt": (124.1 / 32, 0.4),
}


class DepthPairs(FileDataset):
    """JPEG images and 16-bit PNG depth in millimetres."""

    depth_scale = 1000.0

    def __init__(self, root: Path, count: int) -> None:
        self.root = root
        samples = [SampleFiles(f"{i:04d}", root / f"{i:04d}.jpg", root / f"{i:04d}.png") for i in range(count)]
        super().__init__(samples, "full", "the benchmark's pairs")


def make_pairs(root: Path, count: int) -> DepthPairs:
    write_images(root, count, depth=True)
    return DepthPairs(root, count)


def write_images(root: Path, count: int, *, depth: bool) -> None:
    """Write JPEG files, and with `depth` a PNG beside each."""
    random = np.random.default_rng(0)
    for name in (f"{i:04d}" for i in range(count)):
        coarse = random.uniform(0, 1, (12, 16, 4)).astype(np.float32)
        smooth = cv2.resize(coarse, (640, 480), interpolation=cv2.INTER_CUBIC)
        image = smooth[..., :3] * 255 + random.normal(0, 6, (480, 640, 3))
        cv2.imwrite(str(root / f"{name}.jpg"), np.clip(image, 0, 255).astype(np.uint8), [cv2.IMWRITE_JPEG_QUALITY, 90])
        if depth:
            metres = smooth[..., 3] * 9000 + 800 + random.normal(0, 8, (480, 640))
            cv2.imwrite(str(root / f"{name}.png"), np.clip(metres, 0, 65535).astype(np.uint16))


def pipeline(name: str) -> Compose:
    return compose([TRANSFORMS.check(spec, name).build() for spec in PIPELINES[name]])


def measure(settings: Settings) -> Iterator[Row]:
    with TemporaryDirectory() as folder:
        pairs = make_pairs(Path(folder), FILES)
        costs = {name: milliseconds(work, count) for name, (work, count) in stages(pairs).items()}
        for name, cost in costs.items():
            yield Row("loader", name, "one core", cost, "ms a sample")
        total = sum(costs[name].middle for name in ("decode JPEG", "decode PNG16", STANDARD, "collate"))
        yield Row(
            "loader", f"decode, {STANDARD}, collate", "one core", Spread.of([total]), "ms a sample", note="the sum"
        )
        decoded = 1000 / sum(costs[name].middle for name in ("decode JPEG", "decode PNG16"))
        yield Row("loader", "decode 640x480", "one core", Spread.of([decoded]), "images/s", better="higher")
        yield from cores_of_a_gpu(1000 / total)
        for workers in sorted({0, settings.workers}):
            rate = throughput(pairs, workers, 25 * BATCH)
            name = f"TrainLoader, {workers} workers"
            yield Row("loader", STANDARD, name, Spread.of([rate]), "samples/s", better="higher")


def cores_of_a_gpu(rate: float) -> Iterator[Row]:
    """Yield how many cores load as fast as a GPU trains, by calculation. `rate`: samples a second of one core."""
    for recipe, (teraflops, share) in GPU_STEPS.items():
        needed = 989 * share / teraflops
        note = f"by calculation: {needed:.0f} images/s at {share:.0%} of 989 TFLOP/s"
        yield Row("loader", recipe, "cores for an H200", Spread.of([needed / rate]), "cores", note=note)


def stages(pairs: DepthPairs) -> dict[str, tuple[Work, int]]:
    """Return each stage, and how many samples one call of it makes."""
    samples = [pairs.read(i) for i in range(16)]
    jpegs, pngs = (cycle(sorted(pairs.root.glob(f"*.{suffix}"))) for suffix in ("jpg", "png"))
    cycled, random = cycle(samples), np.random.default_rng(0)
    transformed = [pipeline(STANDARD)(sample, random) for sample in samples[:BATCH]]
    pipelines = {name: pipeline(name) for name in PIPELINES}
    return {
        "decode JPEG": (lambda: read_image(next(jpegs)), 1),
        "decode PNG16": (lambda: read_depth(next(pngs), 1000.0), 1),
        **{name: (lambda c=c: c(next(cycled), random), 1) for name, c in pipelines.items()},  # type: ignore[misc]
        "collate": (lambda: collate(transformed, range(BATCH)), BATCH),
    }


def milliseconds(work: Work, count: int) -> Spread:
    times = []
    for _ in range(REPEATS + 3):
        start = time.process_time()
        work()
        times.append((time.process_time() - start) * 1e3 / count)
    return Spread.of(times[3:])


def throughput(pairs: DepthPairs, workers: int, samples: int) -> float:
    """Sample a second, without the start of the workers."""
    loader = TrainLoader(pairs, pipeline(STANDARD), seed=0, batch_size=BATCH, workers=workers)
    with closing(loader):
        for _ in islice(loader, 2 * max(workers, 1)):
            pass
        start = time.perf_counter()
        for _ in islice(loader, samples // BATCH):
            pass
        return samples / (time.perf_counter() - start)


IMAGES = 240


def measure_scoring(settings: Settings) -> Iterator[Row]:
    with TemporaryDirectory() as folder:
        pairs = make_pairs(Path(folder), IMAGES)
        protocol = PROTOCOLS["nyu_eigen"]

        def read(index: int) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
            name = pairs.names[index]
            depth = read_depth(pairs.root / f"{name}.png", 1000.0)
            prediction = read_depth(pairs.root / f"{pairs.names[index - 1]}.png", 1000.0)
            return name, prediction, depth, depth > 0

        def score(workers: int) -> None:
            evaluate_indexed(read, IMAGES, [protocol], spread=partial(ordered_parallel_map, workers=workers))

        works = {f"{n} process{'es' * (n > 1)}": (lambda n=n: score(n)) for n in sorted({1, settings.workers})}
        for name, seconds in time_interleaved(works, settings.rounds).wall.items():
            rate = Spread.of(seconds).map(lambda s: IMAGES / s)
            yield Row("scoring", "saved PNG16, nyu_eigen", name, rate, "images/s", better="higher")
