"""What was done since the last checkpoint is saved before an error, a damaged picture say, ends the run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from densevit.engine import seed

if TYPE_CHECKING:
    from densevit.engine.trainer import Trainer


@contextmanager
def rescuing(trainer: "Trainer", random: Mapping[str, Any] | None = None) -> Iterator[None]:
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
