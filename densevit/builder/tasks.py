"""Builds the tasks of a plan: what each head learns from, and how validation scores it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from densevit.builder.plan import Plan
from densevit.config.validation import TaskSpec
from densevit.data.datasets.base import Dataset, MixtureSource
from densevit.data.labels.class_table import refuse_reordered
from densevit.data.sanity_checks import found_truths
from densevit.engine.checkpointer import BestScore
from densevit.engine.monitors import report_scale, with_scale
from densevit.errors import ConfigError
from densevit.evaluation import classification as class_metrics
from densevit.evaluation import normals as normal_metrics
from densevit.evaluation.depth.published_protocols import find_protocol
from densevit.evaluation.depth.scores import mean_row
from densevit.evaluation.segmentation import metrics as seg_metrics
from densevit.evaluation.segments.scores import segment_scores
from densevit.model_card import HeadSpec, Kind, ModelCard
from densevit.registry import did_you_mean
from densevit.structures import Row
from densevit.tasks import focal as focal_task
from densevit.tasks.base import Task, task_class
from densevit.tasks.depth import DepthTask

# The scores of one image, and of all of them, by output kind; depth is scored by protocols.
SCORES: Mapping[str, tuple[Callable[..., dict[str, Any]], Callable[[Sequence[Any]], Row]]] = {
    "class": (class_metrics.score, class_metrics.mean_row),
    "focal": (focal_task.score, mean_row),
    "labels": (seg_metrics.as_row, seg_metrics.pooled_scores),
    "normals": (normal_metrics.as_row, normal_metrics.pooled_scores),
}


def no_score(*_: object) -> Row:
    """Return no scores, for output kinds whose task scores images by itself."""
    return {}


def depth_tasks(plan: Plan, card: ModelCard) -> dict[str, TaskSpec]:
    """Return the tasks whose heads give depth."""
    return {name: task for name, task in plan.tasks.items() if card.outputs[name].output_kind.is_depth}


def build_task(name: str, plan: Plan, output: HeadSpec) -> Task:
    """Build the task of a head: its losses, and the scores of its validation. Raises ConfigError: as `check_output`."""
    spec = plan.tasks[name]
    losses = [(loss.name, spec.weight * weight, loss.build()) for weight, loss in spec.losses]
    check_output(name, spec, output, plan)
    scores = SCORES.get(output.kind, (no_score, mean_row))
    if output.output_kind.is_depth:
        data = plan.val or plan.train
        scores = depth_score(spec.protocol, data, output.kind), lambda rows: mean_row(report_scale(name, rows))
    if not output.output_kind.averaged:
        scores = segment_scores(output)
    task: Task = spec.task.build(name, output, losses, *scores)
    if isinstance(task, DepthTask) and plan.val is not None:
        task.score_by_source = {
            source.name: depth_score(source.protocol or spec.protocol, source.data, output.kind)
            for source in plan.val.sources
        }
    return task


def depth_score(protocol: str, data: Dataset, kind: Kind) -> Callable[..., dict[str, Any]]:
    score = find_protocol(protocol, data.depth_range, kind).score
    return with_scale(score) if kind == "metric" else score


def check_output(name: str, spec: TaskSpec, output: HeadSpec, plan: Plan) -> None:
    """Check that a task and the data fit a head. Raises ConfigError if the task cannot train this head, or the data has
    other classes."""
    kinds = task_class(spec.task).kinds
    if output.kind not in kinds:
        raise ConfigError(
            f"tasks.{name}: task '{spec.task.name}' trains heads that give {', '.join(kinds)}; "
            f"model.heads.{name} gives {output.kind}."
        )
    for key, data in plan.opened.items():
        labelled = key != "train" or "probe" not in plan.opened or data.classes  # beside a probe images need no classes
        if not output.classes or not labelled:
            continue
        if len(data.classes) != len(output.classes):
            raise ConfigError(
                f"model.heads.{name}: predicts {len(output.classes)} classes, but the data has "
                f"{len(data.classes) or 'none'}."
            )
        refuse_reordered(f"model.heads.{name}", output.classes, data.classes)
        learned = task_class(spec.task).ground_truth_kinds([])
        for source in data.sources:
            asked = not spec.sources or source.name in spec.sources
            if asked and not source.data.classes and learned & found_truths(source):
                raise ConfigError(
                    f"data.{key}: source '{source.name}' has labels, and no names of its classes, by which they would "
                    "join those of other sources. Give it a list of classes, or leave labels out of its `truth`."
                )


def best_score(plan: Plan, tasks: Mapping[str, Task]) -> BestScore:
    """Return the score that picks the best checkpoint, by its name in `val.csv`.

    Without `best` it is that of the first task, on the first source with ground truth that it is scored by. Raises
    ConfigError if `best` is no such score.
    """
    scored = list(_scored(plan, tasks))
    names = {
        prefix + score: direction
        for prefix, task, _ in scored
        for score, direction in (tasks[task].best, *tasks[task].directions.items())
    } | getattr(plan.objective.component, "scores", {})
    if plan.run.best is None:
        fitting = (
            prefix + tasks[task].best[0]
            for prefix, task, source in scored
            if source is None or tasks[task].scored_kinds() & found_truths(source)
        )
        first = next(fitting, next(iter(names), ""))
        return first, names.get(first, "min")
    if plan.run.best not in names:
        raise ConfigError(plan.locate(f"best: no score '{plan.run.best}'.{did_you_mean(plan.run.best, names)}"))
    return plan.run.best, names[plan.run.best]


def _scored(plan: Plan, tasks: Mapping[str, Task]) -> Iterator[tuple[str, str, MixtureSource | None]]:
    """Yield what the names of scores begin with, for each task and each source that it is scored on."""
    sources: Sequence[MixtureSource | None] = plan.val.sources if plan.val is not None else ()
    for name in tasks:
        for source in sources or [None]:
            if source is None or not plan.tasks[name].sources or source.name in plan.tasks[name].sources:
                prefix = (f"{source.name}/" if source else "") + (f"{name}/" if len(tasks) > 1 else "")
                yield prefix, name, source
