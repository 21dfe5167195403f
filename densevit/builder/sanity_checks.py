"""Looks at some samples of a plan's data sets before the first step."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from densevit.builder.plan import Plan
from densevit.builder.tasks import depth_tasks
from densevit.data.datasets.base import Dataset, MixtureSource
from densevit.data.sanity_checks import (
    check_cameras,
    check_depth_range,
    check_ground_truth,
    check_labels,
    check_licences,
    check_normals,
    check_train_val_overlap,
    check_transforms,
    found_truths,
    ground_truth_sizes,
    selected_sources,
)
from densevit.errors import DataError
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.model_card import ModelCard
from densevit.tasks.base import Task


def run_sanity_checks(plan: Plan, card: ModelCard, tasks: Mapping[str, Task]) -> list[str]:
    """Look at some samples before the first step, for what would otherwise be found out after the last. Raises
    DataError: nothing to learn from; all of the depth lies outside the range of a head; a protocol that is not defined
    at its size. Returns warnings: ground truth outside of a head's range, labels of a single class, images in both
    splits, a batch larger than the data, images whose camera is not known where the model needs it, a head without
    ground truth to learn from, or to score it by."""
    on_corrupt = plan.run.data.on_corrupt
    warnings = _settings(plan) + check_licences(plan.train)
    if plan.objective.name == "supervised":
        warnings += _training_truth(plan, card, tasks)
    warnings += _head_ranges(plan, card, tasks)
    for name, data in plan.opened.items():
        if card.needs_camera or card.camera_head in tasks:
            warnings += check_cameras(data, f"data.{name}", on_corrupt=on_corrupt)
        if any(card.outputs[task].kind == "normals" for task in tasks):
            check_normals(data, name, on_corrupt=on_corrupt)
    if plan.val is None:
        return warnings
    return warnings + _validation_truth(plan, plan.val, card, tasks) + check_train_val_overlap(plan.train, plan.val)


def _settings(plan: Plan) -> list[str]:
    warnings = []
    if plan.run.batch_size > len(plan.train):
        warnings.append(
            f"batch_size: {plan.run.batch_size} images a step, where data.train has {len(plan.train)}: "
            "a step sees images more than once."
        )
    if plan.run.model.trainable and plan.init is None:
        warnings.append("model.trainable: all other weights are random and stay so; set model.init_from.")
    return warnings


def _training_truth(plan: Plan, card: ModelCard, tasks: Mapping[str, Task]) -> list[str]:
    """Check that there is ground truth for each task to learn from."""
    warnings, outputs = [], [card.outputs[name] for name in tasks]
    depth, labels = any(o.output_kind.is_depth for o in outputs), any(o.kind == "labels" for o in outputs)
    if all(o.output_kind.is_depth or o.kind == "labels" for o in outputs):
        wanted: dict[str, Any] = {"depth": depth, "labels": labels, "on_corrupt": plan.run.data.on_corrupt}
        check_ground_truth(plan.train, **wanted)
        warnings += check_transforms(plan.train, plan.build_transform(), plan.run.seed, **wanted)
    if plan.train.sources:
        return warnings
    kind = plan.train.depth_kind(0)
    for name in depth_tasks(plan, card):
        if kind not in (kinds := tasks[name].ground_truth_kinds(list(tasks[name].criteria))):
            problem = f"tasks.{name}.losses: learn from {', '.join(sorted(kinds))}, and data.train has {kind}."
            raise DataError(plan.locate(problem))
    for name, task in tasks.items():
        missing = missing_truth(task, task.ground_truth_kinds(list(task.criteria)), selected_sources(plan.train))
        if missing and not (task.output.output_kind.is_depth or task.output.kind == "labels"):  # see `_head_ranges`
            warnings.append(f"data.train: no sample looked at has what '{name}' learns from ({missing}).")
    return warnings


def _head_ranges(plan: Plan, card: ModelCard, tasks: Mapping[str, Task]) -> list[str]:
    """Compare the ground truth with the depth and the classes that heads can predict."""
    warnings = []
    for name in tasks:
        output = card.outputs[name]
        for suffix, source in selected_sources(plan.train, plan.tasks[name].sources):
            options: dict[str, Any] = {"on_corrupt": plan.run.data.on_corrupt, "source": f"data.train{suffix}"}
            if output.kind == "metric" and output.metres and (not suffix or "metric" in found_truths(source)):
                loaded = plan.init is not None
                warnings += check_depth_range(source.data, *output.metres, loaded=loaded, **options)
            if output.kind == "labels" and (not suffix or "labels" in found_truths(source)):
                warnings += check_labels(source.data, **options)
    return warnings


def _validation_truth(plan: Plan, val: Dataset, card: ModelCard, tasks: Mapping[str, Task]) -> list[str]:
    """Check that there is ground truth to score each task by, of a size that its protocol is defined for."""
    warnings = []
    for name, spec in plan.tasks.items():
        selected = selected_sources(val, spec.sources)
        missing = missing_truth(tasks[name], tasks[name].scored_kinds(), selected)
        if card.outputs[name].output_kind.is_depth:
            sizes = [ground_truth_sizes(source.data, on_corrupt=plan.run.data.on_corrupt) for _, source in selected]
            missing = missing if any(sizes) else "valid depth"
            for (suffix, source), sizes_of_source in zip(selected, sizes, strict=True):
                protocol = PROTOCOLS[source.protocol or spec.protocol]
                for size, sample in sizes_of_source.items():
                    with plan.located(f"tasks.{name}.protocol: '{sample}' of data.val{suffix}"):
                        protocol.check_size(*size)
        if missing:
            warnings.append(f"data.val: no sample looked at has ground truth to score '{name}' by ({missing}).")
    return warnings


def missing_truth(task: Task, kinds: Collection[str], sources: Iterable[tuple[str, MixtureSource]]) -> str:
    """Return the kinds of ground truth that a task needs, if none of some samples of the sources has any; else
    nothing."""
    unknown = kinds == {"labels"} and task.output.kind != "labels"  # the default, of a plug-in's task
    found = unknown or any(not found_truths(source).isdisjoint(kinds) for _, source in sources)
    return "" if found else " or ".join(sorted(kinds))
