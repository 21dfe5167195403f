"""The checkpoints of one run: saved whole, pruned without losing the best, loaded back into a TrainState."""

import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree as remove
from typing import Any, Literal

import torch
from torch import Tensor

import densevit
from densevit.config import parser
from densevit.config.schema import Run
from densevit.config.yaml_document import YamlDocument, flat
from densevit.engine.train_state import TrainState
from densevit.errors import CheckpointError, StorageError
from densevit.model_card import ModelCard
from densevit.utils import atomic_io
from densevit.utils.progress import tqdm
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest
from densevit.weights.migrations import migrate_config

BestScore = tuple[str, Literal["min", "max"]]
"""The score that picks the best checkpoint, and its direction."""

IGNORED_KEYS = ("output", "device", "data.workers", "data.cache_features.folder", "log_every", "trackers")
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

    def __init__(self, state: TrainState, run: Run, card: ModelCard, data: str, best: BestScore) -> None:
        self.state, self.run, self.card, self.data = state, run, card, data
        self.folder = CheckpointFolder(run.output / "checkpoints", best, run.keep_last)
        self.saved_at = 0

    def save(self) -> None:
        """Writes a checkpoint that any number of processes can resume from; all processes must call it together. Raises
        CheckpointError if a weight is not finite, or what came back from the disk is not what was written. Raises
        StorageError if the disk is full or read-only."""
        self.settle()
        state, world = self.state.state_dict(), self.state.world
        weights = state.pop("weights")
        manifest = Manifest(
            step=state.pop("step"),
            samples=state.pop("samples"),
            scores=self.state.scores if self.state.scored_at == self.state.step else {},
            world_size=world.size,
            data=self.data,
            versions={"densevit": densevit.__version__, "torch": torch.__version__},
        )

        def write() -> None:
            self.before_save()
            self.folder.save(weights, self.card, parser.dump(self.run), state, manifest)

        world.on_main(write)
        self.saved_at = self.state.step

    def load(self, path: Path, manifest: Manifest) -> None:
        """Loads a verified checkpoint, and says where data or config differ from those that wrote it. Raises
        CheckpointError if it is of another model, or lacks something."""
        if self.state.world.is_main:
            if manifest.data != self.data:
                known = manifest.data or "unknown"
                tqdm.write(f"warning: {path} was trained on other data ({known}; now {self.data}).")
            if changes := changed(path, self.run):
                tqdm.write(f"note: {path} was trained otherwise: {'; '.join(changes)}.")
        weights, _ = checkpoint.read(path)
        state = {**checkpoint.read_state(path), "step": manifest.step, "samples": manifest.samples, "weights": weights}
        where = path / checkpoint.STATE
        try:
            self.state.load_state_dict(state, path)
        except CheckpointError:
            raise
        except KeyError as error:
            raise CheckpointError(f"{where}: holds no {error}; was it written with another config?") from None
        except (ValueError, RuntimeError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{where}: does not fit this run ({error}).") from None
        self.saved_at = self.state.step

    @contextmanager
    def save_on_exception(self, *, undo: bool = False) -> Iterator[None]:
        """If the work inside fails, saves the last completed step first; for work that leaves the weights as they are.

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
        except Exception as error:  # a full disk, a lost GPU; the first error is the one to report
            tqdm.write(f"step {step} could not be saved: {error}")
        else:
            tqdm.write(f"step {step} is saved; once the error below is mended, --resume goes on from it.")


def changed(folder: Path, run: Run) -> list[str]:
    """Options that differ between a run and the one that saved this checkpoint: `key was this, is that`."""
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
        """Writes a checkpoint, reads it back, moves the links, then prunes, so that a crash loses no earlier one.
        Raises CheckpointError if a weight is not finite, or what came back from the disk is not what was written.
        Raises StorageError if the disk is full or read-only."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{manifest.step:08d}"
        checkpoint.write(path, weights, replace(card, scores=manifest.scores), config, state, manifest)
        checkpoint.verify(path)
        self._link("last", path)
        if self._is_best(manifest):
            self._link("best", path)
        self._prune(path)
        return path

    def best(self) -> Path | None:
        link = self.folder / "best"
        return link.resolve() if link.is_dir() else None

    def _is_best(self, manifest: Manifest) -> bool:
        new = manifest.scores.get(self.score, math.nan)
        if math.isnan(new):
            return False
        best = self.best()
        if best is None:
            return True
        try:
            old = checkpoint.verify(best).scores.get(self.score, math.nan)
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
        found = checkpoint.steps(self.folder)
        kept = {newest.resolve(), self.best()}
        for path in found[: max(0, len(found) - self.keep_last)] if self.keep_last else []:
            if path.resolve() not in kept:
                try:
                    # Renamed first: a folder that is half gone must not pass for a checkpoint.
                    gone = path.rename(path.with_name(f".{path.name}.{os.getpid()}{atomic_io.SUFFIX}"))
                    remove(gone)
                except OSError as error:
                    print(f"warning: {path}: old checkpoint could not be removed ({error.strerror}).", file=sys.stderr)
