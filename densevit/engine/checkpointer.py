"""The checkpoints of one run: saved whole, pruned without losing the best, loaded back into a TrainState."""

import math
import os
import sys
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree as remove
from typing import Any, Literal

import torch
from torch import Tensor

import densevit
from densevit.config import parser
from densevit.config.schema import TrainConfig
from densevit.config.yaml_document import YamlDocument, flat
from densevit.engine.distributed import local
from densevit.engine.train_state import TrainState
from densevit.errors import CheckpointError, StorageError
from densevit.model_card import ModelCard
from densevit.utils import atomic_io
from densevit.utils.output import tqdm
from densevit.utils.state_dict import check_finite
from densevit.weights import checkpoint, tensor_files
from densevit.weights.checkpoint import Manifest
from densevit.weights.migrations import migrate_config
from densevit.weights.tensor_files import TensorPart

BestScore = tuple[str, Literal["min", "max"]]
"""The score that picks the best checkpoint, and its direction."""

IGNORED_KEYS = (
    "output",
    "device",
    "data.workers",
    "data.cache_features.folder",
    "log_every",
    "trackers",
    "save_shards",
)
"""Options of a run that change nothing in what it learns."""


class Checkpointer:
    """Saves the state of a run, and loads it.

    Args:
        card: goes into every checkpoint.
        data: the fingerprint of the training data; goes into every checkpoint.

    Attributes:
        saved_at: the step of the newest checkpoint, 0 before the first.
        before_save: called on the process that writes, before each checkpoint; may raise.
        settle: called on every process before the state is read.
    """

    before_save: Callable[[], object] = staticmethod(lambda: None)
    settle: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, state: TrainState, run: TrainConfig, card: ModelCard, data: str, best: BestScore) -> None:
        self.state, self.run, self.card, self.data = state, run, card, data
        self.folder = CheckpointFolder(run.output / "checkpoints", best, run.keep_last)
        self.saved_at = 0
        sharded = run.parallel == "fsdp" and state.world.size > 1 if run.save_shards is None else run.save_shards
        self.background = state.world.background() if sharded else None
        self._writing: Future[None] | None = None

    def save(self) -> None:
        """Write a checkpoint that any number of processes can resume from; all processes must call it together. A
        sharded one is written in the background, once the one before it is there; see `close`. Raises CheckpointError
        if a weight is not finite, or what came back from the disk is not what was written. Raises StorageError if the
        disk is full or read-only."""
        self.settle()
        self.close()
        sharded, world = self.background is not None, self.state.world
        state = self.state.state_dict(gather=not sharded)
        manifest = Manifest(
            step=state.pop("step"),
            samples=state.pop("samples"),
            scores=self.state.scores if self.state.scored_at == self.state.step else {},
            world_size=world.size,
            data=self.data,
            versions={"densevit": densevit.__version__, "torch": torch.__version__},
        )
        world.on_main(self.before_save)
        if sharded:
            weights = {name: local(value) for name, value in state["weights"].items()}
            check_finite(f"{self.folder.path(self.state.step)}: not saved", weights, world.all_gather)
            staged = tensor_files.stage(state, whole=world.is_main)
            pool = ThreadPoolExecutor(1)
            self._writing = pool.submit(self._save_shards, *staged, manifest)
            pool.shutdown(wait=False)
        else:
            weights = state.pop("weights")
            world.on_main(lambda: self.folder.save(weights, self.card, parser.dump(self.run), state, manifest))
        self.saved_at = self.state.step

    def close(self) -> None:
        """Wait for the checkpoint that is being written, and raise what went wrong with it."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _save_shards(self, state: Mapping[str, Any], local: Mapping[str, TensorPart], manifest: Manifest) -> None:
        """Every process writes its tensors, rank 0 the rest; the folder has its name once all are there."""
        world, path = self.background, self.folder.path(manifest.step)
        assert world is not None
        size = sum(world.all_gather(sum(tensor.values.nbytes for tensor in local.values())))
        card = replace(self.card, scores=manifest.scores)
        with ExitStack() as stack:

            def begin() -> Path:
                path.parent.mkdir(parents=True, exist_ok=True)
                atomic_io.require_free_space(path.parent, size)
                return stack.enter_context(atomic_io.atomic_folder(path, replace=True))

            folder = world.on_main(begin)
            written = world.on_all(lambda: tensor_files.write_shard(folder, world.rank, local, checkpoint.header(card)))
            hashes = dict(ChainMap(*written))
            world.on_main(lambda: checkpoint.complete(folder, hashes, parser.dump(self.run), state, manifest))
            world.on_main(stack.close)
        world.on_main(lambda: self.folder.add(path, manifest, hashes))

    def load(self, path: Path, manifest: Manifest) -> None:
        """Load a verified checkpoint, and say where data or config differ from those that wrote it. Raises
        CheckpointError if it is of another model, or lacks something."""
        if self.state.world.is_main:
            if manifest.data != self.data:
                trained_on = manifest.data or "unknown"
                tqdm.write(f"warning: {path} was trained on other data ({trained_on}; now {self.data}).")
            if changes := changed(path, self.run):
                tqdm.write(f"note: {path} was trained otherwise: {'; '.join(changes)}.")
        state = checkpoint.read_state(path, self.state.like())
        state |= {"step": manifest.step, "samples": manifest.samples}
        source = path / checkpoint.STATE
        try:
            self.state.load_state_dict(state, path)
        except CheckpointError:
            raise
        except KeyError as error:
            raise CheckpointError(f"{source}: holds no {error}; was it written with another config?") from None
        except (ValueError, RuntimeError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{source}: does not fit this run ({error}).") from None
        self.saved_at = self.state.step

    @contextmanager
    def save_on_exception(self, *, undo: bool = False) -> Iterator[None]:
        """Save the last completed step first if the work inside fails; for work that leaves the weights as they are.

        Only in a run of one process: the others do not know of the error, and would wait for this one. `undo`: the work
        is part of a step; random states and running statistics are set back to its beginning.
        """
        try:
            yield
        except Exception:
            if self.state.world.size == 1 and self.saved_at != self.state.step:
                self._try_to_save(undo=undo)
            raise

    def _try_to_save(self, *, undo: bool) -> None:
        step = self.state.step
        try:
            if undo:
                self.state.undo_step()
            self.save()
            self.close()
        except Exception as error:  # a full disk, a lost GPU; the first error is the one to report
            tqdm.write(f"step {step} could not be saved: {error}")
        else:
            tqdm.write(f"step {step} is saved; once the error below is fixed, --resume continues from it.")


def changed(folder: Path, run: TrainConfig) -> list[str]:
    """Return the options that differ between a run and the one that saved this checkpoint: `key was this, is that`."""
    saved = migrate_config(YamlDocument.read(folder / checkpoint.CONFIG).tree)
    before, now = flat(saved), flat(parser.to_dict(run))
    differing = [key for key in {**before, **now} if before.get(key) != now.get(key) and key not in IGNORED_KEYS]
    return [f"{key} was {before.get(key)!r}, is {now.get(key)!r}" for key in differing]


class CheckpointFolder:
    """`folder/step-N`, with the links `last` and `best` beside them.

    Args:
        keep_last: how many of the newest are kept, besides the best; 0 keeps all.
    """

    def __init__(self, folder: Path, best: BestScore, keep_last: int) -> None:
        self.folder = folder
        self.score, self.direction = best
        self.keep_last = keep_last

    def save(
        self, weights: Mapping[str, Tensor], card: ModelCard, config: str, state: Mapping[str, Any], manifest: Manifest
    ) -> Path:
        """Write a checkpoint, read it back, move the links, then prune, so that a crash loses no earlier one.
        Raises CheckpointError if a weight is not finite, or what came back from the disk is not what was written.
        Raises StorageError if the disk is full or read-only."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(manifest.step)
        checkpoint.write(path, weights, replace(card, scores=manifest.scores), config, state, manifest)
        self.add(path, manifest)
        return path

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08d}"

    def add(self, path: Path, manifest: Manifest, verified: Collection[str] = ()) -> None:
        """Read a new checkpoint back, move the links, then prune. `verified`: files that were read back already."""
        checkpoint.verify(path, verified)
        self._link("last", path)
        if self.is_best(manifest.scores):
            self._link("best", path)
        self._prune(path)

    def best(self) -> Path | None:
        link = self.folder / "best"
        return link.resolve() if link.is_dir() else None

    def is_best(self, scores: Mapping[str, float]) -> bool:
        """Return whether scores are better than those of every checkpoint before."""
        new = scores.get(self.score, math.nan)
        if math.isnan(new):
            return False
        best = self.best()
        if best is None:
            return True
        try:
            old = checkpoint.read_manifest(best).scores.get(self.score, math.nan)
        except CheckpointError:
            return True
        return math.isnan(old) or (new < old if self.direction == "min" else new > old)

    def _link(self, name: str, target: Path) -> None:
        temporary = self.folder / f".{name}.{os.getpid()}{atomic_io.SUFFIX}"
        try:
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(target.name, target_is_directory=True)
            temporary.replace(self.folder / name)
        except OSError as error:
            raise StorageError(
                f"{self.folder / name}: cannot be linked to {target.name} ({error.strerror})."
            ) from error

    def _prune(self, newest: Path) -> None:
        checkpoints = checkpoint.steps(self.folder)
        protected = {newest.resolve(), self.best()}
        for path in checkpoints[: max(0, len(checkpoints) - self.keep_last)] if self.keep_last else []:
            if path.resolve() not in protected:
                try:
                    # Renamed first: a folder that is half gone must not pass for a checkpoint.
                    gone = path.rename(path.with_name(f".{path.name}.{os.getpid()}{atomic_io.SUFFIX}"))
                    remove(gone)
                except OSError as error:
                    print(f"warning: {path}: old checkpoint could not be removed ({error.strerror}).", file=sys.stderr)
