"""Speed of scoring saved 16-bit depth maps of NYU's size, reading included."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from densevit.data.io.readers import read_depth
from densevit.data.loading.prefetch import ordered_parallel_map
from densevit.evaluation.depth.evaluate import evaluate_indexed
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.speed.dataloader import make_pairs
from densevit.speed.report import Row
from densevit.speed.settings import Settings
from densevit.speed.timing import Spread, time_interleaved

IMAGES = 240


def measure(settings: Settings) -> Iterator[Row]:
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
