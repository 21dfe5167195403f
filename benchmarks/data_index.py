"""Time and memory of opening a large data set: `python benchmarks/data_index.py [IMAGES]` (default 1,000,000).

It makes a folder of empty images and depth maps, 1,000 to a folder, and opens it in new processes: without cache, then
twice with that of the first. Memory is what the process has alone (USS), beyond that before opening.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OPEN = """
import sys, time, densevit.data
from pathlib import Path
from densevit.data.datasets.base import dataset_fingerprint
from densevit.data.datasets.folder import Folder
def kilobytes(): return sum(int(s.split()[1]) for s in open("/proc/self/smaps_rollup") if s.startswith("Private"))
before, start = kilobytes(), time.perf_counter()
data = Folder(root=Path(sys.argv[1]), depth_scale=1000)
seconds = time.perf_counter() - start
opened = kilobytes() - before
print(f"{len(data):,} samples: {seconds:.2f} s, {opened / 1000:.0f} MB", end="; ", flush=True)
dataset_fingerprint(data)
for i in range(0, len(data), 7): data.files(i), data.names[i]
print(f"{(kilobytes() - before) / 1000:.0f} MB after use")
"""


def make(root: Path, count: int) -> None:
    for kind, suffix in (("images", "jpg"), ("depths", "png")):
        for first in range(0, count, 1000):
            folder = root / kind / f"scene_{first // 1000:04d}"
            folder.mkdir(parents=True)
            for number in range(first, min(first + 1000, count)):
                os.close(os.open(folder / f"{number:07d}.{suffix}", os.O_CREAT))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "data", int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
        environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"}
        time.sleep(3)  # a folder that changes is not cached
        for _ in range(3):
            subprocess.run([sys.executable, "-c", OPEN, f"{folder}/data"], env=environment, check=True)


if __name__ == "__main__":
    main()
