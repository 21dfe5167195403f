"""What torch's threads do while they wait for each other: seconds by the clock and of the processor, for one fp32 pass.

python benchmarks/omp_waiting.py [--threads 2] [--repeats 4]    # on a machine that does other work, too
"""

import argparse
import os
import subprocess
import sys
import time

import torch

from densevit.inference.backends.onednn import prepack_linears
from densevit.speed.reference_models import our_network
from densevit.utils.tuning import tune_malloc

POLICIES = ({}, {"GOMP_SPINCOUNT": "10000"}, {"OMP_WAIT_POLICY": "PASSIVE"})
NAMES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def measure(threads: int, repeats: int) -> None:
    tune_malloc()
    torch.set_num_threads(threads)
    model, _ = our_network("small")
    prepack_linears(model, "fp32")
    image = torch.rand(1, 3, 518, 518).contiguous(memory_format=torch.channels_last)
    clock, processor = [], []
    with torch.inference_mode():
        model(image)
        for _ in range(repeats):
            begun, worked = time.perf_counter(), time.process_time()
            model(image)
            clock.append(time.perf_counter() - begun)
            processor.append(time.process_time() - worked)
    policy = " ".join(f"{name}={os.environ[name]}" for name in NAMES if name in os.environ) or "default"
    shown = [
        f"{what} {min(values):.2f} to {max(values):.2f} s"
        for what, values in zip(("clock", "processor"), (clock, processor), strict=True)
    ]
    print(f"{threads} threads, {policy}: {', '.join(shown)}; load {os.getloadavg()[0]:.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        measure(args.threads, args.repeats)
        return
    own = {name: value for name, value in os.environ.items() if name not in NAMES}
    for policy in POLICIES:  # OpenMP reads them once, when torch is imported
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--here"], env={**own, **policy}, check=True)


if __name__ == "__main__":
    main()
