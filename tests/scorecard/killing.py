"""Saves checkpoints for ever in forked children and kills each in the middle; run by `test_checkpoints.py`.

python killing.py FOLDER TRIALS SEED
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from densevit.engine.checkpointer import CheckpointFolder
from densevit.engine.run_folder import newest_good
from densevit.model_card import HeadSpec, ModelCard
from densevit.utils import atomic_io
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest

WEIGHTS = {"w": torch.zeros(600_000)}  # with the state 5 MB
STATE = {"moments": torch.zeros(650_000)}
CARD = ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1)


def save_for_ever(folder: Path, first: int, pipe: int) -> None:
    checkpoints = CheckpointFolder(folder, ("abs_rel", "min"), keep_last=1)
    for step in range(first, first + 1000):
        manifest = Manifest(step=step, samples=step, scores={"abs_rel": 1 / step})
        checkpoints.save(WEIGHTS, CARD, "", STATE, manifest)
        os.write(pipe, b"%d\n" % step)


def trial(folder: Path, draw: random.Random) -> None:
    """
    Raises:
        AssertionError: a save that had returned is lost, or anything is left half done.
    """
    atomic_io.remove_stale_temporaries(folder)
    found = newest_good(folder)
    first = found[1].step + 1 if found else 1
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.close(reading)
        try:
            save_for_ever(folder, first, writing)
        finally:
            os._exit(1)
    os.close(writing)
    told = os.read(reading, 100)  # one is saved
    time.sleep(draw.uniform(0, 0.15))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while chunk := os.read(reading, 100):
        told += chunk
    os.close(reading)
    last = int(told.split()[-1])
    atomic_io.remove_stale_temporaries(folder)
    found = newest_good(folder)
    assert last <= found[1].step <= last + 1, (last, found[1].step)
    assert torch.equal(checkpoint.read(found[0])[0]["w"], WEIGHTS["w"])
    left = [path.name for path in folder.iterdir() if path.name.startswith((".", "damaged"))]
    assert not left, left


if __name__ == "__main__":
    torch.set_num_threads(1)
    draw = random.Random(int(sys.argv[3]))
    Path(sys.argv[1]).mkdir(exist_ok=True)
    for _ in range(int(sys.argv[2])):
        trial(Path(sys.argv[1]), draw)
    print("held", sys.argv[2])
