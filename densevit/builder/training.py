"""A plan becomes model, tasks, loaders and trainer; the only room that builds all of them."""

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor, nn

from densevit.builder.checkpoint import start_from
from densevit.builder.model import build_card, build_model
from densevit.builder.plan import Plan, TaskPlan
from densevit.config import parser
from densevit.config.schema import Run
from densevit.data.datasets.base import Dataset
from densevit.data.labels.class_table import refuse_reordered
from densevit.data.loading.dataloader import TrainLoader, eval_loader, train_loader
from densevit.data.loading.workers import auto_workers
from densevit.data.sanity_checks import first_look as look_at_depth
from densevit.data.sanity_checks import first_look_at_both as look_at_both
from densevit.data.sanity_checks import first_look_at_labels as look_at_labels
from densevit.data.sanity_checks import sizes_of_truth
from densevit.data.transforms.photometric import compose
from densevit.engine.distributed import DistributedContext
from densevit.engine.interfaces import Validation
from densevit.engine.trainer import Trainer
from densevit.errors import ConfigError, DataError
from densevit.evaluation.classification import metrics as class_metrics
from densevit.evaluation.depth.evaluate import mean_row
from densevit.evaluation.depth.published_protocols import PROTOCOLS, Protocol, find_protocol
from densevit.evaluation.records import Row
from densevit.evaluation.segmentation import metrics as seg_metrics
from densevit.inference.forward import forward
from densevit.inference.predict.summary import out_of_memory
from densevit.model_card import HeadSpec, ModelCard
from densevit.tasks.base import Task


def build_trainer(plan: Plan, world: DistributedContext) -> Trainer:
    """Model, tasks and trainer, with weights loaded from `model.init_from`.

    Raises:
        ConfigError, CheckpointError: weights that are missing or do not fit.
    """
    run = plan.run
    try:
        model = build_model(plan.model, run.model.resize)
    except ConfigError as error:
        raise ConfigError(*map(plan.locate, error.problems)) from None
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or out_of_memory(error)):
            raise
        raise ConfigError(f"model: does not fit into memory ({str(error).splitlines()[0]}).") from None
    if plan.model.source is not None:
        started = start_from(model, plan.model, plan.model.source)
        if world.is_main:
            print(started, file=sys.stderr)
    if run.model.freeze_encoder:
        model.encoder.requires_grad_(False)
    model.encoder.set_grad_checkpointing(run.model.grad_checkpointing)
    card = build_card(model, plan.model, run.model.resize, str(run.data.train), plan.train.palette)
    card = replace(card, config=parser.to_dict(run))
    tasks = {name: build_task(name, plan, card.outputs[name]) for name in plan.tasks}
    # Only depth's protocols ask for a window; images go through the model once, so the first one's holds for all.
    depths = [task.protocol for name, task in plan.tasks.items() if card.outputs[name].kind not in SCORES]
    predict = make_predict_fn(depths[0] if depths else PROTOCOLS["plain"], card)
    return Trainer(run, model, tasks, world, predict=predict, card=card, data=dataset_fingerprint(plan.train))


def run_sanity_checks(plan: Plan, card: ModelCard) -> list[str]:
    """Warnings about truth that the heads cannot reach, that tells nothing apart, or that is taught and scored.

    Raises:
        DataError: all of it lies outside the range of a head; a protocol that is not defined at its size.
    """
    taught = [output for name, output in card.outputs.items() if name in plan.tasks]
    policy = plan.run.data.on_corrupt
    ranges = [output.range for output in taught if output.kind == "metric" and output.range]
    warnings = [warning for ends in ranges for warning in look_at_depth(plan.train, *ends, on_corrupt=policy)]
    labelled = any(output.kind == "labels" for output in taught)
    warnings += look_at_labels(plan.train, on_corrupt=policy) if labelled else []
    if plan.val is None:
        return warnings
    depths = {name: task.protocol for name, task in plan.tasks.items() if card.outputs[name].kind not in SCORES}
    sizes = sizes_of_truth(plan.val) if depths else {}
    for name, protocol in depths.items():
        for size, sample in sizes.items():
            try:
                protocol.check_size(*size)
            except DataError as error:
                where = plan.locate(f"tasks.{name}.protocol: '{sample}' of data.val")
                raise DataError(f"{where}: {error}") from None
    return warnings + look_at_both(plan.train, plan.val)


