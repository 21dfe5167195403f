"""What can be made to go wrong in a child of the fork server, by name; some take an argument, as `name:argument`."""

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
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


def signalled(function: str, call: int = 0, sent: int = signal.SIGTERM) -> Callable[[str], None]:
    """A fault: a signal comes at a call of a function, the one that the fault's argument says if none is given."""

    def fault(argument: str) -> None:
        owner, _, name = function.rpartition(".")
        at = call or int(argument)
        before(resolve_name(owner), name, lambda number: os.kill(os.getpid(), sent) if number == at else None)

    return fault


while_building = signalled("densevit.builder.training.build_model", 1)
at_step = signalled("densevit.engine.trainer:Trainer.forward_backward_step")
while_validating = signalled("densevit.tasks.depth:DepthTask.image_scores", 2)
while_saving = signalled("densevit.weights.checkpoint.write_weights", 1)
while_scanning = signalled("densevit.data.datasets.folder:Folder.read", 3)
while_predicting = signalled("densevit.inference.predictor:Predictor.start", 2)
killed_predicting = signalled("densevit.inference.predictor:Predictor.start", sent=signal.SIGKILL)
killed_writing_shard = signalled("densevit.weights.tensor_files.write_shard", sent=signal.SIGKILL)


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
