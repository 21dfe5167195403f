"""The scores of a validation by name, and the one that picks the best checkpoint."""

from collections.abc import Iterator, Mapping, Sequence

from densevit.builder.plan import Plan
from densevit.data.datasets.base import MixtureSource
from densevit.engine.checkpointer import BestScore
from densevit.errors import ConfigError
from densevit.registry import did_you_mean
from densevit.tasks.base import Task


def best_score(plan: Plan, tasks: Mapping[str, Task]) -> BestScore:
    """The score that picks the best checkpoint, by its name in `val.csv`.

    Without `best` it is that of the first task, on the first source that it is scored on. Raises ConfigError if `best`
    is no such score.
    """
    names = {**dict(_scores(plan, tasks)), **getattr(plan.objective.component, "scores", {})}
    if plan.run.best is None:
        return next(iter(names.items()))
    if plan.run.best not in names:
        raise ConfigError(plan.locate(f"best: no score '{plan.run.best}'.{did_you_mean(plan.run.best, names)}"))
    return plan.run.best, names[plan.run.best]


def _scores(plan: Plan, tasks: Mapping[str, Task]) -> Iterator[BestScore]:
    sources: Sequence[MixtureSource | None] = plan.val.sources if plan.val is not None else ()
    for name, task in tasks.items():
        score, direction = task.best
        for source in sources or [None]:
            if source is not None and plan.tasks[name].sources and source.name not in plan.tasks[name].sources:
                continue
            prefix = (f"{source.name}/" if source else "") + (f"{name}/" if len(tasks) > 1 else "")
            yield prefix + score, direction
            for other, way in task.directions.items():
                yield prefix + other, way
