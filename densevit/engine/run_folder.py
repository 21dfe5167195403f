"""The output folder of a run: locked while it trains, and searched for the checkpoint to resume from."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from densevit.config import parser
from densevit.config.schema import TrainConfig
from densevit.errors import CheckpointError, ConfigError, StorageError
from densevit.utils import atomic_io
from densevit.utils.lock import FolderLock
from densevit.utils.process_group import ProcessGroup
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest

Found = tuple[Path, Manifest]
"""A checkpoint that has been verified."""


@contextmanager
def locked(output: Path, world: ProcessGroup) -> Iterator[FolderLock]:
    """Hold the output folder for this run alone; on the way out, a folder that it made and left empty is removed.
    Raises ConfigError: another run that is alive holds it. Raises StorageError if it cannot be made or written."""
    lock = FolderLock(output, f"output: {output}")
    world.on_main(lock.acquire)
    try:
        yield lock
    finally:
        if world.is_main:
            with suppress(OSError):
                (output / "checkpoints").rmdir()
            lock.release()


def find_checkpoint(run: TrainConfig, resume: str | None, world: ProcessGroup) -> Found | None:
    """Find the checkpoint to resume from. `resume`: None to start anew, `auto` for the newest good checkpoint of the
    run, or a path. Raises ConfigError if the folder holds a run that was not asked to go on, or one further than the
    named checkpoint. Raises CheckpointError if the named checkpoint is missing or damaged, and no other is taken
    instead; or none is whole. Returns a verified checkpoint, the same on every process, or None to start anew."""
    return world.on_main(lambda: _find(run.output, resume))


def _find(output: Path, resume: str | None) -> Found | None:
    folder = output / "checkpoints"
    try:
        if resume is None and (checkpoint.steps(folder) or (folder / "last").exists()):
            raise ConfigError(
                f"output: {output} already holds a run. Resume it with --resume, or name another folder by output=..."
            )
        named = None if resume in (None, "auto") else _named(str(resume), folder)
        folder.mkdir(parents=True, exist_ok=True)
        atomic_io.remove_stale_temporaries(folder)
        restore_links(folder)
        return newest_good(folder) if resume == "auto" else named
    except OSError as error:
        raise StorageError(f"output: {output} cannot be used ({error.strerror}).") from None


def restore_links(folder: Path) -> None:
    """Make `best` and `last` links again where the run was copied with links followed."""
    for path in (folder / "best", folder / "last"):
        if not path.is_dir() or path.is_symlink():
            continue
        try:
            step = folder / f"step-{checkpoint.verify(path).step:08d}"
        except CheckpointError as error:
            aside = path.with_name(f"damaged-{path.name}")
            print(f"warning: {error} Set aside as {aside.name}.", file=sys.stderr)
            atomic_io.remove(aside)
            path.rename(aside)
        else:
            atomic_io.remove(step)
            path.rename(step)
            path.symlink_to(step.name, target_is_directory=True)


def write_config(run: TrainConfig, world: ProcessGroup) -> None:
    """Write `config.yaml`; after a checkpoint to resume from is loaded, whose config may stand there."""
    world.on_main(lambda: atomic_io.write_text(run.output / checkpoint.CONFIG, parser.dump(run)))


def _named(resume: str, folder: Path) -> Found:
    # A run resumes from its newest checkpoint; `locate` would take the best.
    steps = checkpoint.steps(Path(resume) / "checkpoints") or checkpoint.steps(Path(resume))
    path = steps[-1] if steps else checkpoint.locate(resume)
    path = path if path.is_dir() else path.parent
    manifest = checkpoint.verify(path)
    later = [other.name for other in checkpoint.steps(folder) if checkpoint.step_of(other) > manifest.step]
    if later:  # the run would reach these steps again, and mix them up with its own
        raise ConfigError(
            f"output: {folder.parent} holds {', '.join(later)}, further than {path.name}. Move them away to go back, "
            "or name another folder by output=..."
        )
    return path, manifest


def newest_good(folder: Path) -> tuple[Path, Manifest] | None:
    """Return the newest checkpoint that verifies, or None where there is none at all.

    Each one passed over is set aside as `damaged-step-N`, and a warning names both. Raises CheckpointError if there are
    some, and none of them verifies.
    """
    damaged: list[tuple[Path, CheckpointError]] = []
    for path in reversed(checkpoint.steps(folder)):
        try:
            manifest = checkpoint.verify(path)
        except CheckpointError as error:
            damaged.append((path, error))
            continue
        for other, fault in damaged:  # or the run would later mix them up with its own
            aside = other.with_name(f"damaged-{other.name}")
            print(f"warning: {fault} Set aside as {aside.name}; going on from {path.name}.", file=sys.stderr)
            atomic_io.remove(aside)
            other.rename(aside)
        return path, manifest
    if damaged:
        raise CheckpointError(
            f"{folder}: none of its {len(damaged)} checkpoints is whole; move them away to start anew. "
            f"The newest: {damaged[0][1]}"
        )
    return None
