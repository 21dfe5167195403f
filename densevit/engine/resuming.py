"""Before the first step: where a run starts from, and that it overwrites nothing."""

from pathlib import Path

from densevit import config, files
from densevit.config import Run
from densevit.engine.checkpointing import newest_good
from densevit.engine.distributed import World
from densevit.errors import ConfigError, StorageError
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest

Found = tuple[Path, Manifest]


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
    folder = run.output / "checkpoints"
    if resume is None and checkpoint.steps(folder):
        raise ConfigError(
            f"output: {run.output} already holds a run. Go on with --resume, or name another folder by output=..."
        )
    named = None if resume in (None, "auto") else _named(str(resume), folder)
    _claim(folder)
    found = newest_good(folder) if resume == "auto" else named
    files.write_text(run.output / "config.yaml", config.dump(run))
    return found


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


def _claim(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"output: {folder.parent} cannot be made ({error.strerror}).") from None
    files.sweep(folder)
