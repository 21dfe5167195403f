"""Time and memory of opening a large data set: `python benchmarks/data_index.py [IMAGES] [shards]` (default 1,000,000).

It makes a folder of empty images and depth maps, 1,000 to a folder, or shards of 1,000, and opens it in new processes:
without cache, then twice with that of the first. Memory is what the process has alone, beyond that before, without
pages of mapped files, which processes share; the peak is of all its memory while it opens, beyond that before.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

OPEN = """
import resource, sys, time, densevit.data
from pathlib import Path
from densevit.data.datasets.base import dataset_fingerprint
from densevit.data.datasets.folder import Folder
from densevit.data.datasets.webdataset import WebDataset
def kilobytes(): return sum(int(s.split()[1]) for s in open("/proc/self/smaps_rollup") if s.startswith("Private_Dirty"))
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
root, most = Path(sys.argv[1]), peak()
before, start, processor = kilobytes(), time.perf_counter(), time.process_time()
data = (Folder if (root / "images").is_dir() else WebDataset)(root=root, depth_scale=1000)
seconds, processor = time.perf_counter() - start, time.process_time() - processor
opened = kilobytes() - before
print(f"{len(data):,} samples: {seconds:.2f} s, processor {processor:.2f} s", end="; ")
print(f"{opened / 1000:.0f} MB, peak {(peak() - most) / 1000:.0f} MB", end="; ", flush=True)
dataset_fingerprint(data)
for i in range(0, len(data), 7): (data.files if hasattr(data, "samples") else data.members)(i), data.names[i]
print(f"{(kilobytes() - before) / 1000:.0f} MB after use")
"""


def make(root: Path, count: int) -> None:
    for kind, suffix in (("images", "jpg"), ("depths", "png")):
        for first in range(0, count, 1000):
            folder = root / kind / f"scene_{first // 1000:04d}"
            folder.mkdir(parents=True)
            for number in range(first, min(first + 1000, count)):
                os.close(os.open(folder / f"{number:07d}.{suffix}", os.O_CREAT))


def make_shards(root: Path, count: int) -> None:
    root.mkdir()
    for first in range(0, count, 1000):
        with tarfile.open(root / f"{first // 1000:06d}.tar", "w") as tar:
            for number in range(first, min(first + 1000, count)):
                for suffix in ("jpg", "depth.png"):
                    member = tarfile.TarInfo(f"scene_{first // 1000:04d}/{number:07d}.{suffix}")
                    member.mtime = 1.5  # as webdataset's writer: a pax header of its own
                    tar.addfile(member)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write = make_shards if "shards" in sys.argv[2:] else make
        write(Path(folder) / "data", int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
        environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"}
        time.sleep(3)  # a folder that changes is not cached
        for _ in range(3):
            subprocess.run([sys.executable, "-c", OPEN, f"{folder}/data"], env=environment, check=True)


if __name__ == "__main__":
    main()
