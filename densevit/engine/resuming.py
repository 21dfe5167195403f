"""Before the first step: where a run starts from, and that it overwrites nothing."""

from pathlib import Path

from densevit import config, files
from densevit.config import Run
from densevit.document import Document, flat
from densevit.engine.checkpointing import newest_good
from densevit.engine.distributed import World
from densevit.errors import ConfigError, StorageError
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest

Found = tuple[Path, Manifest]
INDIFFERENT = ("output", "device", "data.workers", "log_every")  # to what is learned


def prepare(run: Run, resume: str | None, world: World) -> Found | None:
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
    files.sweep(folder)
    return newest_good(folder) if resume == "auto" else named


def begin(run: Run, world: World) -> None:
    """Notes the run's config in its folder; once it is known to go on, for another one's may stand there."""
    world.on_main(lambda: files.write_text(run.output / checkpoint.CONFIG, config.dump(run)))


def changed(folder: Path, run: Run) -> list[str]:
    """What a run does otherwise than when it saved this checkpoint, `key was this, is that`."""
    before, now = (flat(tree) for tree in (Document.read(folder / checkpoint.CONFIG).tree, config.to_dict(run)))
    differing = [key for key in {**before, **now} if before.get(key) != now.get(key) and key not in INDIFFERENT]
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
