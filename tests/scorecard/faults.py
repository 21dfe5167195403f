"""What can be made to go wrong in a child of the fork server, by name; some take an argument, as `name:argument`."""

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def before(owner: Any, name: str, act: Callable[[int], object]) -> None:
    """From now on `owner.name` first calls `act` with the number of the call, from 1."""
    original = getattr(owner, name)
    calls = 0

    def patched(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        act(calls)
        return original(*args, **kwargs)

    setattr(owner, name, patched)


def ask_to_stop(call: int, at: int = 1) -> None:
    if call == at:
        os.kill(os.getpid(), signal.SIGTERM)


def while_building(_: str) -> None:
    import densevit.builder.training

    before(densevit.builder.training, "build_model", ask_to_stop)


def at_step(number: str) -> None:
    from densevit.engine.trainer import Trainer

    before(Trainer, "forward_backward_step", lambda call: ask_to_stop(call, int(number)))


def while_validating(_: str) -> None:
    from densevit.tasks.depth import DepthTask

    before(DepthTask, "image_scores", lambda call: ask_to_stop(call, 2))


def while_saving(_: str) -> None:
    from densevit.weights import checkpoint

    before(checkpoint, "write_weights", ask_to_stop)


def killed_writing_shard(number: str) -> None:
    from densevit.weights import tensor_files

    before(tensor_files, "write_shard", lambda call: os.kill(os.getpid(), signal.SIGKILL) if call == int(number) else 0)


def while_scanning(_: str) -> None:
    from densevit.data.datasets.folder import Folder

    before(Folder, "read", lambda call: ask_to_stop(call, 3))


def while_predicting(_: str) -> None:
    from densevit.inference.predictor import Predictor

    before(Predictor, "start", lambda call: ask_to_stop(call, 2))


def killed_predicting(number: str) -> None:
    """Without a warning, at so many images."""
    from densevit.inference.predictor import Predictor

    before(Predictor, "start", lambda call: os.kill(os.getpid(), signal.SIGKILL) if call == int(number) else None)


def deaf(_: str) -> None:
    """Reading the first sample takes for ever, in one call that Python cannot interrupt, and says so."""
    import hashlib

    from densevit.data.datasets.folder import Folder

    def sleep(call: int) -> None:
        print("deaf", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)

    before(Folder, "read", sleep)


def full_disk(size: str) -> None:
    """Files can have so many bytes at most."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))


def noting_writes(path: str) -> None:
    """Each file or folder that is written leaves a line with the rank of the process."""
    from densevit.utils import atomic_io

    def note(_: int) -> None:
        with open(path, "a") as file:
            file.write(f"{os.environ.get('RANK', '0')}\n")

    before(atomic_io, "_temporary", note)


def failing_save(_: str) -> None:
    """On the process that saves."""
    from densevit.engine.checkpointer import CheckpointFolder
    from densevit.errors import StorageError

    def fail(*args: Any) -> None:
        raise StorageError("/runs: no room.")

    CheckpointFolder.save = fail  # type: ignore[method-assign]


def counting_graphs(folder: str) -> None:
    """Compiles without generating code; each save leaves the number of graphs and of breaks in a file of the rank."""
    import torch
    from torch._dynamo.utils import counters

    from densevit.engine.checkpointer import Checkpointer

    torch.compile = partial(torch.compile, backend="eager")

    def note(_: int) -> None:
        breaks = sum(counters["graph_break"].values()) + len(counters["unimplemented"])
        Path(folder, os.environ["RANK"]).write_text(json.dumps([counters["stats"]["unique_graphs"], breaks]))

    before(Checkpointer, "save", note)
