"""What a mixture of data sets means for the tasks: which source teaches which head, and which score is the best."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from densevit.builder.plan import Plan
from densevit.config.validation import TaskSpec
from densevit.data.datasets.base import MixtureSource
from densevit.data.sanity_checks import found_truths
from densevit.engine.checkpointer import BestScore
from densevit.errors import ConfigError
from densevit.registry import did_you_mean
from densevit.tasks.base import Task, task_class


@dataclass(frozen=True)
class Teaching:
    """The sources of the training mixture that teach a task, and their share of the draws."""

    sources: tuple[MixtureSource, ...]
    share: float

    def apply_to(self, task: Task, only: Sequence[str]) -> None:
        task.sources, task.share, task.only = tuple(s.name for s in self.sources), self.share, tuple(only)
        task.drop_worst = {source.name: source.drop_worst for source in self.sources}
        task.confidence = {source.name: source.confidence for source in self.sources if source.strong is not None}


def teaching(plan: Plan) -> dict[str, Teaching]:
    """Which sources teach which task, by the ground truth that its losses learn from.

    Raises:
        ConfigError: every mistake at once: a source whose ground truth fits no task, a task that no source teaches, a
            source that is not there.
    """
    train = plan.train
    problems = [*_unknown_sources(plan), *_misplaced_consistency(plan)]
    have = {source.name: found_truths(source) for source in train.sources}
    wanted = {name: _wanted(task) for name, task in plan.tasks.items()}
    found = {}
    for name, task in plan.tasks.items():
        own = [
            source
            for source in train.sources
            if (wanted[name] & have[source.name] or (source.strong is not None and task_class(task.task).teachable))
            and (not task.sources or source.name in task.sources)
        ]
        found[name] = Teaching(tuple(own), sum(s.share for s in own) or 1.0)
        if train.sources and not own:
            kinds = ", ".join(sorted(wanted[name]))
            problems.append(f"tasks.{name}: no source of data.train has ground truth that it learns from ({kinds}).")
    taught = {source.name for each in found.values() for source in each.sources}
    for i, source in enumerate(train.sources):
        if source.name not in taught and source.share:
            kinds = "; ".join(f"{name} from {', '.join(sorted(of_task))}" for name, of_task in wanted.items())
            problems.append(
                f"data.train.sources.{i}: the ground truth of '{source.name}' fits no task: it has "
                f"{', '.join(sorted(have[source.name])) or 'none'}; {kinds}. Set its `truth`, leave it out, or set "
                "`consistency` to learn from images without."
            )
    if problems:
        raise ConfigError(*map(plan.locate, problems))
    return found


def _wanted(task: TaskSpec) -> frozenset[str]:
    return task_class(task.task).ground_truth_kinds([loss.build() for _, loss in task.losses])


def _misplaced_consistency(plan: Plan) -> Iterator[str]:
    run = plan.run
    for i, source in enumerate(plan.train.sources):
        if source.strong is None:
            continue
        where = f"data.train.sources.{i}.consistency"
        if source.truths != ("none",):
            yield f"{where}: for images without ground truth; set `truth: none` beside it."
        if run.ema is None:
            yield f"{where}: its teacher is the moving average of the weights; set `ema`, to 0.996 say."
        if run.parallel == "fsdp" or run.compile:
            yield f"{where}: its teacher does not go with {'compile' if run.compile else 'parallel: fsdp'}."


def _unknown_sources(plan: Plan) -> Iterator[str]:
    known = [source.name for source in plan.train.sources]
    for where, sources in plan.named_sources.items():
        for i, source in enumerate(sources):
            if source not in known:
                why = did_you_mean(source, known) if known else " data.train is no mixture."
                yield f"{where}.sources.{i}: no source '{source}' in data.train.{why}"


def best_score(plan: Plan, tasks: Mapping[str, Task]) -> BestScore:
    """The score that picks the best checkpoint, by its name in `val.csv`.

    Without `best` it is that of the first task, on the first source that it is scored on.

    Raises:
        ConfigError: `best` is no such score.
    """
    names = dict(_scores(plan, tasks))
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
            if source is not None and task.only and source.name not in task.only:
                continue
            prefix = (f"{source.name}/" if source else "") + (f"{name}/" if len(tasks) > 1 else "")
            yield prefix + score, direction
            for other, way in task.directions.items():
                yield prefix + other, way