def with_run(plan: Plan, run: Run) -> Plan:
    """The same parts and data, trained in another way."""
    return replace(plan, run=run)


def dataset_fingerprint(data: Dataset) -> str:
    """What tells a data set from others, and from itself with samples added or taken away: its names, in order."""
    names = hashlib.sha256("\n".join(data.names).encode()).hexdigest()
    return f"{len(data)} samples, {names[:12]}"


# How what is no depth is scored in the validation during training: one image, and all of them.
SCORES: Mapping[str, tuple[Callable[..., Row], Callable[[Sequence[Row]], Row]]] = {
    "class": (class_metrics.score, class_metrics.mean_row),
    "labels": (seg_metrics.as_row, seg_metrics.pooled_scores),
}


def build_task(name: str, plan: Plan, output: HeadSpec) -> Task:
    task = plan.tasks[name]
    losses = [(loss.name, task.weight * weight, loss.build()) for weight, loss in task.losses]
    check_output(name, task, output, plan)
    if output.kind in SCORES:
        return task.task.build(name, output, losses, *SCORES[output.kind])
    protocol = find_protocol(task.protocol.name, (plan.val or plan.train).depth_range, output.kind)
    return task.task.build(name, output, losses, protocol.score, mean_row)


def check_output(name: str, task: TaskPlan, output: HeadSpec, plan: Plan) -> None:
    """
    Raises:
        ConfigError: the head gives what the task cannot teach, or other classes than the data has.
    """
    kinds: tuple[str, ...] = task.task.part.kinds  # type: ignore[attr-defined]
    if output.kind not in kinds:
        raise ConfigError(
            f"tasks.{name}: task '{task.task.name}' teaches heads that give {', '.join(kinds)}; "
            f"model.heads.{name} gives {output.kind}."
        )
    if output.focal is not None:
        raise ConfigError(
            f"model.heads.{name}: its metres depend on the camera (focal {output.focal:g}), which losses do not know. "
            "Leave `focal` out for depth without unit, or take a head of type 'metric'."
        )
    for data in filter(None, (plan.train, plan.val)):
        if output.kind in SCORES and len(data.classes) != len(output.classes):
            raise ConfigError(
                f"model.heads.{name}: {len(output.classes)} classes, where the data has {len(data.classes) or 'none'}."
            )
        if output.kind in SCORES:
            refuse_reordered(f"model.heads.{name}", output.classes, data.classes)


def make_predict_fn(protocol: Protocol, card: ModelCard) -> Callable[[nn.Module, Tensor], dict[str, Tensor]]:
    """How a protocol shows images to the model: through its window, at the card's size."""

    def predict(model: nn.Module, image: Tensor) -> dict[str, Tensor]:
        h, w = image.shape[-2:]
        return forward(model, image, card.resize, card.multiple, box=protocol.input_box(h, w))

    return predict


def train_batches(plan: Plan, world: DistributedContext) -> Callable[[int], TrainLoader]:
    """Images already seen -> the endless micro-batches from there on."""
    run = plan.run
    transform = compose([choice.build() for choice in plan.transforms])

    def batches(start: int) -> TrainLoader:
        return train_loader(
            plan.train,
            transform,
            seed=run.seed,
            batch_size=run.batch_size,
            grad_accum_steps=run.grad_accum_steps,
            rank=world.rank,
            world_size=world.size,
            start=start,
            workers=workers(run, world),
            pin=world.device.type == "cuda",
            on_corrupt=run.data.on_corrupt,
            max_corrupt_fraction=run.data.max_corrupt_fraction,
            timeout=run.data.timeout,
        )

    return batches


def val_batches(plan: Plan, world: DistributedContext) -> Validation | None:
    if plan.val is None:
        return None
    size = max(1, min(8, plan.run.batch_size // (plan.run.grad_accum_steps * world.size)))
    return eval_loader(
        plan.val,
        batch_size=size,
        rank=world.rank,
        world_size=world.size,
        workers=workers(plan.run, world),
        timeout=plan.run.data.timeout,
    )


def workers(run: Run, world: DistributedContext) -> int:
    return auto_workers(world.local_size) if run.data.workers == "auto" else run.data.workers
