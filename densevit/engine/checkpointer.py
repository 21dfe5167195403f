"""The checkpoints of one run: saved whole, pruned without losing the best, resumed from the newest that verifies."""

import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree as remove
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor
from tqdm import tqdm

from densevit.config import parser
from densevit.config.schema import Run
from densevit.config.yaml_document import YamlDocument, flat
from densevit.engine import seed
from densevit.engine.distributed import DistributedContext
from densevit.errors import CheckpointError, ConfigError, StorageError
from densevit.model_card import ModelCard
from densevit.utils import atomic_io
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest
from densevit.weights.migrations import migrate_config


class Checkpoints:
    """`folder/step-N`, with the links `last` and `best` beside them.

    Args:
        best: the score that decides, and its direction.
        keep_last: how many of the newest stay, besides the best; 0 keeps all.
    """

    def __init__(self, folder: Path, best: tuple[str, Literal["min", "max"]], keep_last: int) -> None:
        self.folder = folder
        self.score, self.direction = best
        self.keep_last = keep_last

    def save(
        self, weights: Mapping[str, Tensor], card: ModelCard, config: str, state: Mapping[str, Any], manifest: Manifest
    ) -> Path:
        """Writes a checkpoint, reads it back, moves the links, then prunes: a crash or a bad disk costs no good one.

        Raises:
            CheckpointError: a weight is not finite, or what came back from the disk is not what was written.
            StorageError: the disk is full or read-only.
        """
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
        spared = {newest.resolve(), self.best()}
        for path in found[: max(0, len(found) - self.keep_last)] if self.keep_last else []:
            if path.resolve() not in spared:
                try:
                    # Renamed first: a folder that is half gone must not pass for a checkpoint.
                    gone = path.rename(path.with_name(f".{path.name}.{os.getpid()}{atomic_io.SUFFIX}"))
                    remove(gone)
                except OSError as error:
                    print(f"warning: {path}: old checkpoint could not be removed ({error.strerror}).", file=sys.stderr)


def newest_good(folder: Path) -> tuple[Path, Manifest] | None:
    """The newest checkpoint that verifies, or None where there is none at all.

    Each one passed over is set aside as `damaged-step-N`, and a warning names both.

    Raises:
        CheckpointError: there are some, and none of them verifies.
    """
    damaged: list[tuple[Path, CheckpointError]] = []
    for path in reversed(checkpoint.steps(folder)):
        try:
            manifest = checkpoint.verify(path)
        except CheckpointError as error:
            damaged.append((path, error))
            continue
        for other, fault in damaged:  # or the run would meet them again, and could not tell them from its own
            aside = other.with_name(f"damaged-{other.name}")
            print(f"warning: {fault} Set aside as {aside.name}; going on from {path.name}.", file=sys.stderr)
            atomic_io.remove(aside)
            other.rename(aside)
        return path, manifest
    if damaged:
        raise CheckpointError(
            f"{folder}: none of its {len(damaged)} checkpoints is whole; move it away to start anew. "
            f"The newest: {damaged[0][1]}"
        )
    return None


if TYPE_CHECKING:
    from densevit.engine.trainer import Trainer


@contextmanager
def save_on_exception(trainer: "Trainer", random: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Around work that leaves weights, average and optimiser as they are.

    A run of several processes is left alone: the others do not know, and would wait for this one.

    Args:
        random: the random state before that work, if it draws numbers; then the running statistics go back, too.
    """
    try:
        yield
    except Exception:
        if trainer.world.size == 1 and trainer.saved_at != trainer.step:
            if random is not None:
                seed.set_random_state(random, trainer.world.device)
                trainer.statistics.put_back()
            _save(trainer)
        raise


def _save(trainer: "Trainer") -> None:
    try:
        trainer.save()
    except Exception as error:  # a full disk, a dead GPU; what went wrong first is what to tell
        tqdm.write(f"step {trainer.step} could not be saved: {error}")
    else:
        tqdm.write(f"step {trainer.step} is saved; when what follows is mended, --resume goes on from it.")


Found = tuple[Path, Manifest]
IGNORED_KEYS = ("output", "device", "data.workers", "log_every")  # to what is learned


def prepare(run: Run, resume: str | None, world: DistributedContext) -> Found | None:
    """Finds the checkpoint to go on from, and claims the output folder.

    Args:
        resume: None to start anew, `auto` for the newest good checkpoint of the run, or a path.

    Returns:
        a verified checkpoint, the same on every process, or None to start anew.

    Raises:
        ConfigError: the folder holds a run that was not asked to go on, or one further than the named checkpoint.
        CheckpointError: the named checkpoint is missing or damaged, and no other is taken instead; or none is whole.
    """
    return world.on_main(lambda: _prepare(run, resume))


def _prepare(run: Run, resume: str | None) -> Found | None:
    try:
        return _found(run, resume)
    except OSError as error:
        raise StorageError(f"output: {run.output} cannot be used ({error.strerror}).") from None


def _found(run: Run, resume: str | None) -> Found | None:
    folder = run.output / "checkpoints"
    if resume is None and checkpoint.steps(folder):
        raise ConfigError(
            f"output: {run.output} already holds a run. Go on with --resume, or name another folder by output=..."
        )
    named = None if resume in (None, "auto") else _named(str(resume), folder)
    folder.mkdir(parents=True, exist_ok=True)
    atomic_io.remove_stale_temporaries(folder)
    return newest_good(folder) if resume == "auto" else named


def begin(run: Run, world: DistributedContext) -> None:
    """Notes the run's config in its folder; once it is known to go on, for another one's may stand there."""
    world.on_main(lambda: atomic_io.write_text(run.output / checkpoint.CONFIG, parser.dump(run)))


def changed(folder: Path, run: Run) -> list[str]:
    """What a run does otherwise than when it saved this checkpoint, `key was this, is that`."""
    saved = migrate_config(YamlDocument.read(folder / checkpoint.CONFIG).tree)
    before, now = flat(saved), flat(parser.to_dict(run))
    differing = [key for key in {**before, **now} if before.get(key) != now.get(key) and key not in IGNORED_KEYS]
    return [f"{key} was {before.get(key)!r}, is {now.get(key)!r}" for key in differing]


def _named(resume: str, folder: Path) -> Found:
    # Of a run the newest goes on; `locate` would take the best.
    steps = checkpoint.steps(Path(resume) / "checkpoints") or checkpoint.steps(Path(resume))
    path = steps[-1] if steps else checkpoint.locate(resume)
    path = path if path.is_dir() else path.parent
    manifest = checkpoint.verify(path)
    later = [other.name for other in checkpoint.steps(folder) if checkpoint.step_of(other) > manifest.step]
    if later:  # the run would meet them again, and could not tell them from its own
        raise ConfigError(
            f"output: {folder.parent} holds {', '.join(later)}, further than {path.name}. Move them away to go back, "
            "or name another folder by output=..."
        )
    return path, manifest
