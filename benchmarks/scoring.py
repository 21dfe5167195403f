"""How long it takes to score saved 16-bit maps of NYU's size: densevit beside bts' own script.

    benchmarks/scoring.py [--bts CLONE] [--images 654] [--workers 1 2] [--report FILE]

Makes the files (truth with holes, predictions 10% off, steps and slopes as in rooms), then scores them from disk to the
nine means: by `utils/eval_with_pngs.py` of a clone of cogaplex-bts/bts as it stands, in a process of its own, and by
`evaluate_indexed` under `nyu_eigen`. Both include reading; the start of the interpreters is not counted. The rows
`.npy` score the same predictions saved as float32 NPY, which the script does not read; `truth kept` is
`eval --gt-cache`, where this truth has been scored against before. Each row is the faster of two rounds.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from operator import itemgetter
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF

import cv2
import numpy as np
import torch

from densevit.data.io.readers import DepthCache, read_depth
from densevit.data.loading.prefetch import ordered_parallel_map
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.evaluation.depth.scores import DepthScores, evaluate_indexed
from densevit.speed.hardware import processor_name
from densevit.utils.atomic_io import write_text
from densevit.utils.process import tune_malloc

KINDS = ("maps/room_rgb_{}.png", "arrays/room_rgb_{}.npy")

TIMED = """
import runpy, sys, time
sys.argv = [sys.argv[1], *sys.argv[2:]]
import cv2, numpy
cv2.setNumThreads(1)
began, busy = time.perf_counter(), time.process_time()
runpy.run_path(sys.argv[0], run_name="__main__")
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("SECONDS", time.perf_counter() - began, time.process_time() - busy, peak)
"""


def make(folder: Path, count: int) -> list[str]:
    """`truth/room/sync_depth_*.png` and `maps/room_rgb_*.png`, as bts names them: a few frames, many times."""
    (folder / "truth/room").mkdir(parents=True)
    (folder / "maps").mkdir()
    (folder / "arrays").mkdir()
    rng = np.random.default_rng(0)
    frames = []
    for _ in range(8):
        y, x = np.mgrid[0:480, 0:640]
        walls = 2 + 3 * ((x // 160) % 3) + y / 200 + rng.uniform(0, 1)
        truth = cv2.GaussianBlur(walls.astype(np.float32), (0, 0), 2) + rng.normal(0, 0.004, walls.shape)
        prediction = truth * 1.1 + 0.05 * np.sin(x / 40)
        truth[cv2.GaussianBlur(rng.normal(0, 1, walls.shape), (0, 0), 6) > 0.06] = 0
        frames.append([(depth * 1000).clip(0, 65535).astype(np.uint16) for depth in (truth, prediction)])
    for i in range(count):
        truth_png, prediction_png = frames[i % len(frames)]
        cv2.imwrite(str(folder / f"truth/room/sync_depth_{i:05d}.png"), truth_png)
        cv2.imwrite(str(folder / f"maps/room_rgb_{i:05d}.png"), prediction_png)
        np.save(folder / f"arrays/room_rgb_{i:05d}.npy", prediction_png.astype(np.float32) / 1000)
    return [f"{i:05d}" for i in range(count)]


def ours(
    folder: Path, names: list[str], workers: int, maps: str = KINDS[0], kept: Path | None = None
) -> tuple[float, float, DepthScores]:
    """Seconds on the clock, seconds of processor, and what came out. `kept`: the folder of the decoded truth; None
    decodes it."""

    read = read_depth if kept is None else DepthCache(kept).read

    def item(index: int) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
        name = names[index]
        truth = read(folder / f"truth/room/sync_depth_{name}.png", 1000)
        prediction = folder / maps.format(name)
        return name, read_depth(prediction, 1000 if prediction.suffix == ".png" else None), truth, truth > 0

    began, busy = time.perf_counter(), processor_time()
    found = evaluate_indexed(
        item, len(names), [PROTOCOLS["nyu_eigen"]], spread=partial(ordered_parallel_map, workers=workers)
    )[0]
    return time.perf_counter() - began, processor_time() - busy, found


def bts(clone: Path, folder: Path) -> tuple[float, float, float, list[float]]:
    """Seconds, seconds of processor, peak MB, and d1 d2 d3 AbsRel SqRel RMSE RMSElog SILog log10 as printed."""
    command: Sequence[str | Path] = [
        sys.executable, "-c", TIMED, clone / "utils/eval_with_pngs.py", "--pred_path", f"{folder}/maps/", "--gt_path",
        f"{folder}/truth/", "--dataset", "nyu", "--max_depth_eval", "10", "--eigen_crop",
    ]  # fmt: skip
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    seconds, busy, kilobytes = map(float, re.findall(r"SECONDS (\S+) (\S+) (\S+)", told)[0])
    numbers = next(line for line in told.splitlines() if re.fullmatch(r"[\s\d.,]+", line) and "," in line)
    return seconds, busy, kilobytes / 1024, [float(cell) for cell in numbers.split(",")]


def stages(folder: Path, name: str) -> tuple[float, float]:
    """Milliseconds of processor to read two maps, and to score them."""
    paths = folder / f"truth/room/sync_depth_{name}.png", folder / f"maps/room_rgb_{name}.png"
    truth, prediction = (read_depth(path, 1000) for path in paths)
    valid = truth > 0

    def cost(work: Callable[[], object]) -> float:
        began = time.process_time()
        for _ in range(50):
            work()
        return (time.process_time() - began) * 20

    reading = cost(lambda: [read_depth(path, 1000) for path in paths])
    return reading, cost(lambda: PROTOCOLS["nyu_eigen"].score(prediction, truth, valid))


def processor_time() -> float:
    """Seconds that this process and its ended children have computed."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))


