"""How long it takes to score saved 16-bit maps of NYU's size: densevit beside bts' own script.

    benchmarks/scoring.py [--bts CLONE] [--images 654] [--workers 1 2]

Makes the files (truth with holes, predictions 10% off, steps and slopes as in rooms), then scores them from disk to the
nine means: by `utils/eval_with_pngs.py` of a clone of cogaplex-bts/bts as it stands, in a process of its own, and by
`evaluate_indexed` under `nyu_eigen`. Both include reading; the start of the interpreters is not counted. The rows
`.npy` score the same predictions saved as float32 NPY, which the script does not read.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import torch

from densevit.data.io import read_depth
from densevit.evaluation.evaluate import Evaluation, evaluate_indexed
from densevit.evaluation.protocols import PROTOCOLS

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
    folder: Path, names: list[str], workers: int, maps: str = "maps/room_rgb_{}.png"
) -> tuple[float, float, Evaluation]:
    """Seconds on the clock, seconds of processor, and what came out."""

    def read(index: int) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
        name = names[index]
        truth = read_depth(folder / f"truth/room/sync_depth_{name}.png", 1000)
        prediction = folder / maps.format(name)
        return name, read_depth(prediction, 1000 if prediction.suffix == ".png" else None), truth, truth > 0

    began, busy = time.perf_counter(), time.process_time()
    found = evaluate_indexed(read, len(names), [PROTOCOLS["nyu_eigen"]], workers=workers)[0]
    return time.perf_counter() - began, time.process_time() - busy, found


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


def peak() -> float:
    """Most memory that this process has held, in MB (Linux)."""
    status = Path("/proc/self/status").read_text()
    return float(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bts", type=Path, help="a clone of cogaplex-bts/bts")
    parser.add_argument("--images", type=int, default=654)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        names = make(folder, args.images)
        ours(folder, names[:8], 1)
        row = "{:26} {:>14} {:>22} {:>10}".format
        print(row("", "ms an image", "of processor, ms", "peak MB"))
        n = len(names)
        for maps, workers in ((maps, workers) for maps in KINDS for workers in args.workers):
            seconds, busy, found = ours(folder, names, workers, maps)
            label = f"densevit {maps[-4:]}, {workers} thread{'s' * (workers > 1)}"
            print(row(label, f"{1000 * seconds / n:.2f}", f"{1000 * busy / n:.2f}", f"{peak():.0f}"))
        reading, scoring = stages(folder, names[0])
        print(f"  of which reading two PNG: {reading:.2f} ms of processor, scoring: {scoring:.2f} ms")
        if args.bts is not None:
            seconds, busy, most, numbers = bts(args.bts, folder)
            print(row("bts, eval_with_pngs.py", f"{1000 * seconds / n:.2f}", f"{1000 * busy / n:.2f}", f"{most:.0f}"))
            order = ("d1", "d2", "d3", "abs_rel", "sq_rel", "rmse", "rmse_log", "silog", "log10")
            apart = max(abs(found.mean[name] - value) for name, value in zip(order, numbers, strict=True))
            print(f"means as bts prints them, to 3 digits: at most {apart:.4f} apart")


if __name__ == "__main__":
    main()
