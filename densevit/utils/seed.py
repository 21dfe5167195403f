"""Random states: seeded once, carried in checkpoints. Sample order and augmentation do not depend on them."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seeds python, numpy and torch: the same model on every process, and its dropout until `reseed`."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 (for the libraries that still draw from it)
    torch.manual_seed(seed)


def reseed(seed: int, rank: int, step: int = 0) -> None:
    """Separate streams for dropout and stochastic depth on each process."""
    seed_everything(int(np.random.SeedSequence((seed, rank, step)).generate_state(1, np.uint64)[0] >> 1))


def random_state(device: torch.device) -> dict[str, Any]:
    """The states of all random generators of this process, as plain values and tensors."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    state: dict[str, Any] = {
        "python": [random.getstate()[0], list(random.getstate()[1]), random.getstate()[2]],
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest],
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Any], device: torch.device) -> None:
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
