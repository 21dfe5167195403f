"""Training: `train` a config, `replay` a step that was skipped."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    from densevit.api.training import Run


@overload
def train(
    config: str | Path | Mapping[str, Any],
    /,
    *words: str,
    resume: bool | str | Path = False,
    overfit_one_batch: Literal[False] = False,
    **overrides: Any,
) -> "Run": ...
@overload
def train(
    config: str | Path | Mapping[str, Any], /, *words: str, overfit_one_batch: bool, **overrides: Any
) -> "Run | None": ...
def train(
    config: str | Path | Mapping[str, Any],
    /,
    *words: str,
    resume: bool | str | Path = False,
    overfit_one_batch: bool = False,
    **overrides: Any,
) -> "Run | None":
    """Train a model from a config; any key of it can be overridden.

    >>> run = densevit.train("depth/folder", data={"root": "mine"}, output="runs/mine")  # doctest: +SKIP
    >>> depth = run.predictor("photo.jpg")  # doctest: +SKIP

    Args:
        config: a YAML file, or a recipe by its name (`densevit list recipes`); in Python also the tree of a config.
        words: keys of the config, as optim.lr=3e-5 or batch_size=8.
        resume: resume from the newest good checkpoint of `output` (or start, where there is none), or from the one
            named.
        overfit_one_batch: train on the first batch only, to see that model, losses and data fit together; writes
            nothing.
        overrides: keys of the config, nested or dotted: `optim={"lr": 1e-4}` or `**{"optim.lr": 1e-4}`. A dict with a
            `type` replaces a component. Objects may stand for `model["encoder"]` (an nn.Module that returns feature
            maps; it is trained in place), and `data["train"]` and `data["val"]` (a `densevit.Dataset`, or a sequence
            of (image, depth) pairs; see `densevit.Pairs`).

    Returns:
        the run; its best checkpoint is `run.best`, ready to predict `run.predictor`.

    Raises:
        ConfigError: every fault of the config at once; `output` already holds a run.
        DataError: a data set is not where or what it should be.
        CheckpointError: weights that are missing or do not fit.
        Diverged: too many steps in a row were not finite; the last good checkpoint stays.
        Preempted: Ctrl-C or SIGTERM; the last step is saved, and `resume` continues. A second one ends the process.
    """
    from densevit.config import validation
    from densevit.config.parser import Draft
    from densevit.errors import ConfigError

    if not isinstance(resume, bool) and "=" in str(resume) and not Path(resume).exists():
        words, resume = (str(resume), *words), True  # `--resume optim.lr=1e-5`: an override, and no path
    if overfit_one_batch and resume:
        raise ConfigError("--overfit-one-batch: starts anew; leave out --resume.")
    draft = Draft.from_python(config, overrides, words)
    if "torch" not in sys.modules:  # else nothing is gained, and a program may have registered components of its own
        validation.check(draft)
    from densevit.api import training

    if overfit_one_batch:
        print(training.overfit_one_batch(draft))
        return None
    return training.run_training(draft, "auto" if resume is True else str(resume) if resume else None)


def replay(
    folder: str | Path,
    /,
    *words: str,
    rank: int = 0,
    plugins: Sequence[str | Path] = (),
) -> str:
    """Repeat a training step that was skipped, and show where it went wrong: images, losses, modules, gradients.

    Args:
        folder: a recorded step, RUN/skipped_steps/step-N.
        words: keys of the config, as device=cpu or data.train.root=DIR.
        rank: the process whose images are taken.
        plugins: Python files that register components of your own; those that the folder names are not run.
    """
    from densevit.api import training

    return training.replay_step(Path(folder), words, rank, plugins)
