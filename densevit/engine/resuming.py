"""Before the first step: where a run starts from, and that it overwrites nothing."""

from pathlib import Path

from densevit import config, files
from densevit.config import Run
from densevit.engine.checkpointing import newest_good
from densevit.engine.distributed import World
from densevit.errors import ConfigError, StorageError
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest


def prepare(run: Run, resume: str | None, world: World) -> tuple[Path, Manifest] | None:
    """Finds the checkpoint to go on from, and claims the output folder.

    Args:
        resume: None to start anew, `auto` for the newest good checkpoint of the run, or a path.

    Returns:
        a verified checkpoint, or None to start anew.

    Raises:
        ConfigError: the folder holds a run that was not asked to go on.
        CheckpointError: the named checkpoint is missing or damaged; no other is taken instead.
    """
    found = _find(run, resume)
    world.run_on_main(lambda: _claim(run))
    return found


def _find(run: Run, resume: str | None) -> tuple[Path, Manifest] | None:
    folder = run.output / "checkpoints"
    if resume is None:
        if checkpoint.steps(folder):
            raise ConfigError(
                f"output: {run.output} already holds a run. Go on with --resume, or name another folder by output=..."
            )
        return None
    if resume != "auto":
        path = checkpoint.locate(resume)
        path = path if path.is_dir() else path.parent
        return path, checkpoint.verify(path)
    return newest_good(folder)


def _claim(run: Run) -> None:
    try:
        (run.output / "checkpoints").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"output: {run.output} cannot be made ({error.strerror}).") from None
    files.sweep(run.output / "checkpoints")
    files.write_text(run.output / "config.yaml", config.dump(run))