def peak() -> float:
    """Most memory that this process, without its children, has held, in MB (Linux)."""
    status = Path("/proc/self/status").read_text()
    return float(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bts", type=Path, help="a clone of cogaplex-bts/bts")
    parser.add_argument("--images", type=int, default=654)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--report", type=Path, help="write the table there, too")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    tune_malloc()  # as the command does
    with tempfile.TemporaryDirectory() as place:
        lines = table(Path(place), args.images, args.workers, args.bts)
    print("\n".join(lines))
    if args.report is not None:
        write_text(args.report, "\n".join(["# Scoring saved maps beside bts' script", "", *lines]) + "\n")


def table(folder: Path, images: int, threads: Sequence[int], clone: Path | None) -> list[str]:
    names = make(folder, images)
    kept = folder / "kept"
    ours(folder, names, 1, kept=kept)
    rows = []
    for maps, truth, workers in product(KINDS, (None, kept), threads):
        seconds, busy, found = min((ours(folder, names, workers, maps, truth) for _ in range(2)), key=itemgetter(0))
        label = f"densevit, {maps[-4:]}{', truth kept' * (truth is not None)}, {workers} process{'es' * (workers > 1)}"
        rows.append((label, seconds, busy, peak()))
    if clone is not None:
        rounds = [bts(clone, folder) for _ in range(2)]
        seconds, busy, most, numbers = min(rounds, key=itemgetter(0))
        rows.append(("bts, utils/eval_with_pngs.py", seconds, busy, most))
    slowest = rows[-1][1]
    lines = [
        f"{images} pairs of 480x640, {processor_name()}, {os.cpu_count()} cores, numpy {np.__version__}:",
        "",
        "| | ms an image | of processor | peak MB | times faster |",
        "|---|---|---|---|---|",
    ]
    for label, seconds, busy, most in rows:
        times = f"{slowest / seconds:.1f}" if clone is not None else ""
        lines.append(f"| {label} | {1000 * seconds / images:.2f} | {1000 * busy / images:.2f} | {most:.0f} | {times} |")
    reading, scoring = stages(folder, names[0])
    lines += ["", f"Of the first row, reading two PNG takes {reading:.2f} ms of processor, scoring {scoring:.2f} ms."]
    if clone is not None:
        order = ("d1", "d2", "d3", "abs_rel", "sq_rel", "rmse", "rmse_log", "silog", "log10")
        apart = max(abs(found.mean[name] - value) for name, value in zip(order, numbers, strict=True))
        lines.append(f"The means as bts prints them, to 3 digits, are at most {apart:.4f} apart.")
    return lines


if __name__ == "__main__":
    main()
